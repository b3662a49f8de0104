"""Judge an answer of the clinic: a finding, a cause and a repair, each with ticks of its own.

A finding counts when the kernel as it was fails on it *and* the course's own repair does not: what breaks every kernel
(NaN, numbers too large for float32, arguments that the statement rules out) proves nothing about this one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from course_lab.authoring import parsing
from course_lab.authoring.exercise import Exercise
from course_lab.authoring.patient import CAUSE, FINDING, ORDER, PRICE, TEST, Look, Patient
from course_lab.check import answer, client
from course_lab.check.protocol import Found, Job
from course_lab.check.report import CaseResult, Report, case_result
from course_lab.check.sentences import Diagnosis, diagnosis, plain_exception
from course_lab.check.verdict import CaseRun
from gfxlab import hardware
from gfxlab.code.card import cards_of

ARCH = "gfx942"  # on which a repair is measured
_SECONDS = 60.0  # a kernel that spills takes the compiler a while, on a busy machine a long one


@dataclass(frozen=True)
class Chart:
    """All that is known of a patient before an answer is looked at.

    broken, solution: the kernel as it was and the course's own repair, as code of whole cells.
    job: makes the job of running some code on some arguments.  run: runs it and compares with the definition.
    """

    exercise: Exercise
    broken: str
    solution: str
    job: Callable[[str, tuple[Any, ...]], Job]
    run: Callable[[str, tuple[Any, ...], Look], CaseRun]

    @property
    def patient(self) -> Patient:
        return self.exercise.patient

    @property
    def kernel_alone(self) -> str:
        """The solution without finding, cause and test: what can go wrong with it is in the kernel or its launcher."""
        return without_finding(self, self.solution)

    def is_ours(self, code: str) -> bool:
        """Whether the code is the author's own, which no learner's process may see."""
        return code in (self.broken, self.solution)


# ---- finding and cause ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One tick, and what to say when it is not there; nothing was handed in where there is neither."""

    result: CaseResult
    diagnosis: Diagnosis | None = None


def examine(chart: Chart, code: str) -> tuple[Part, Part]:
    """Finding and cause of an answer."""
    found = client.finding(chart.job(code, ()), chart.patient.part, time_limit=chart.exercise.time_limit)
    if isinstance(found, str):
        return _wrong(FINDING, diagnosis("finding-failed", part=chart.patient.part, why=found)), Part(_open(CAUSE))
    return _finding(chart, found), _cause(chart.patient, found)


def _finding(chart: Chart, found: Found) -> Part:
    part = chart.patient.part
    if found.problem:
        why = plain_exception(found.problem)
        return _wrong(FINDING, diagnosis("finding-failed", part=part, why=why))
    if not found.defined:
        return _wrong(FINDING, diagnosis("no-entry", entry=part, defined="another"))
    if found.returned == "None":
        return Part(_open(FINDING))
    sentence = _refusal(chart, found.arguments) if found.given else "only tensors on the CPU, numbers and names will do"
    if sentence:
        return _wrong(FINDING, diagnosis("finding-refused", part=part, returned=found.returned, why=sentence))
    return _target(chart, *found.arguments) if chart.patient.target else _input(chart, found.arguments)


def _input(chart: Chart, arguments: tuple[Any, ...]) -> Part:
    try:
        shown, closest, look = _shows(chart, chart.broken, arguments)
    except Exception as error:  # the definition itself, on whatever a learner thought of
        return _refused(chart, f"the definition itself fails on it ({type(error).__name__})")
    if shown is None and (closest.seen is None or closest.seen.problem):
        return _refused(chart, f"no kernel could be run on it ({_why_not(closest)})")
    if shown is None:
        return _wrong(FINDING, diagnosis("breaks-nothing", part=chart.patient.part, where="is right on what"))
    if _shows(chart, chart.solution, arguments)[0] is not None:
        return _wrong(FINDING, diagnosis("breaks-every-kernel", part=chart.patient.part))
    return Part(CaseResult(FINDING, "passed", tuple(_evidence(chart, shown, look))))


def _shows(chart: Chart, code: str, arguments: tuple[Any, ...]) -> tuple[CaseRun | None, CaseRun, Look]:
    """The first run that is wrong, on the engines that the patient names; the last run, and where it ran."""
    for look in chart.patient.looks:
        run = chart.run(code, arguments, look)
        if is_wrong(run):
            return run, run, look
    return None, run, look


def is_wrong(run: CaseRun) -> bool:
    """Whether an engine saw a kernel do wrong: numbers, memory, a fault of the machine code."""
    if run.end is not None or run.seen is None:
        return False
    if run.seen.problem:
        return run.seen.problem.fault or run.seen.problem.refused
    return run.values_wrong or bool(run.seen.faults) or run.seen.damaged or bool(run.modified)


def _why_not(run: CaseRun) -> str:
    if run.seen and run.seen.problem:
        return run.seen.problem.message.partition(". ")[0].rstrip(".")
    return run.end.error.message if run.end and run.end.error else "its process did not get that far"


def _refused(chart: Chart, why: str) -> Part:
    return _wrong(FINDING, diagnosis("finding-refused", part=chart.patient.part, returned="that", why=why))


def _evidence(chart: Chart, run: CaseRun, look: Look) -> list[str]:
    """What is wrong with the kernel as it was, and on which engine where that is not the interpreter."""
    details = case_result(run, chart.broken, full=True).details
    return [f"on {_engine(look)}:", *details] if look.simulate else [*details]


def _engine(look: Look) -> str:
    waves = f", each wave to its end before the next ({look.order})" if look.order else ""
    return f"the machine code of {look.simulate}{waves}"


def _target(chart: Chart, arch: str, size: int) -> Part:
    seen = _built(chart, chart.broken, arch, size)
    if seen is None:
        return _refused(chart, "nothing could be compiled for it")
    if not _is_bad(chart, seen):
        return _wrong(FINDING, diagnosis("breaks-nothing", part=chart.patient.part, where=_does_well(chart)))
    also = _built(chart, chart.solution, arch, size)
    if also is None or _is_bad(chart, also):
        return _wrong(FINDING, diagnosis("breaks-every-kernel", part=chart.patient.part))
    return Part(CaseResult(FINDING, "passed", (_what_is_bad(chart, seen),)))


def _does_well(chart: Chart) -> str:
    return "does not spill on what" if chart.patient.target.spills else "can be launched on what"


_become: dict[tuple[str, str, str, int], tuple[str, int] | None] = {}  # of this process


def _built(chart: Chart, code: str, arch: str, size: int) -> tuple[str, int] | None:
    key = chart.exercise.number, code, arch, size
    if _become.get(key) is None:  # what could not be said on a busy machine is asked again
        job = chart.job(code, chart.patient.target.make(size))
        _become[key] = client.built(job, arch, time_limit=_SECONDS, trusted=chart.is_ours(code))
    return _become[key]


def _is_bad(chart: Chart, seen: tuple[str, int]) -> bool:
    refused, spills = seen
    return bool(refused) or chart.patient.target.spills and spills > 0


def _what_is_bad(chart: Chart, seen: tuple[str, int]) -> str:
    refused, spills = seen
    return refused.rstrip(".") if refused else f"{spills} registers are spilled"


def _cause(patient: Patient, found: Found) -> Part:
    known = {cause.code: cause for cause in patient.causes}
    if not found.cause:
        return Part(_open(CAUSE))
    if found.cause not in known:
        listed = ", ".join(sorted(known))
        return _wrong(CAUSE, diagnosis("unknown-cause", got=found.cause, known=listed))
    if refuted := known[found.cause].refuted:
        return _wrong(CAUSE, diagnosis("another-cause", cause=found.cause, why=refuted))
    return Part(CaseResult(CAUSE, "passed"))


def _wrong(name: str, found: Diagnosis) -> Part:
    return Part(CaseResult(name, "failed"), found)


def _open(name: str) -> CaseResult:
    return CaseResult(name, "not-run")


# ---- which findings are allowed ------------------------------------------------------------------------------------


def _refusal(chart: Chart, arguments: tuple[Any, ...]) -> str:
    """Why the statement rules these arguments out, in a sentence without a full stop; "" where it does not."""
    if chart.patient.target:
        return _refused_target(chart, arguments)
    names = chart.exercise.arguments
    if len(arguments) != len(names):
        return f"the launcher takes {len(names)}: {', '.join(names)}"
    like = chart.patient.price(torch.Generator().manual_seed(0))
    for name, value, wanted in zip(names, arguments, like, strict=True):
        if why := _unlike(value, wanted, chart.patient.dtypes):
            return f"`{name}` {why}"
    return chart.patient.refuse(*arguments)


def _unlike(value: Any, wanted: Any, dtypes: tuple[torch.dtype, ...]) -> str:
    """How a value differs in kind from one that the statement describes."""
    if isinstance(wanted, torch.Tensor) != isinstance(value, torch.Tensor):
        return f"must be a {'tensor' if isinstance(wanted, torch.Tensor) else type(wanted).__name__}"
    if not isinstance(wanted, torch.Tensor):
        return "" if type(value) is type(wanted) else f"must be of type {type(wanted).__name__}"
    if value.dim() != wanted.dim():
        return f"has {value.dim()} dimensions, and the statement gives it {wanted.dim()}"
    if value.dtype != wanted.dtype and not {value.dtype, wanted.dtype} <= set(dtypes):
        names = (str(dtype).removeprefix("torch.") for dtype in (value.dtype, wanted.dtype))
        return "is {}, and the statement has {}".format(*names)
    if not value.numel():
        return "is empty: nothing can be wrong with nothing"
    return "holds NaN, which no kernel here has to bear" if value.isnan().any() else ""


def _refused_target(chart: Chart, arguments: tuple[Any, ...]) -> str:
    largest = chart.patient.target.largest
    if len(arguments) != 2 or type(arguments[0]) is not str or type(arguments[1]) is not int:
        return 'a pair is wanted, the name of an architecture and a size: ("gfx1100", 1000)'
    if arguments[0] not in hardware.LIMITS:
        return f"{arguments[0]!r} is none of {', '.join(hardware.LIMITS)}"
    return "" if 1 <= arguments[1] <= largest else f"the size must be from 1 to {largest:,}"


# ---- the repair ----------------------------------------------------------------------------------------------------


_right: dict[tuple[str, str, str], tuple[Report, list[Part]]] = {}  # repairs, by exercise, solution and code


def repair(chart: Chart, code: str, grade: Callable[[], Report]) -> tuple[Report | None, list[Part]]:
    """The report of `grade` on the cases and what comes after them; None for a kernel that is still as it was.

    A repair that was right stays right while its author goes on looking for the cause: it is not graded again.
    """
    written, before = (_repair(text, chart.patient.part) for text in (code, chart.broken))
    if written == before:
        return None, []
    key = chart.exercise.number, chart.solution, written
    if key in _right:
        return _right[key]
    report = grade()
    after = _repaired(chart, code) if report.passed else []
    if after and all(part.result.passed for part in after):
        _right[key] = report, after
    return report, after


def _repair(code: str, part: str) -> str:
    """The code without finding, cause and test, blind to line numbers and comments."""
    return "\n".join(ast.dump(node) for node in parsing.parse(code).body if not _is_of_the_finding(node, part))


def without_finding(chart: Chart, code: str) -> str:
    """The code with empty lines in place of finding, cause and test: what their numbers are is nobody's mistake."""
    body, lines = parsing.parse(code).body, code.split("\n")
    for node in body:
        own = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        alone = not any(other is not node and {other.lineno, other.end_lineno} & {*own} for other in body)
        if alone and _is_of_the_finding(node, chart.patient.part):
            lines[own.start - 1 : own.stop - 1] = [""] * len(own)
    return "\n".join(lines)


def _is_of_the_finding(node: ast.stmt, part: str) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name == part or node.name.startswith("test_")
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id == "cause" for target in targets)


def _repaired(chart: Chart, code: str) -> list[Part]:
    """What a repair that is right in every case must do besides: launch everywhere, pass the old test, be cheap."""
    return [*_targets(chart, code), *_out_of_step(chart, code), _old_test(chart, code), _price(chart, code)]


def _targets(chart: Chart, code: str) -> list[Part]:
    wanted, parts = chart.patient.target.must_do if chart.patient.target else (), []
    become = client.at_once(*(partial(_built, chart, code, *one) for one in wanted))
    for (arch, size), seen in zip(wanted, become):
        name = f"{arch}, {size:,}"
        if seen is None or _is_bad(chart, seen):
            why = _what_is_bad(chart, seen) if seen else "nothing of it could be compiled"
            parts.append(_wrong(name, diagnosis("still-bad-on-target", arch=arch, size=f"{size:,}", why=why)))
        else:
            parts.append(Part(CaseResult(name, "passed")))
    return parts


def _out_of_step(chart: Chart, code: str) -> list[Part]:
    """For a patient that only some engine shows: the first cases on that engine."""
    if not chart.patient.beside_the_interpreter:
        return []
    for case in chart.exercise.cases[:2]:
        arguments = case.make(torch.Generator().manual_seed(0))
        if _shows(chart, code, arguments)[0] is not None:
            tensor = next(iter(answer.loaded_and_stored(parsing.parse(code))), "memory")
            gpu = cards_of(ARCH).split(",")[0]
            return [_wrong(ORDER, diagnosis("wave-race", gpu=gpu, tensor=tensor))]
    return [Part(CaseResult(ORDER, "passed"))]


def old_test(broken: str) -> tuple[str, str]:
    """Name and code of the author's test."""
    node = next(n for n in parsing.parse(broken).body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))
    return node.name, ast.unparse(node)


def _old_test(chart: Chart, code: str) -> Part:
    name, test = old_test(chart.broken)
    if failed := client.author_test(chart.job(code, ()), name, test, time_limit=_SECONDS):
        return _wrong(TEST, diagnosis("old-test-fails", test=name, why=failed))
    return Part(CaseResult(TEST, "passed"))


def _price(chart: Chart, code: str) -> Part:
    ours, theirs = (_cost(chart, text) for text in (chart.solution, code))
    if ours is None or theirs is None:  # what the simulator cannot run is not held against an answer
        return Part(CaseResult(PRICE, "passed", ("not measured: the simulator could not run it",)))
    for what, name in (("bytes", "bytes"), ("instructions", "wave instructions")):
        most = int(chart.patient.factor * ours[what])
        if theirs[what] > most:
            about = {"got": f"{theirs[what]:,}", "most": f"{most:,}", "what": name}
            return _wrong(PRICE, diagnosis("too-expensive", **about))
    shown = f"{theirs['bytes']:,} bytes and {theirs['instructions']:,} wave instructions on {ARCH}"
    beside = f"ours: {ours['bytes']:,} and {ours['instructions']:,}; {chart.patient.factor:g} times that is allowed"
    return Part(CaseResult(PRICE, "passed", (shown, beside)))


_costs: dict[tuple[str, str], dict[str, int] | None] = {}  # of this process


def _cost(chart: Chart, code: str) -> dict[str, int] | None:
    key = chart.exercise.number, code
    if key not in _costs:
        arguments = chart.patient.price(torch.Generator().manual_seed(0))
        job, ours = chart.job(code, arguments), chart.is_ours(code)
        _costs[key] = client.cost(job, ARCH, time_limit=_SECONDS, trusted=ours)
    return _costs[key]


# ---- all together --------------------------------------------------------------------------------------------------


def together(chart: Chart, looked: tuple[Part, Part], report: Report | None, after: list[Part]) -> Report:
    """The report on all parts. What is wrong first is said; where nothing is wrong, what is missing."""
    results = {case.name: case for case in report.cases} if report else {}
    said = [part.diagnosis for part in looked] + [_of_repair(report)]
    found = next(filter(None, [*said, *(part.diagnosis for part in after)]), None)
    results |= {part.result.name: _with_why(part, found) for part in (*looked, *after)}
    known = chart.exercise.ticks
    more = [case for name, case in results.items() if name not in known]  # of other engines
    cases = (*(results.get(name, _open(name)) for name in known), *more)
    passed = all(case.passed for case in cases)
    begun = any(case.status != "not-run" for case in cases)
    if begun and not passed and found is None:
        found = diagnosis("unfinished", missing=_missing(chart, looked, report))
    status = "passed" if passed else "failed" if begun else "not-attempted"
    report = report or Report(chart.exercise.number, chart.exercise.title, status, ())
    return replace(report, status=status, cases=cases, diagnosis=found)


def _with_why(part: Part, said: Diagnosis | None) -> CaseResult:
    """The tick of a part; why it is missing stands under it where the report's diagnosis is about another part."""
    if part.diagnosis in (None, said):
        return part.result
    return replace(part.result, details=(*part.result.details, part.diagnosis.sentence))


def _of_repair(report: Report | None) -> Diagnosis | None:
    """The diagnosis of the cases; where it explains nothing, which of them the repair has not reached."""
    if report is None or report.diagnosis is None or report.diagnosis.code not in ("unknown", "partly-wrong"):
        return report.diagnosis if report else None
    failed = next(case.name for case in report.cases if case.status == "failed")
    return diagnosis("not-cured", case=failed, right=sum(case.passed for case in report.cases), all=len(report.cases))


def _missing(chart: Chart, looked: tuple[Part, Part], report: Report | None) -> str:
    names = {chart.patient.part: looked[0].result, "cause": looked[1].result}
    missing = [f"`{name}`" for name, result in names.items() if not result.passed]
    return " and ".join([*missing, *([] if report else ["the repair"])])
