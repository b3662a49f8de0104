"""Which part of a result is wrong, where the rest is right.

A range of rows or columns, one of several outputs; or wherever an argument holds certain numbers: large ones, NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch

from course_lab.check.verdict import CaseRun, Comparison, numbers

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


# ---- by the numbers that went in -------------------------------------------------------------------------------------

_FEWEST = 3  # numbers on each side of a limit
_LEAST = 0.1  # of all is right: else what is right is so by luck
_EARLY = 0.1  # of the wrong ones: so many may lie beside right ones, which are right within the tolerance
_KINDS: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("is NaN", np.isnan),
    ("is infinite", np.isinf),
    ("is 0", lambda given: given == 0),
)
_MEASURES: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("{name}", lambda given: given),
    ("|{name}|", np.abs),
)


def wrong_numbers(runs: Sequence[CaseRun], names: Sequence[str]) -> str:
    """Which numbers of an argument the wrong elements belong to, in every run; "" where no such line can be drawn.

    runs: wrong ones.  names: of the arguments, in order.
    """
    for position, name in enumerate(names):
        pairs = [pair for run in runs for pair in _pairs(run, position)]
        if pairs and len(pairs) >= len(runs) and (where := _limit(f"`{name}`", pairs)):
            return f"All that is wrong stands where {where}. What does the definition say of such numbers?"
    return ""


def _pairs(run: CaseRun, position: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """An argument's numbers, and which elements are wrong, for each wrong output of its shape."""
    given = run.args[position] if position < len(run.args) else None
    if not isinstance(given, torch.Tensor) or not given.dtype.is_floating_point:
        return
    for comparison in run.comparisons:
        if comparison.wrong.any() and comparison.wrong.shape == tuple(given.shape):
            yield numbers(given).reshape(-1), comparison.wrong.reshape(-1)


def _limit(name: str, pairs: list[tuple[np.ndarray, np.ndarray]]) -> str:
    for what, holds in _KINDS:
        if all((holds(given) == wrong).all() for given, wrong in pairs):
            return f"{name} {what}"
    given, wrong = (np.concatenate(parts) for parts in zip(*pairs))
    finite = np.isfinite(given)
    given, wrong = given[finite], wrong[finite]
    if min(wrong.sum(), (~wrong).sum()) < _FEWEST or (~wrong).mean() < _LEAST:
        return ""
    for text, measure in _MEASURES:
        bad, good = measure(given[wrong]), measure(given[~wrong])
        if (good > bad.min()).sum() <= _EARLY * bad.size and (good < bad.min()).sum() >= _FEWEST:
            return f"{text.format(name=name)} is above {bad.min():.3g}"
        if (good < bad.max()).sum() <= _EARLY * bad.size and (good > bad.max()).sum() >= _FEWEST:
            return f"{text.format(name=name)} is below {bad.max():.3g}"
    return ""
