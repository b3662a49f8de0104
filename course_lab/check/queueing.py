"""A queue before the checks of one machine: two at a time, in the order in which they came.

On a machine that many share, COURSE_QUEUE names a folder in which each check leaves a ticket, a file that it keeps
locked. The two oldest run. A ticket whose process has died is unlocked, and counts no more. Nobody waits for ever:
after PATIENCE seconds a check runs all the same. Without COURSE_QUEUE nothing waits.

Thirty checks at once on two cores take as long together, but all end at the last moment, some at their time limit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

AT_ONCE = 2
PATIENCE = 600.0  # longer than an honest queue of a hundred
_LOOK = 0.2  # seconds between two looks at the queue
_typical = 3.0  # seconds of a check: a running mean of those of this process


def is_shared() -> bool:
    """Whether many share this machine, and their checks wait for each other."""
    return bool(os.environ.get("COURSE_QUEUE"))


@contextlib.contextmanager
def turn(tell: Callable[[str], object] = lambda stage: None) -> Iterator[None]:
    """Inside the block it is this check's turn; `tell` hears how many are before it, and about how long that takes."""
    folder = os.environ.get("COURSE_QUEUE")
    ticket = _draw(Path(folder)) if folder else None
    if ticket is None:
        yield
        return
    path, held = ticket
    try:
        _wait(path, tell)
        started = time.monotonic()
        yield
        _remember(time.monotonic() - started)
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(held)


def waiting(before: int, seconds: float) -> str:
    """What the learner is told: "3 before you, about 6 s"; before: checks that run or wait."""
    rounds = -(-(before - AT_ONCE + 1) // AT_ONCE)
    return f"{before} before you, about {max(rounds, 1) * seconds:.0f} s"


def _draw(folder: Path) -> tuple[Path, int] | None:
    """A new ticket and its lock; None where the folder cannot be used. Its name sorts by time."""
    path = folder / f"{time.time_ns():020}-{os.getpid()}-{os.urandom(4).hex()}"
    hidden = folder / f".{path.name}"  # nobody may see it before it is locked: unlocked means dead
    try:
        held = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        os.fchmod(held, 0o644)  # whatever the umask: others must see whether it is locked
        fcntl.flock(held, fcntl.LOCK_EX)
        os.rename(hidden, path)
    except OSError:
        return None
    return path, held


def _wait(ticket: Path, tell: Callable[[str], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while (before := _before(ticket)) >= AT_ONCE and time.monotonic() < deadline:
        tell(waiting(before, _typical))
        time.sleep(_LOOK)


def _before(ticket: Path) -> int:
    """How many older tickets are alive."""
    try:
        older = [name for name in os.listdir(ticket.parent) if name < ticket.name and not name.startswith(".")]
    except OSError:
        return 0
    return sum(_alive(ticket.parent / name) for name in older)


def _alive(ticket: Path) -> bool:
    """Whether a process holds it; what is left of a dead one is swept away where that is allowed."""
    try:
        look = os.open(ticket, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False  # it is done meanwhile, or no ticket
    try:
        fcntl.flock(look, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(look)
    with contextlib.suppress(OSError):
        ticket.unlink()
    return False


def _remember(seconds: float) -> None:
    global _typical
    _typical = 0.7 * _typical + 0.3 * seconds
