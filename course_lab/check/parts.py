"""Which part of a result is wrong, where the rest is right: a range of rows or columns, one of several outputs."""

from __future__ import annotations

import numpy as np

from course_lab.check.verdict import CaseRun, Comparison

_MOSTLY = 0.5  # of what lies in the range is wrong: else the range says nothing
_LONGEST = 0.75  # of a dimension


def wrong_part(run: CaseRun, names: list[str]) -> str:
    """In a sentence; "" where right and wrong elements are mixed.  names: of the outputs, in order."""
    wrong = [i for i, comparison in enumerate(run.comparisons) if comparison.wrong.any()]
    if not wrong:
        return ""
    whole = ""
    if len(wrong) < len(run.comparisons):
        whole = (
            f"Of the outputs only {' and '.join(names[i] for i in wrong)} {'is' if len(wrong) == 1 else 'are'} wrong."
        )
    return " ".join(filter(None, (whole, _range(run.comparisons[wrong[0]]))))


def _range(comparison: Comparison) -> str:
    """The shortest range along one dimension that holds all that is wrong, and little that is right."""
    found = []
    for dim, size in enumerate(comparison.wrong.shape):
        others = tuple(d for d in range(comparison.wrong.ndim) if d != dim)
        where = np.flatnonzero(comparison.wrong.any(axis=others))
        first, last = int(where[0]), int(where[-1])
        inside = comparison.wrong.take(range(first, last + 1), axis=dim)
        if last + 1 - first <= _LONGEST * size and inside.mean() > _MOSTLY:
            found.append(((last + 1 - first) / size, dim, size, first, last))
    if not found:
        return ""
    _, dim, size, first, last = min(found)
    place = f"position {first} is" if first == last else f"positions {first} to {last} are"
    return f"Along dimension {dim}, {place} wrong, and the others of {size} right: what is different there?"
