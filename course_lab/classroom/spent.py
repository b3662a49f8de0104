"""How long a learner worked on each exercise, as far as the progress record tells.

The record is the learner's own file: the minutes are a hint, and nothing depends on them.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

_PAUSE = 20.0  # minutes without an event, after which somebody has done something else
_FIRST = 2.0  # minutes before the first event of a sitting
_MOST_LINES = 20_000


def minutes(progress: str) -> dict[str, float]:
    """Minutes by exercise: the time up to each of its events since the event before, pauses left out.

    progress: the text of a `progress.jsonl` (see `course_lab.journal`); lines of another form are passed over.
    """
    events = sorted(filter(None, map(_event, progress.split("\n")[:_MOST_LINES])))
    spent: dict[str, float] = {}
    before: datetime | None = None
    for time, exercise in events:
        gap = (time - before).total_seconds() / 60 if before else _FIRST
        spent[exercise] = spent.get(exercise, 0.0) + (gap if gap <= _PAUSE else _FIRST)
        before = time
    return {exercise: round(total, 1) for exercise, total in spent.items()}


def _event(line: str) -> tuple[datetime, str] | None:
    try:
        event: Any = json.loads(line)
        time = datetime.fromisoformat(event["time"])
        number = event["exercise"]
        return (time, number[:12]) if time.tzinfo and isinstance(number, str) else None
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
