"""What gfxlab's own documents promise: links, commands, the API reference, the scripts for CI."""

import json
import re
import runpy
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from gfxlab.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ["gfxlab/README.md", "docs/pretended.md", "docs/suites.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere_and_commands_exist(document):
    text = (ROOT / document).read_text()
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert links and [link for link in links if not (ROOT / document).parent.joinpath(link).exists()] == []
    assert set(re.findall(r"(?:^|[`#] ?|    )gfxlab ([a-z]+)", text, re.MULTILINE)) <= set(get_command(app).commands)


def test_the_api_reference_is_what_the_docstrings_say():
    page = runpy.run_path(str(ROOT / "scripts" / "api_reference.py"))["page"]()
    assert (ROOT / "docs" / "api.md").read_text() == page, "run: python scripts/api_reference.py"


def test_the_table_of_suites_is_what_its_command_makes_of_the_runs():
    suites = runpy.run_path(str(ROOT / "scripts" / "suites.py"))
    data = json.loads((ROOT / "docs" / "suites.json").read_text())
    assert (ROOT / "docs" / "suites.md").read_text() == suites["page"](data), "run: python scripts/suites.py"
    runs = [("gfx942", "a.py::t[1]", "failed"), ("gfx942", "a.py::t[1]", "timeout"), ("gfx942", "a.py::t[2]", "passed")]
    lines = [dict(zip(("target", "id", "outcome"), run)) for run in [*runs, ("gfx1100", "a.py::u", "timeout")]]
    counted = suites["counted"](lines)
    assert counted["tests"] == {"a.py": {"gfx942": {"failed": 1, "passed": 1}, "gfx1100": {"timeout": 1}}}
    assert counted["functions"] == {"gfx942": 1}


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_the_ci_examples_are_yaml_and_name_options_that_exist(name):
    text = (ROOT / "docs" / "ci" / name).read_text()
    assert yaml.safe_load(text)
    named = re.findall(r"gfxlab (\w+) (.*)", text)
    assert named and re.search(r"pytest --gfx-arch .* -W error::gfxlab\.pretended\.Hazard", text)
    for verb, options in named:
        known = {option for parameter in get_command(app).commands[verb].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", options)) <= known


def test_every_verb_explains_itself_with_an_example(gfxlab):
    for name, command in get_command(app).commands.items():
        assert command.help and f"gfxlab {name}" in (command.epilog or ""), name
        assert any("--json" in parameter.opts for parameter in command.params), name
