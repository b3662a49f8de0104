"""What the documents promise exists: their links, the make targets and the commands that they name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command

from course_lab.cli import app
from gfxlab.cli import app as instruments

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "environment.yml", ".devcontainer/devcontainer.json", ".ci/run")


def text(document: str) -> str:
    return (ROOT / document).read_text()


def test_the_links_of_the_readme_lead_somewhere():
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text("README.md"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_make_targets_exist(document):
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:^|[`&\"] ?|exec |    )make ([a-z-]+)", text(document), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_course_commands_exist(document):
    commands = set(get_command(app).commands)
    named = set(re.findall(r"(?:^|[`#] ?|    |course_lab )course ([a-z]+)", text(document), re.MULTILINE))
    assert named <= commands


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_gfxlab_exist(document):
    named = set(re.findall(r"(?:^|[`#] ?|    )gfxlab ([a-z]+)", text(document), re.MULTILINE))
    assert named <= set(get_command(instruments).commands)


def test_the_map_of_contributing_names_what_is_there():
    """Each path in the table and in the followed launch, with what its braces and stars stand for."""
    rooms = re.findall(r"`((?:course_|gfxlab|tests|benchmarks|scripts)[\w/.*{},]*)`", text("CONTRIBUTING.md"))
    rooms = [room for room in rooms if "/" in room and "NN" not in room]
    assert len(rooms) > 40
    for room in rooms:
        before, brace, rest = room.partition("{")
        names, _, after = rest.partition("}")
        for path in [before + name + after for name in names.split(",")] if brace else [room]:
            assert list(ROOT.glob(path.rstrip("/"))), path


def test_make_help_lists_every_target():
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    for target in re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE):
        assert re.search(rf"make {target} +\S", shown), target


def test_the_ci_entry_can_be_run():
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True, timeout=60)
