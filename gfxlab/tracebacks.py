"""Tracebacks in a notebook that show the reader's own lines, and not the way through Triton and these instruments."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import TracebackType

_NOT_THE_READERS = ("gfxlab", "triton", "IPython")


class ShortTraceback:
    """For exceptions whose message says it all: IPython asks `_render_traceback_`, where there is one, what to show."""

    def _render_traceback_(self) -> list[str]:
        from IPython import get_ipython

        return get_ipython().InteractiveTB.structured_traceback(type(self), self, own_frames(self.__traceback__))


def own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of Triton, IPython and gfxlab; None where no other is left."""
    if traceback is None:
        return None
    rest = own_frames(traceback.tb_next)
    if traceback.tb_frame.f_code.co_filename.startswith(_folders()):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)


@cache
def _folders() -> tuple[str, ...]:
    found = (importlib.util.find_spec(name) for name in _NOT_THE_READERS)
    return tuple(f"{Path(spec.origin).parent}/" for spec in found if spec)
