"""Python's text as a tree, one thread at a time."""

from __future__ import annotations

import ast
import threading

_TURN = threading.Lock()


def parse(code: str) -> ast.Module:
    """`ast.parse` for code that runs in several threads.

    Python 3.11 counts the depth of every thread's tree in one number, and fails with a SystemError where two threads
    parse at once (CPython's issue 106905).

    Raises:
        SyntaxError: as `ast.parse`.
    """
    with _TURN:
        return ast.parse(code)


def parses(code: str) -> bool:
    """Whether it is Python."""
    try:
        return bool(parse(code))
    except SyntaxError:
        return False
