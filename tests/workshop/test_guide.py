"""The instructor's guide: its links, its tables; its private exercise made from its own text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
from guide_text import GUIDE, ROOT, commands, files, hidden_case

from course_lab.authoring import lessons
from course_lab.authoring.build import plans


def test_its_links_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", re.sub(r"```.*?```", "", GUIDE, flags=re.DOTALL))
    assert len(links) > 60
    for link in links:
        path, _, anchor = link.partition("#")
        page = (ROOT / "workshop" / path).resolve() if path else ROOT / "workshop" / "README.md"
        assert page.exists(), link
        if anchor and page.suffix == ".md":
            text = page.read_text(encoding="utf-8")
            headings = {
                re.sub(r"[^\w-]", "", h.lower().replace(" ", "-")) for h in re.findall(r"^#+ (.*)$", text, re.M)
            }
            assert anchor in headings or f'id="{anchor}"' in text, link


def test_its_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^    (?:\w+=\S+ )*|`)make ([a-z-]+)", GUIDE, re.MULTILINE)) <= targets


def test_its_tables_are_those_of_the_lessons():
    assert plans.timetables() in GUIDE and plans.misconceptions() in GUIDE


@pytest.mark.parametrize("name", plans.PLANS)
def test_a_plan_has_no_exercise_twice_and_no_stretch_without_a_pause(name):
    for day in plans.PLANS[name]:
        stretch = 0
        for part in day:
            stretch = stretch + 1 if isinstance(part, plans.Block) else 0
            assert stretch <= 3
            for number in getattr(part, "more", ()):
                assert number not in lessons.lesson(part.lesson).core and lessons.exercise(number)


def test_the_short_path_is_in_the_one_day_plan_and_fits_into_a_day():
    (day,) = next(days for name, days in plans.PLANS.items() if "short path" in name)
    assert [part.lesson for part in day if isinstance(part, plans.Block)] == [f"{n:02}" for n in range(8)]
    ends = [
        int(hour) * 60 + int(minute) for hour, minute in re.findall(r"From 9:00 to (\d+):(\d+)\.", plans.timetables())
    ]
    assert len(ends) == 4 and ends[0] < 13 * 60 and max(ends) < 17 * 60


@pytest.fixture
def folder():
    """A folder that other accounts can enter, as `course grade` becomes another one."""
    path = Path(tempfile.mkdtemp(prefix="course-guide-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def environment(folder):
    """The guide's files, and a virtual environment that sees this one's packages: (folder, variables)."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "outer.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for command, module in (("course", "course_lab"), ("pip", "pip")):
        script = venv / "bin" / command
        script.write_text(f'#!/bin/sh\nexec {venv}/bin/python -m {module} "$@"\n')
        script.chmod(0o755)
    for path, text in files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    env = {**os.environ, "PATH": f"{venv}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    # the room has pip's build tools in its wheelhouse; here the environment's own setuptools builds
    return folder, env | {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "COURSE_HOME": str(folder / "home")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_exercise_in_ten_minutes(environment):
    folder, env = environment

    def run(command):
        done = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    *making, grading = commands()
    assert len(files()) == 6 and len(making) == 4
    printed = [run(command) for command in making]
    assert "6 of 6" in printed[2] and "right" in printed[3]
    spec = folder / "my_exercises" / "my_lesson" / "spec.py"
    spec.write_text(spec.read_text().replace("\n)\nHINTS", f"\n{hidden_case()})\nHINTS"))
    (folder / "submissions" / "ann").mkdir(parents=True)
    shutil.copy(folder / "my_exercises" / "solutions" / "50_warm_up.ipynb", folder / "submissions" / "ann")
    (folder / "submissions" / "ben").mkdir()
    shutil.copy(folder / "my_exercises" / "exercises" / "50_warm_up.ipynb", folder / "submissions" / "ben")
    run(f"{grading} --unsafe" if not shutil.which("bwrap") else grading)
    table = (folder / "results" / "results.csv").read_text()
    assert "\nann,50.1,passed,4,4," in table and "\nben,50.1,not-attempted,0,4," in table, table
