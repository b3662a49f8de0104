"""What the check says of mistakes that a machine made, which are known: right, vague or wrong.

    told = [verdict("2.1", mutant, report.diagnosis) ...]
    print(table(counts))

Right: the sentence names this mistake or its line, or a mistake with the same numbers.  Vague: what it says is true,
and leaves the cause open: the numbers are described, or where it shows.  Wrong: another cause is named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from course_lab.authoring import lessons
from course_lab.authoring.operators import OPERATORS, Generated, generate
from course_lab.check import grade
from course_lab.check.alike import VAGUE
from course_lab.check.sentences import Diagnosis
from gfxlab.tables import Table

STORED = "told.json"
KINDS = ("right", "vague", "wrong", "passed")
# What was seen, wherever it comes from.
_SHOWS = VAGUE | {
    "out-of-bounds", "mask-too-wide", "between-rows", "partly-written", "partly-read", "partly-wrong",
    "output-untouched", "overlapping-programs", "nothing-stored", "exception", "nondeterministic", "race",
    "not-cured", "unfinished",
    "simulator-differs", "simulator-fault", "compiler-refuses", "wrong-shape", "wrong-dtype", "wrong-type", "timeout",
    "astray", "program-id-unused",
    "demand-not-met", "input-modified", "too-slow", "memory", "crash", "not-always-launched", "far-row-missed",
}  # fmt: skip
# Codes that name what an operator does, besides the operator's own and a mutant's.
_SHORT = {"partly-written", "grid-floor-division", "block-too-short", "mask-too-narrow", "loop-too-short"}
_UNUSED = {"never-used", "never-read", "partly-read"}
_NAMES = {
    "other-stride": {"between-rows", "swapped-strides", "wrong-stride"},
    "rows-without-gaps": {"between-rows", "wrong-stride"},
    "swapped-strides": {"between-rows", "wrong-stride"},
    "other-size": {"wrong-stride"} | _UNUSED,
    "other-host-size": {"wrong-stride"},
    "drop-mask": {"missing-load-mask", "missing-store-mask"},
    "half-mask": {"missing-load-mask", "missing-store-mask", "mask-too-wide"},
    "flat-mask": {"mask-too-wide"},
    "off-by-one": _SHORT | {"mask-too-wide"},
    "loop-ends": _SHORT | {"partly-read", "mask-too-wide"},
    "loop-step": _SHORT | {"partly-read"},
    "rounded-down": _SHORT | {"empty-grid"},
    "grid-axis": _SHORT | {"empty-grid", "overlapping-programs", "program-id-unused"},
    "one-too-many": {"mask-too-wide", "out-of-bounds", "overlapping-programs"},
    "other-program": {"program-id-unused", "overlapping-programs", "partly-written"},
    "without-offset": _UNUSED | {"program-id-unused", "overlapping-programs"},
    "fixed-block": _SHORT | _UNUSED | {"hard-coded-size"},
    "fixed-number": _UNUSED | {"hard-coded-size"},
    "lost-operand": _UNUSED,
    "lost-refusal": {"not-refused", "wrong-exception"},
    "lost-update": _UNUSED,
    "without-choice": _UNUSED,
    "without-function": _UNUSED,
    "other-pointer": _UNUSED,
    "swapped-loads": _UNUSED,
    "kept-output": {"result-reused"},
    "kept-result": {"result-reused", "not-always-launched", "nondeterministic"},
    "lost-launch": {"output-untouched", "not-launched", "partly-written"},
    "launched-twice": {"too-many-launches"},
    "rounds-early": {"half-accumulation"},
    "without-float32": {"half-accumulation"},
    "without-int64": {"missing-int64", "far-row-missed"},
    "without-precision": {"simulator-differs"},
}
# They compare numbers: whoever has the same ones in each case makes that mistake, or its equal.
_SAME_NUMBERS = re.compile(r"Your numbers are those of|gives just your numbers|One change makes it right")
_Counts = dict[str, list[int]]


def verdict(number: str, mutant: Generated, found: Diagnosis | None) -> str:
    """One of `KINDS`, for what the check found in this mutant of exercise `number`."""
    if found is None:
        return "passed"
    suspects = {suspect.code for suspect in lessons.exercise(number).suspects}
    names = {mutant.diagnosis, mutant.operator} | _NAMES.get(mutant.operator, set())
    named = found.code in names or found.code in suspects
    line = re.search(rf"\b[Ll]ine {mutant.line}\b", found.sentence)
    if named or line or _SAME_NUMBERS.search(found.sentence):
        return "right"
    return "vague" if found.code in _SHOWS else "wrong"


def ask(numbers: Iterable[str], *, every: int = 1, first: int = 0) -> _Counts:
    """Grade each `every`-th generated mutant of these exercises, and count by operator."""
    counts: _Counts = {}
    for number in numbers:
        for mutant in list(generate(lessons.solution(number)))[first::every]:
            if not any(one.fits(mutant) for one in lessons.equivalents(number)):
                add(counts, mutant.operator, verdict(number, mutant, grade(number, mutant.code).diagnosis))
    return counts


def add(counts: _Counts, operator: str, kind: str) -> None:
    """Count one more."""
    counts.setdefault(operator, [0] * len(KINDS))[KINDS.index(kind)] += 1


def share(counts: Mapping[str, list[int]], kind: str) -> float:
    """The part of the rejected mutants of which this was said; 0.0 where none was rejected."""
    rejected = sum(sum(row[:3]) for row in counts.values())
    return sum(row[KINDS.index(kind)] for row in counts.values()) / rejected if rejected else 0.0


def store(counts: Mapping[str, list[int]], path: Path) -> None:
    """Write the counts into the file."""
    lines = ",\n".join(f"  {json.dumps(operator)}: {json.dumps(row)}" for operator, row in sorted(counts.items()))
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def stored(path: Path) -> _Counts:
    """The counts that were stored; empty when there are none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def table(counts: Mapping[str, list[int]]) -> str:
    """Markdown: what was said, by operator; shares are of the rejected mutants."""
    rows = [_row(operator, counts[operator]) for operator in OPERATORS if operator in counts]
    rows.append(_row("all", [sum(column) for column in zip(*counts.values())] or [0] * len(KINDS)))
    return Table(rows, ("operator", "rejected", "right", "vague", "wrong", "share right"), numbers=5).markdown()


def _row(name: str, row: list[int]) -> tuple[str, ...]:
    rejected = sum(row[:3])
    return (name, str(rejected), *map(str, row[:3]), f"{row[0] / rejected:.0%}" if rejected else "")
