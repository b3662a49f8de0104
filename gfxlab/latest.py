"""A memory for answers that take long to find: the latest ones are kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Latest(Generic[Answer]):
    """At most so many answers by their question; of too many the oldest goes."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._answers: dict[Hashable, Answer] = {}

    def get(self, question: Hashable, find: Callable[[], Answer]) -> Answer:
        """The answer to a question, found now if it is not known. What `find` raises is not kept."""
        if question not in self._answers:
            answer = find()
            if len(self._answers) >= self._most:
                self._answers.pop(next(iter(self._answers)))
            self._answers[question] = answer
        return self._answers[question]

    def clear(self) -> None:
        """Forget everything."""
        self._answers.clear()

    def __len__(self) -> int:
        return len(self._answers)
