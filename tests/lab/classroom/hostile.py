"""The submissions of hostile.md, each an answer to 1.1 with something before or in place of the right code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from course_lab.authoring import lessons

_SECTION = re.compile(
    r"^## (?P<name>[^\n]*)\n\n"
    r"(?P<ends>[a-z-]+(?: or [a-z-]+)*)(?:, says “(?P<says>[^”]*)”)?; (?P<where>before|in place)[^\n]*\n\n"
    r"```python\n(?P<code>.*?)\n```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Hostile:
    """One of them. ends: the statuses that it may get; says: a word of what is told."""

    name: str
    code: str
    ends: tuple[str, ...]
    says: str


def _read(found: re.Match[str]) -> Hostile:
    code = found["code"].replace("<NUL>", "\0").replace("<HALF>", "\ud800")
    code = re.sub(r"<DEEP (\d+) (.)>", lambda deep: int(deep[1]) * deep[2], code)
    if found["where"] == "before":
        code = f"{code}\n{lessons.solution('1.1')}"
    return Hostile(found["name"], code, tuple(found["ends"].split(" or ")), found["says"] or "")


ALL = [_read(found) for found in _SECTION.finditer(Path(__file__).with_suffix(".md").read_text(encoding="utf-8"))]
