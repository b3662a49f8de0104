"""`make compat`: what is counted, how it is shown, and that README and workflow agree with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from course_lab.authoring.build import compat as shown

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import compat  # noqa: E402

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.a" name="one"/><testcase classname="tests.a" name="two"><skipped/></testcase>
<testcase classname="tests.a" name="three"><failure message="no"/></testcase>
<testcase classname="tests.b" name="four"><error/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted_with_the_names_of_what_failed():
    result = compat.counted(JUNIT)
    assert (result["passed"], result["skipped"], result["failed"]) == (1, 1, 2)
    assert result["failures"] == ["tests.a::three", "tests.b::four"]


def test_a_cell_says_how_many_tests_failed():
    assert shown.cell(None) == "-"
    assert shown.cell({"passed": 7, "failed": 0}) == "7"
    assert shown.cell({"passed": 7, "failed": 2}) == "**2 of 9 fail**"


def test_what_fails_is_named_below_the_table():
    facts = {"numpy": "2", "torch": "2", "python": "3", "date": "today"}
    suites = {"trace": {"passed": 1, "failed": 1, "failures": ["a::b"]}}
    text = shown.table({"3.7.1": {"about": facts, "suites": suites}})
    assert "| 3.7.1 | - | **1 of 2 fail** | - |" in text and text.endswith("Failing on 3.7.1: `a::b`.")


def test_every_suite_has_a_column_and_every_path_exists():
    assert tuple(compat.SUITES) == shown.SUITES
    for arguments in compat.SUITES.values():
        for argument in arguments:
            assert argument.startswith("--") or list(ROOT.glob(argument)), argument


def test_the_versions_are_those_that_the_package_allows():
    from packaging.requirements import Requirement

    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("cpu = ")]
    triton = next(Requirement(text) for text in line.split('"') if text.startswith("triton"))
    assert all(triton.specifier.contains(version) for version in compat.VERSIONS)
    assert {version.rsplit(".", 1)[0] for version in compat.VERSIONS} == {"3.6", "3.7", "3.8", "3.9"}
    assert set(shown.stored()) <= set(compat.VERSIONS)


def test_an_overlay_is_made_once_and_not_for_what_is_there(monkeypatch, tmp_path):
    commands = []

    def run(command, check):
        commands.append(command)

    monkeypatch.setattr(compat, "OVERLAYS", tmp_path / "overlays")
    monkeypatch.setattr(compat.subprocess, "run", run)
    monkeypatch.setattr(compat.metadata, "version", lambda name: "3.9.0")
    assert compat.make_overlay("3.9.0") == []
    for _ in range(2):
        assert compat.make_overlay("3.6.0") == [tmp_path / "overlays" / "3.6.0"]
    assert len(commands) == 1 and {"--no-deps", "--target", "triton==3.6.0"} < set(commands[0])
    assert any(argument.startswith("numpy") and "<2.4" in argument for argument in commands[0])


def test_an_overlay_that_could_not_be_made_leaves_nothing_behind(monkeypatch, tmp_path):
    def fail(command, check):
        raise compat.subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(compat, "OVERLAYS", tmp_path)
    monkeypatch.setattr(compat.subprocess, "run", fail)
    with pytest.raises(compat.subprocess.CalledProcessError):
        compat.make_overlay("3.7.1")
    assert list(tmp_path.iterdir()) == []


def test_a_suite_that_writes_no_report_has_failed_with_what_it_said(tmp_path, monkeypatch):
    monkeypatch.setattr(compat, "ROOT", tmp_path)
    result = compat.run_tests(["no_such_folder"], {"PATH": ""})
    assert result["failed"] >= 1 and result["failures"]


@pytest.fixture
def pretended(monkeypatch, tmp_path):
    """Runs that only say what would be run, two at a time; results go into a file of the test's own."""
    ran = []

    def run_suite(version, name, environment):
        ran.append((version, name))
        return {"passed": len(ran), "failed": 0, "skipped": 0, "failures": []}

    facts = {"torch": "2", "numpy": "2", "python": "3", "date": "today"}
    monkeypatch.setattr(compat, "run_suite", run_suite)
    monkeypatch.setattr(compat, "environment_of", lambda version: {"version": version})
    monkeypatch.setattr(compat, "about", lambda environment: {"triton": environment["version"], **facts})
    monkeypatch.setattr(compat.repository_pages, "pages", list)
    monkeypatch.setattr(shown, "STORED", tmp_path / "compat.json")
    return ran


def test_everything_is_run_the_longest_suites_first(pretended):
    assert compat.main([]) == 0
    assert len(pretended) == 4 * (len(compat.SUITES) - 1) + 2
    assert set(pretended[:2]) == {("3.6.0", "notebooks"), ("3.9.0", "notebooks")}
    assert list(shown.stored()) == list(compat.VERSIONS)
    assert list(shown.stored()["3.9.0"]["suites"]) == list(compat.SUITES)
    assert "notebooks" not in shown.stored()["3.7.1"]["suites"]


def test_one_suite_on_one_version_leaves_what_is_known_of_the_others(pretended):
    compat.main(["3.6.0", "3.8.0", "trace"])
    compat.main(["engines", "3.8.0"])
    assert pretended[-1] == ("3.8.0", "engines") and len(pretended) == 3
    assert {version: list(row["suites"]) for version, row in shown.stored().items()} == {
        "3.6.0": ["trace"],
        "3.8.0": ["engines", "trace"],
    }


def test_another_triton_than_the_wanted_one_ends_the_run(pretended, monkeypatch):
    monkeypatch.setattr(compat, "about", lambda environment: {"triton": "3.9.0"})
    with pytest.raises(SystemExit, match=r"Triton 3\.9\.0 was imported instead of 3\.6\.0"):
        compat.main(["3.6.0"])
    assert pretended == []


def test_an_unknown_version_is_refused(capsys):
    assert compat.main(["3.5.1"]) == 2
    assert "Unknown: 3.5.1" in capsys.readouterr().err
