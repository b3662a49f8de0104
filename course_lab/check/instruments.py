"""How well a right answer does it: bytes moved, machine code against the reference solution's, one picture.

The answer is measured in a child of its own, on one case; so is the solution, once in a process.  The child that runs
the answer never sees the solution, and of the solution only figures are shown.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from html import escape

import torch

from course_lab.check import client
from course_lab.check.protocol import Job
from course_lab.check.report import Card
from course_lab.check.verdict import CaseRun
from gfxlab import style
from gfxlab.code import AmdError, AmdReport, regressions
from gfxlab.code.card import cards_of

_SECONDS = 20.0  # a large unrolled kernel takes the compiler a while
_WASTE = 1.05  # of the bytes that the solution moves
_MOST_WASTE = 2
_PROMPT, _WIDTH = 2048, 576  # tokens of a prompt; numbers that describe one in SmolLM2-135M
_solutions: dict[str, Measured] = {}  # of this process


@dataclass(frozen=True)
class Measured:
    """What the child found out about one answer (see `measured.measure`); `problem` when it found nothing.

    programs, idle: of all launches; idle is 0 where the text does not give each program a block of its own.
    """

    launches: int = 0
    moved: int = 0
    least: int = 0
    waste: tuple[str, ...] = ()
    blind: str = ""
    amd: AmdReport | None = None
    refused: str = ""
    picture: dict[str, str] | None = None
    problem: str = ""
    programs: int = 0
    idle: int = 0

    def bytes_line(self, other: Measured | None) -> str:
        """The bytes and their score: the solution's as a part of those moved. Without one, the least possible's.

        Programs with nothing to do lower it, each by its share.
        """
        if self.blind:
            return f"Bytes were not counted. {self.blind}"
        usable = other if other and not (other.problem or other.blind) else None
        known = usable.moved if usable else self.least
        who = "the reference solution moves" if usable else "the least possible is"
        busy = 1 - self.idle / self.programs if self.programs else 1.0
        score = f"a score of {busy * (min(1.0, known / self.moved) if self.moved else 1.0):.0%}"
        if self.idle:
            score = f"{self.idle:,} of {self.programs:,} programs have nothing to do: {score}"
        least = f", the least possible: {score}." if self.moved <= self.least else f", {who} {known:,}: {score}."
        return f"{self.moved:,} bytes moved{least}"


def look(job: Job, picture: str, runs: list[CaseRun], solution: str | None, arch: str) -> Card:
    """Measure an answer on the roomiest case, and compare it with the solution.

    job: what the child did for the check, its cases replaced. picture: see `Exercise`. runs: every case, for choosing
    one.
    """
    run = roomiest(runs)
    job = replace(job, cases=(run.args,))
    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(_of_solution, job, picture, solution, arch) if solution else None
        mine = _measure(job, picture, arch)
        mine = _at_the_models_size(mine if run.no_idle else replace(mine, idle=0), run)
        return _card(mine, other.result() if other else None, run.case.name, arch)


def _at_the_models_size(mine: Measured, run: CaseRun) -> Measured:
    """With least times for as many of this case as come to a prompt: a case by itself takes no time worth reading."""
    many = _PROMPT * _WIDTH / max((tensor.numel() for tensor in _tensors(run)), default=_PROMPT * _WIDTH)
    if mine.amd is None or mine.amd.work is None or many <= 1:
        return mine
    what = f"{_PROMPT:,} tokens of SmolLM2, {_WIDTH} numbers each: {many:,.0f} times this case"
    return replace(mine, amd=replace(mine.amd, work=replace(mine.amd.work, many=many, many_are=what)))


def roomiest(runs: list[CaseRun]) -> CaseRun:
    """The largest case whose rows are contiguous and multiples of 16, as a real launch's are; else the first."""
    even = [run for run in runs if all(map(_is_even, _tensors(run)))]
    return max(even or runs[:1], key=lambda run: sum(tensor.nbytes for tensor in _tensors(run)))


def _tensors(run: CaseRun) -> list[torch.Tensor]:
    return [value for value in run.args if isinstance(value, torch.Tensor)]


def _is_even(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and tensor.dim() > 0 and tensor.shape[-1] % 16 == 0 and tensor.is_contiguous()


def _measure(job: Job, picture: str, arch: str) -> Measured:
    outcome = client.measure(job, arch, picture, time_limit=_SECONDS)
    if outcome.status != "ok":
        why = outcome.error.message if outcome.error else outcome.status
        return Measured(problem=f"The instruments have nothing to say here: {why.partition('. ')[0].rstrip('.')}.")
    value = dict(outcome.value)
    try:
        value["amd"] = AmdReport.from_json(value["amd"]) if value["amd"] else None
    except AmdError as error:
        value |= {"amd": None, "refused": str(error)}
    return Measured(**value | {"waste": tuple(value["waste"])})


def _of_solution(job: Job, picture: str, solution: str, arch: str) -> Measured:
    """The solution's figures, measured when they are first asked for."""
    key = hashlib.sha256(f"{job.number} {arch} {solution}".encode()).hexdigest()
    if key not in _solutions:
        _solutions[key] = _measure(replace(job, code=solution), picture, arch)
    return _solutions[key]


def remarks(mine: Measured, other: Measured) -> list[str]:
    """What an answer does worse than the solution, in sentences."""
    found = []
    if mine.launches > other.launches:
        found.append(
            f"{mine.launches} kernels launched where {'one' if other.launches == 1 else other.launches} would do."
        )
    if mine.moved > _WASTE * other.moved:
        found.append(f"{mine.moved:,} bytes moved where {other.moved:,} would do.")
    if mine.amd and other.amd:
        found += regressions(mine.amd, other.amd)
    return found


# ---- showing ---------------------------------------------------------------------------------------------------------


def _card(mine: Measured, other: Measured | None, case: str, arch: str) -> Card:
    if mine.problem:
        return Card(mine.problem, style.card("Instruments", f"<p>{escape(mine.problem)}</p>"))
    title = f"How well? On the case “{case}”, for {cards_of(arch) or arch}"
    lines, worse = [mine.bytes_line(other), *mine.waste[:_MOST_WASTE]], []
    if other and not other.problem:
        worse = remarks(mine, other)
        what = "bytes, launches and machine code" if mine.amd and other.amd else "bytes and launches"
        lines += [] if worse else [f"No worse than the reference solution in {what}."]
    first = [f"The reference solution does better ({len(worse)}):"] if worse else []
    worse += [mine.refused] if mine.refused else []
    return Card(_text(title, first, worse, lines, mine), _html(title, first, worse, lines, mine))


def _text(title: str, first: list[str], worse: list[str], lines: list[str], mine: Measured) -> str:
    """What can be changed comes first."""
    body = [
        *(f"  {line}" for line in first),
        *(f"  ! {sentence}" for sentence in worse),
        *(f"  {line}" for line in lines),
    ]
    parts = ["\n".join([title, *body])]
    if mine.amd:
        parts.append(str(mine.amd))
    if mine.picture:
        parts.append(mine.picture["text"])
    return "\n\n".join(parts)


def _html(title: str, first: list[str], worse: list[str], lines: list[str], mine: Measured) -> str:
    top, rest = ("".join(f"<p>{escape(line)}</p>" for line in some) for some in (first, lines))
    parts = [style.card(title, top + style.warnings(worse) + rest)]
    if mine.amd:
        parts.append(mine.amd._repr_html_())
    if mine.picture:
        parts.append(mine.picture["html"])
    return "\n".join(parts)
