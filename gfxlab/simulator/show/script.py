"""Somebody's file, run as a script: it brings the kernels' arguments itself.

FILE:KERNEL names a kernel of the file; FILE alone means every kernel that it launches.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gfxlab import user_errors


class ScriptError(Exception):
    """The file cannot be run, or it does not launch the kernel."""


def split(target: str) -> tuple[Path, str]:
    """`my_file.py:my_kernel` as the file and the kernel's name, which is "" where none is given.

    Raises:
        ScriptError: there is no such file.
    """
    file, colon, kernel = target.rpartition(":")
    if not colon or not kernel.isidentifier():
        file, kernel = target, ""
    path = Path(file)
    if not path.is_file():
        raise ScriptError(f"There is no file {file}; give FILE:KERNEL, such as my_kernels.py:add_kernel.")
    return path, kernel


def not_launched(path: Path, kernel: str, others: set[str], launch: int = 1) -> ScriptError:
    what = kernel or "any kernel"
    often = f" {launch} times" if launch > 1 else ""
    instead = f"It launches {', '.join(sorted(others))}." if others else ""
    return ScriptError(f"{path.name} does not launch {what}{often} when it runs as a script. {instead}".rstrip())


def execute(path: Path, arguments: Sequence[str] = ()) -> int:
    """Run a file as `python FILE arguments` does; returns the exit status that it asks for.

    Raises:
        ScriptError: the file raised, or launched a kernel wrongly; what an instrument found goes through as it is.
    """
    try:
        with _as_program(path, arguments):
            runpy.run_path(str(path), run_name="__main__")
        return 0
    except SystemExit as end:
        return exit_status(end)
    except Exception as error:
        said = None if type(error).__module__.startswith("gfxlab.") else user_errors.sentence(error, path)
        if said is None:
            raise
        raise ScriptError(said) from error


def exit_status(end: SystemExit) -> int:
    """What Python makes of `sys.exit(...)`: a number as it is, a text is said and fails."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


@contextlib.contextmanager
def _as_program(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    before, search = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before, search
