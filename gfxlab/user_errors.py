"""What a user's own file did wrong, in one sentence: where in their code it happened, and Python's words for it."""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback
from pathlib import Path

_HERE = str(Path(__file__).parent) + os.sep
_LIBRARIES = tuple(path + os.sep for path in {*sysconfig.get_paths().values(), _HERE.rstrip(os.sep)})


def sentence(error: Exception, file: Path) -> str | None:
    """Say what went wrong while `file` ran; None for a defect of the instruments, whose traceback is needed.

    It is a defect when a line of gfxlab failed that does not itself refuse something by `raise`.
    """
    while error.__cause__ is not None and type(error).__name__ == "InterpreterError":
        error = error.__cause__
    if isinstance(error, SyntaxError):
        return _said(error.filename or str(file), error.lineno, type(error).__name__, error.msg)
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.startswith(_HERE) and not _refuses(frames[-1]):
        return None
    theirs = [frame for frame in frames if not frame.filename.startswith((*_LIBRARIES, "<"))]
    where = theirs[-1] if theirs else None
    message = _message(error)
    return _said(where.filename if where else str(file), where and where.lineno, type(error).__name__, message)


def _message(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    if not type(error).__module__.startswith("triton"):
        return lines[0]
    # Triton quotes the kernel first and says what is wrong with it last; of a helper it quotes the call alone.
    if set(lines[-1]) != {"^"}:
        return lines[-1]
    return _message(error.__cause__) if error.__cause__ else lines[-2] if len(lines) > 1 else "no message"


def _refuses(frame: traceback.FrameSummary) -> bool:
    return linecache.getline(frame.filename, frame.lineno or 0).lstrip().startswith("raise ")


def _said(file: str, line: int | None, kind: str, message: str) -> str:
    place = f"{Path(file).name}, line {line}" if line else Path(file).name
    return f"{place}: {kind}: {message}"
