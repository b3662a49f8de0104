"""What the instructor's guide tells one to type: the files of its exercise, and its commands."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "workshop" / "README.md").read_text(encoding="utf-8")
_FILE = re.compile(
    r"^`(my_exercises/[\w/]+\.(?:py|toml))`(?:[^`]|`(?!``))*?\n```\w+\n(.*?)```", re.MULTILINE | re.DOTALL
)
_COMMANDS = re.compile(r"^```sh\n(.*?)```", re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """Each file of the private exercise, as the guide prints it."""
    return dict(_FILE.findall(GUIDE))


def commands() -> list[str]:
    """Every line of its shell blocks, in order."""
    return [line for block in _COMMANDS.findall(GUIDE) for line in block.splitlines()]


def hidden_case() -> str:
    """The case that the guide adds to the instructor's copy."""
    return re.search(r"^```text\n(    Case\(.*\n)```", GUIDE, re.MULTILINE)[1]
