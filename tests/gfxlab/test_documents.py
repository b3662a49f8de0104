"""What gfxlab's own documents promise: links, commands, the API reference, the scripts for CI."""

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


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_the_ci_examples_are_yaml_and_name_options_that_exist(name):
    text = (ROOT / "docs" / "ci" / name).read_text()
    assert yaml.safe_load(text)
    for verb, options in re.findall(r"gfxlab (\w+) (.*)", text):
        known = {option for parameter in get_command(app).commands[verb].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", options)) <= known


def test_every_verb_explains_itself_with_an_example(gfxlab):
    for name, command in get_command(app).commands.items():
        assert command.help and f"gfxlab {name}" in (command.epilog or ""), name
        assert any("--json" in parameter.opts for parameter in command.params), name
