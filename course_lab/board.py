"""Results for the live board of a workshop: sent only where an instructor runs one and the learner has joined.

What is sent: the exercise, how many cases passed of how many, and the diagnosis's code. No code of the learner. A board
that is away costs nothing: nobody waits for it, and the check says nothing of it.
"""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from typing import Any

from course_lab.journal import home

SECONDS = 3.0  # that an answer of the board may take
_MARK = "on-the-board"
TOLD = (
    "From now on each check sends the board: the exercise, how many cases passed, and the diagnosis. Your code stays "
    "here. `course board off` ends it and takes your row away."
)


class BoardError(Exception):
    """There is no board here, or it does not answer; the message says so."""


def address() -> str | None:
    """Where the board is, from COURSE_BOARD_URL, which the workshop's hub sets; None where there is none."""
    return os.environ.get("COURSE_BOARD_URL") or None


def joined() -> bool:
    """Whether this learner has asked to be on it."""
    return address() is not None and (home() / _MARK).exists()


def join() -> str:
    """Ask to be on the board; returns what that means.

    Raises:
        BoardError: no board is run here.
    """
    if address() is None:
        raise BoardError("No board is run here: your instructor's hub sets COURSE_BOARD_URL.")
    home().mkdir(parents=True, exist_ok=True)
    (home() / _MARK).touch()
    return TOLD


def leave() -> str:
    """Send nothing any more, and have the row taken away."""
    (home() / _MARK).unlink(missing_ok=True)
    if address() is None:
        return "Nothing is sent."
    try:
        _request("DELETE", "api/mine", b"")
    except OSError as error:
        raise BoardError(f"Nothing is sent any more, but the board did not take your row away: {error}.") from None
    return "Nothing is sent any more, and your row is gone."


def post(exercise: str, passed: int, cases: int, diagnosis: str | None) -> threading.Thread | None:
    """Send a result in the background, where the learner has joined; the thread that does, else None."""
    if not joined():
        return None
    content = {"exercise": exercise, "passed": passed, "cases": cases, "diagnosis": diagnosis}
    sending = threading.Thread(target=_send, args=(content,), name="board")
    sending.start()
    return sending


def _send(content: dict[str, Any]) -> None:
    try:
        _request("POST", "api/result", json.dumps(content).encode())
    except (OSError, ValueError):
        return  # the board is a convenience: a check never speaks of it


def _request(method: str, path: str, body: bytes) -> None:
    headers = {
        "Authorization": f"token {os.environ.get('JUPYTERHUB_API_TOKEN', '')}",
        "Content-Type": "application/json",
    }
    asked = urllib.request.Request(f"{address()}{path}", data=body, method=method, headers=headers)
    urllib.request.urlopen(asked, timeout=SECONDS).close()
