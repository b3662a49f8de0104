"""Exercises of the lesson on doubling."""

import torch

from course_lab.authoring.exercise import Case, Exercise

MINIMUM_EXERCISES = 2
_CASES = (
    Case("one block", lambda generator: (torch.randn(128, generator=generator),), atol=0, rtol=0),
    Case("a length with a tail", lambda generator: (torch.randn(200, generator=generator),), atol=0, rtol=0),
)
_HINTS = ("How many programs?", "Which lanes are past the end?", "offs = ...; mask = offs < N")

EXERCISES = (
    Exercise("90.1", "Double", 1, 5, "double", lambda x: 2 * x, _CASES, _HINTS),
    Exercise("90.2", "Halve", 2, 10, "halve", lambda x: x / 2, _CASES, _HINTS, kind="repair"),
)
