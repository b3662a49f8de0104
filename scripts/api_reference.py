"""Write docs/api.md from the docstrings of gfxlab's public names.

python scripts/api_reference.py
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = (
    "gfxlab.pretended",
    "gfxlab.review",
    "gfxlab.counters",
    "gfxlab.simulator",
    "gfxlab.code",
    "gfxlab.tracing",
    "gfxlab.engine.dual_mode:enable disable",
    "gfxlab.engine.hooks:guard poison",
    "gfxlab.hardware:limits card occupancy lower_bound",
)
HEAD = """<!-- Written by scripts/api_reference.py from the docstrings. -->
# gfxlab: API reference

Units, shapes and errors are in each entry. The commands are in [gfxlab's README](../gfxlab/README.md).
"""


def names_of(entry: str) -> tuple[str, list[str]]:
    """A module, and the names of it that are public."""
    module, _, names = entry.partition(":")
    return module, names.split() or list(importlib.import_module(module).__all__)


def page() -> str:
    """The whole document."""
    parts = [HEAD]
    for entry in MODULES:
        module, names = names_of(entry)
        parts.append(f"## {module}\n")
        about = inspect.getdoc(importlib.import_module(module)) or ""
        parts.append(about.splitlines()[0] + "\n")
        parts += [_entry(name, getattr(importlib.import_module(module), name)) for name in names]
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str, value: object) -> str:
    if not callable(value):
        return f"### {name}\n\nA {type(value).__name__}.\n"
    said = inspect.getdoc(value) or ""
    parts = [f"### {name}{_signature(value)}\n", f"```text\n{said}\n```\n"]
    if inspect.isclass(value):
        for method, member in vars(value).items():
            function = member.fget if isinstance(member, property) else member
            if not method.startswith("_") and callable(function) and inspect.getdoc(function):
                kind = "" if isinstance(member, property) else _signature(function)
                parts.append(f"- `{method}{kind}`: {inspect.getdoc(function).splitlines()[0]}")
        parts.append("")
    return "\n".join(parts)


def _signature(value: object) -> str:
    if inspect.isclass(value) and issubclass(value, BaseException):
        return ""
    try:
        names = [
            f"{p}" if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) else p.name
            for p in inspect.signature(value).parameters.values()
            if p.name != "self"
        ]
    except (TypeError, ValueError):
        return ""
    return "(" + ", ".join(name.partition(":")[0] for name in names) + ")"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    (ROOT / "docs" / "api.md").write_text(page(), encoding="utf-8")
