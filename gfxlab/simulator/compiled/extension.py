"""The C extension, if this installation has one that was made of the sources that lie here.

GFXLAB_COMPILED=0 leaves it unused: every instruction is then a step of Python, which is what the compiled ones are
compared with.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from gfxlab.simulator.compiled.sources import stamp

VARIABLE = "GFXLAB_COMPILED"


def find() -> tuple[ModuleType | None, str]:
    """The extension, or None and why: "not built", or "built of other sources"."""
    try:
        from gfxlab.simulator.compiled import lanes
    except ImportError:
        return None, "not built"
    expected = stamp(Path(__file__).parent)
    if expected and expected != lanes.STAMP:
        return None, "built of other sources"
    return lanes, ""


EXTENSION, MISSING = find()


def used() -> bool:
    """Whether blocks are executed by the extension."""
    return EXTENSION is not None and os.environ.get(VARIABLE, "") != "0"


def state() -> str:
    """One line: whether it is there, and what to do if not."""
    if EXTENSION is None:
        return f"compiled part of the simulator: {MISSING} (slower; with a C compiler, `pip install -e ./gfxlab`)"
    return "compiled part of the simulator: " + ("there" if used() else f"there, unused ({VARIABLE}=0)")
