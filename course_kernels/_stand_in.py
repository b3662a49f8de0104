"""Imports of the kernel files where Triton is not installed.

The kernel files keep a plain `import triton` at the top, so that each can be lifted out and used alone.  Where there
is no Triton, a stand-in answers those imports; `@triton.jit` is inert then, and `backend` never launches.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


class _Inert(ModuleType):
    """A module of which every attribute exists and does nothing."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda function=None: function


@contextmanager
def triton_importable() -> Iterator[None]:
    """Let `import triton` succeed inside the block, and only there."""
    triton, language = _Inert("triton"), _Inert("triton.language")
    triton.language = language
    sys.modules |= {"triton": triton, "triton.language": language}
    try:
        yield
    finally:
        del sys.modules["triton"], sys.modules["triton.language"]
