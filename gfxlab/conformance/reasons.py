"""Tests that do not pass for a reason outside the simulator: which, with which words, and what shows it.

A failure is counted so only if the test, what became of it and what was said all fit. The table: docs/conformance.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import triton

_VERSION = tuple(int(number) for number in re.findall(r"\d+", triton.__version__)[:2])


@dataclass(frozen=True)
class Reason:
    """tests, said: patterns of a test's name and of what it ended with. until: Triton's version that mends it.

    arch: the only target that it holds for; empty: all.
    """

    tests: str
    outcome: str
    said: str
    because: str
    until: tuple[int, int] = (99, 0)
    arch: str = ""


_REASONS = (
    Reason(
        r"test_annotations.py::test_int_annotation\[",
        "alarm",
        r"IllegalAccess: .* stores element [13] of X, past the end of its 1 elements",
        "the test stores past the end of its tensor of one element: the alarm is true",
    ),
    Reason(
        r"test_core.py::test_cat\[True-",
        "wrong",
        "Tensor-likes are not equal",
        "tl.cat(can_reorder=True) may reorder: every element is there once; the test is of a later Triton",
        until=(3, 10),
    ),
    Reason(
        r"test_core.py::test_scan2d\[cum(prod|sum)-bfloat16-",
        "wrong",
        "Not equal to tolerance",
        "Triton rounds every step of the scan to bfloat16; the test is of a later one, which scans in float32",
        until=(3, 10),
    ),
    Reason(
        r"test_core.py::test_scaled_dot\[.*e5m2-fp16-",
        "wrong",
        "Tensor-likes are not close",
        "MI200's matrix instructions take denormals of float16 as 0, which the smallest numbers of e5m2 become",
        arch="gfx90a",
    ),
    Reason(
        r"test_core.py::test_override_arch\[",
        "failed",
        "'NoneType' object has no attribute 'group'",
        "the test looks for a line of the assembly text that this Triton writes in another way",
    ),
)


def classified(line: Mapping[str, str], arch: str) -> tuple[str, str]:
    """(outcome, reason) of a line of a target's log: "outside" with why, "late" after too long, else as noted."""
    outcome, said = line["outcome"], line.get("why", "")
    if outcome == "failed" and said.startswith("TookTooLong"):
        return "late", ""
    for one in _REASONS:
        fits = outcome == one.outcome and re.search(one.tests, line["test"]) and re.search(one.said, said)
        if fits and one.until > _VERSION and one.arch in ("", arch):
            return "outside", one.because
    return outcome, ""
