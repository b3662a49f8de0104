"""Grade an answer: make the inputs, run the answer in a child, compare here, explain.

References, seeds, tolerances and verdicts stay in this process.  The child gets the code and the inputs.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import os
import re
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch

from course_lab.authoring import source
from course_lab.authoring.exercise import Case, Exercise, UnknownPick
from course_lab.authoring.far_rows import is_spread
from course_lab.authoring.patient import Look
from course_lab.check import (
    addresses,
    alike,
    answer,
    branches,
    client,
    counterfactual,
    halves,
    instruments,
    judged,
    parts,
    patients,
    repair,
    simulated,
    steps,
    unread,
)
from course_lab.check.budget import Budget
from course_lab.check.child import CASE_MARK
from course_lab.check.client import Attempt
from course_lab.check.diagnosis import (
    Facts,
    diagnose,
    from_end,
    hard_coded,
    output_name,
    own_line,
    race_diagnosis,
    where,
)
from course_lab.check.idle import idle_remark
from course_lab.check.own_kernels import right_answers
from course_lab.check.protocol import Job, clean
from course_lab.check.report import Card, CaseResult, ExerciseFailed, Report, case_result, excerpt, shorten, shown_error
from course_lab.check.sentences import (
    Diagnosis,
    diagnosis,
    plain_exception,
    with_place,
    without_guess,
    without_question,
)
from course_lab.check.usual import as_usual
from course_lab.check.verdict import CaseRun, fresh, is_plain, total_bytes
from gfxlab import engines

_MAX_CHILDREN = 4  # after so many crashes the cases that are left are not tried
_GPU_SECONDS = 60.0  # a fresh process must wake the device and compile
_CARD_ARCH = "gfx942"
_LARGE_SECONDS = 4.0
_SEARCH_SECONDS = 1.25  # of processor time, for the like of a mistake
_PLACING = 2.0  # times as long, for its place
_ELSEWHERE = {"mask-too-wide", "out-of-bounds", "wrong-stride", "between-rows", "partly-written"}  # it is an access
_PLACED = alike.VAGUE | _ELSEWHERE | {"shifted", "swapped-strides"}
_Mistakes = Callable[[], list[tuple[str, str]]]
_Tell = Callable[[str], object]


def strict() -> bool:
    """True when COURSE_STRICT=1: a wrong or missing answer raises, and nothing shown varies between machines."""
    return os.environ.get("COURSE_STRICT", "") not in ("", "0")


@as_usual()
def grade(
    exercise: str | Exercise,
    code: str,
    *,
    strict: bool | None = None,
    stub: str | None = None,
    solution: str | None = None,
    mistakes: _Mistakes = list,
    card: bool = False,
    tell: Callable[[str], object] = lambda stage: None,
    seed: str = "",
    on_gpu: bool = True,
    own: bool = True,
    search: bool = True,
) -> Report:
    """Grade the text of an answer cell, whatever PyTorch and numpy were told to do in this process.

    Args:
        exercise: its number ("2.1"), or the exercise itself.
        code: the cell, with or without its first line `%%exercise 2.1` (with it, line numbers are those of the cell).
        strict: raise `ExerciseFailed` unless the answer is right (None: do not).
        stub: the text that counts as "not attempted"; None takes the lesson's own for an exercise given by number.
        solution: the code that a right answer's figures are compared with; None takes the lesson's own for an exercise
            given by number.
        mistakes: gives pairs of a diagnosis and the code of a wrong answer, for an answer whose mistake no rule
            recognises; an exercise given by number has those of the lesson's mutants.
        card: add to the report of a right answer how well it does: bytes moved, the machine code, a picture.
        tell: hears in a few words what the check is at ("case 3 of 7").
        seed: draws other numbers for the cases than a learner has seen; the same ones for the same seed.
        on_gpu: once more on this machine's GPU, where there is one.
        own: an exercise that builds on others takes the right answers in this machine's journal; else the solutions.
        search: where no rule is certain, look for seconds for the one change that makes the answer right.
    """
    if isinstance(exercise, str):
        from course_lab.authoring import lessons

        stub = lessons.stub(exercise) if stub is None else stub
        solution = lessons.solution(exercise) if solution is None else solution
        mistakes = partial(_mistakes, exercise)
        exercise = lessons.exercise(exercise)
    try:
        exercise = exercise.chosen(source.as_python(code) if source.bare(code) else stub or "")
        exercise = replace(exercise, kernels=right_answers(dict(exercise.picks), own))
    except UnknownPick as problem:
        report = _failed(exercise, diagnosis("unknown-pick", sentence=problem))
        if strict:
            raise ExerciseFailed(report) from None
        return report
    given = Given(stub, solution, mistakes, seed, on_gpu, search)
    report = _grade(exercise, source.as_python(code), given, tell)
    if card and report.passed and exercise.driver is None:
        runs = make_runs(exercise, seed)
        job = make_job(exercise, source.as_python(code), runs)
        tell("right; how well does it do?")
        report = replace(report, card=instruments.look(job, exercise.picture, runs, solution, _CARD_ARCH))
    if strict and not report.passed:
        raise ExerciseFailed(report)
    return report


def _mistakes(number: str) -> list[tuple[str, str]]:
    """Diagnosis and code of each mutant of an exercise; none where a lesson has no usable ones."""
    from course_lab.authoring import lessons
    from course_lab.authoring.edits import MutantError, apply

    with contextlib.suppress(lessons.LessonError, MutantError):
        solution = lessons.solution(number)
        return [(mutant.diagnosis, apply(mutant, solution)) for mutant in lessons.mutants(number)]
    return []


@dataclass(frozen=True)
class Given:
    """What the author of an exercise wrote, and how it is graded, as for `grade`."""

    stub: str | None
    solution: str | None
    mistakes: _Mistakes
    seed: str = ""
    on_gpu: bool = True
    search: bool = True


def _grade(exercise: Exercise, code: str, given: Given, tell: _Tell) -> Report:
    untouched = given.stub is not None and source.bare(code) == source.bare(given.stub)
    if not source.bare(code) or (untouched and (exercise.kind == "write" or exercise.patient)):
        return Report(exercise.number, exercise.title, "not-attempted", _not_run(exercise))
    if exercise.patient:
        return _grade_patient(exercise, code, given, tell)
    report = _grade_attempt(exercise, code, given, tell)
    # a repair begins with the report on the broken code; seeing it is no attempt
    return replace(report, status="not-attempted") if untouched else report


def _grade_patient(exercise: Exercise, code: str, given: Given, tell: _Tell) -> Report:
    """A finding, a cause, a repair: each counts by itself, and the repair is only tried when there is one."""
    if isinstance(answer.parse(code), answer.SyntaxProblem):
        return _grade_attempt(exercise, code, given, tell)
    from course_lab.authoring import lessons

    broken = lessons.stub(exercise.number) if given.stub is None else given.stub
    whole = chart(exercise, broken, lessons.solution(exercise.number) if given.solution is None else given.solution)
    tell("your finding")
    looked = patients.examine(whole, code)
    bare, given = patients.without_finding(whole, code), replace(given, solution=whole.kernel_alone)
    report, after = patients.repair(whole, code, lambda: _grade_attempt(exercise, bare, given, tell))
    return patients.together(whole, looked, report, after)


def chart(exercise: Exercise, broken: str, solution: str) -> patients.Chart:
    """What `patients` needs to know of an exercise; broken, solution: code of whole cells."""
    broken, solution = f"\n{broken}", f"\n{solution}"  # lines as in the cell, below its magic

    def job(code: str, args: tuple[Any, ...]) -> Job:
        return Job(exercise.number, code, exercise.entry, (args,), inplace=exercise.inplace)

    def run(code: str, args: tuple[Any, ...], look: Look) -> CaseRun:
        case = replace(exercise.cases[0], name=f"{exercise.number}, a finding", make=lambda generator: args)
        one = _make_run(exercise, case)
        one = replace(one, engine="simulator") if look.simulate else one
        task, ours = replace(job(code, args), **vars(look)), code in (broken, solution)
        _fill([one], client.run_cases(task, time_limit=exercise.time_limit, trusted=ours))
        return one

    return patients.Chart(exercise, broken, solution, job, run)


def _grade_attempt(exercise: Exercise, code: str, given: Given, tell: _Tell) -> Report:
    tree = answer.parse(code)
    if isinstance(tree, answer.SyntaxProblem):
        found = diagnosis("syntax-error", line=tree.line, message=tree.message)
        return _failed(exercise, found, excerpt=excerpt(code, tree.line, tree.column))

    runs = make_runs(exercise, given.seed)
    stopped = _run_on_interpreter(exercise, code, tree, runs, tell, given.seed)
    if stopped is not None:
        return stopped
    runs += (larger := _far_larger(exercise, code, tree, runs, given.seed))
    facts = Facts(exercise, tree, runs, lambda run: _probe(exercise, code, run))
    found = diagnose(facts) if facts.failing else _hidden(exercise, code, tree, runs)
    if found and facts.failing and not larger:  # where all else is right, a search in so many elements tells no more
        found = _explained(facts, found, code, given, tell)
    runs += _run_on_gpu(exercise, code, runs) if given.on_gpu and exercise.driver is None else []
    if found is None and any(not run.passed for run in runs):
        found = diagnosis("gpu-differs", gpu=engines.gpu().name)
    opinion = simulated.Opinion()
    if found is None:
        tell("on the simulated MI300X")
        opinion = simulated.second_opinion(make_job(exercise, code, runs), tree, runs)
    report = _report(exercise, code, runs + [*opinion.runs], found or opinion.diagnosis)
    if report.diagnosis:
        return replace(report, note=opinion.note)
    remark = idle_remark(runs, partial(_idle_in_solution, exercise, given.solution))
    return replace(report, note=opinion.note, remark=remark, engines=_engines(runs, opinion, given.on_gpu))


def _idle_in_solution(exercise: Exercise, solution: str | None, run: CaseRun) -> int:
    """How many programs of the solution's largest launch in a case store nothing; 0 where that is not known."""
    if solution is None:
        return 0
    again = _again(exercise, solution, run, trusted=True)
    return max(((one.programs, one.idle) for one in again.own_launches), default=(0, 0))[1]


def _engines(runs: list[CaseRun], opinion: simulated.Opinion, on_gpu: bool) -> tuple[str, ...]:
    """The engines on which a right answer's kernels ran."""
    if not any(run.own_launches for run in runs):
        return ()
    on_gpu = on_gpu and engines.device() != "cpu" and not any(run.driven for run in runs)
    gpu = engines.gpu() if on_gpu else None
    return tuple(filter(None, ("interpreter", opinion.engine, gpu.name if gpu else "")))


def _explained(facts: Facts, found: Diagnosis, code: str, given: Given, tell: _Tell) -> Diagnosis:
    """`found`, or where no rule is certain what is behind it: a known mistake, a machine's, a size, its place."""
    if found.code not in counterfactual.DOUBTFUL or _asks_no_program(facts, found):
        return found
    if found.code == "mask-too-wide" and (about := addresses.asked_of_another(facts.tree, facts.fault.line)):
        return with_place(without_guess(without_question(found)), about)
    clue = _clue(facts, found, given)
    if clue and found.code not in _ELSEWHERE:
        return clue
    plain = [run for run in facts.wrong if is_plain(run)]
    if found.code == "partly-written" and (about := branches.passed_by(facts.tree, plain)):
        return with_place(found, about)
    with client.meanwhile(partial(_place, facts, found, code, given)) as (place,):  # beside the comparison
        if clue:  # read from the text alone: what was tried is surer
            return _with_place(facts, found, place.result()) if place.result() else clue
        if facts.wrong and (mistake := _compared(facts, found, code, given, tell)):
            return mistake if "`" in mistake.sentence or not place.result() else with_place(mistake, place.result())
        if size := hard_coded(facts, given.stub):
            return size
        tell("trying changes in one place")
        race = _race_behind(facts, found)
        known = race or (place.done() and place.result())
        step = "" if known else _astray(facts, found, code, given)  # rather than wait
        if place.result():
            return _with_place(facts, found, place.result())
    if race:
        return race
    if step:
        found = without_question(found)
        return with_place(without_guess(found) if step.startswith(addresses.IN_AN_ADDRESS) else found, step, "astray")
    if found.code == "mask-too-wide" and _right_offsets(facts, given):
        return with_place(
            without_question(found), "The offsets there are right: look at the bounds of the mask, and at the grid."
        )
    if found.code not in alike.VAGUE:
        return found
    if part := _wrong_part(facts):
        found = diagnosis("partly-wrong", part=part) if found.code == "unknown" else with_place(found, part)
    return Diagnosis(found.code, f"{found.sentence} {where(facts)}".rstrip())


def _with_place(facts: Facts, found: Diagnosis, place: str) -> Diagnosis:
    """What is known by now is not asked; where the access that went astray is right, only a wrong bound is guessed."""
    found, fault = without_question(found), facts.fault
    if fault is None or re.search(rf"in line {fault.line}\b", place):
        return with_place(found, place)
    return with_place(without_guess(found, but_one="<" in place), place)


def _asks_no_program(facts: Facts, found: Diagnosis) -> bool:
    """Whether programs do the same because none asks which one it is: nothing more is to be found out."""
    return found.code == "program-id-unused" and not answer.program_axes(facts.tree)


def _clue(facts: Facts, found: Diagnosis, given: Given) -> Diagnosis | None:
    """What stands in the wrong place in an address, or what a mask does not look at, read from the text alone."""
    if given.solution is None:
        return None
    if found.code == "mask-too-wide" and (about := addresses.unasked(facts.tree, given.solution, facts.fault.line)):
        return with_place(without_question(found), about)
    clue = addresses.clue(facts.tree, given.solution, _gone_astray(facts))
    if clue is None:
        return None
    if found.code in alike.VAGUE:
        return Diagnosis(clue.code, clue.sentence)
    return with_place(without_guess(without_question(found)), clue.sentence)


def _race_behind(facts: Facts, found: Diagnosis) -> Diagnosis | None:
    """Where nothing else explains the numbers: two programs of one launch, of which one stores what the other takes."""
    races = [launch.race for run in facts.wrong for launch in run.own_launches if launch.race]
    return race_diagnosis(races[0]) if races and found.code == "unknown" else None


def _right_offsets(facts: Facts, given: Given) -> bool:
    astray = facts.fault
    known = given.solution is not None and astray is not None
    return known and addresses.has_right_offsets(facts.tree, given.solution, astray.line)


def _astray(facts: Facts, found: Diagnosis, code: str, given: Given) -> str:
    """The step that leads away, the grid, or a product in an address; "" where all that is said is known already."""
    if given.solution is None or not given.search:
        return ""
    both, fault = steps.Beside(make_job(facts.exercise, code, facts.runs), given.solution, facts.runs), facts.fault
    if other := both.other_argument():
        return other
    if found.code == "partly-written" and (few := both.too_few_programs()):
        return few
    follow = facts.wrong and found.code != "mask-too-wide"  # behind a stray access others are loaded, too
    astray = both.astray() if follow else ""
    if found.code == "half-accumulation":  # nothing that is nearly right comes from elsewhere
        return "" if steps.LOADED in astray else astray
    known = fault is not None and re.search(rf"in line {fault.line}\b", astray) is not None
    if astray and not known:
        return astray
    return addresses.odd_products(facts.tree, given.solution, _gone_astray(facts)) or astray


def _gone_astray(facts: Facts) -> set[str]:
    """The tensor that an access left, and those in which its place was looked up; none where nothing left any."""
    return addresses.with_sources(facts.tree, [facts.fault.tensor]) if facts.fault else set()


def _wrong_part(facts: Facts) -> str:
    plain = [run for run in facts.wrong if is_plain(run)]
    if numbers := parts.wrong_numbers(plain, facts.exercise.arguments):
        return numbers
    run = next(iter(plain), None)
    return parts.wrong_part(run, [output_name(run, i) for i in range(len(run.expected))]) if run else ""


def _place(facts: Facts, found: Diagnosis, code: str, given: Given) -> str:
    """Where one change makes it right, in a sentence; "" where that is not asked, or not found."""
    if found.code not in _PLACED or not given.search:
        return ""
    accesses = _elsewhere(facts) if found.code in _ELSEWHERE else set()
    job = make_job(facts.exercise, code, facts.runs)
    rounded = found.code == "half-accumulation"
    return repair.place(job, given.solution, facts.runs, _PLACING * _SEARCH_SECONDS, accesses, rounded=rounded)


def _elsewhere(facts: Facts) -> set[int]:
    """The line of the access that went astray; where none did, those of the stores to what was not written whole."""
    if facts.fault:
        return {facts.fault.line}
    for run in facts.wrong:
        for comparison, owners in zip(run.comparisons, run.seen.writers):
            if owners is not None and bool(((owners.numpy() < 0) & comparison.wrong).any()):
                return {run.seen.events[n].line for n in owners.unique().tolist() if n >= 0}
    return set()


def _compared(facts: Facts, found: Diagnosis, code: str, given: Given, tell: _Tell) -> Diagnosis | None:
    """The author's mistake, or the machine's, that gives the answer's numbers."""
    job, budget = make_job(facts.exercise, code, facts.runs), Budget(_SEARCH_SECONDS)
    if found.code in alike.VAGUE:
        tell("comparing with known mistakes")
        if known := alike.recognise(facts.exercise, job, facts.runs, given.mistakes(), budget):
            return known
    if given.solution is None:
        return None
    if found.code in alike.VAGUE and (gap := _gap(facts, job, given.solution)):
        return gap
    tell("comparing with every mistake in one place")
    question = counterfactual.Question(job, given.solution, facts.runs, facts.exercise.arguments)
    return counterfactual.explain(found, question, budget)


def _gap(facts: Facts, job: Job, solution: str) -> Diagnosis | None:
    """What a kernel does not use or read, and what is odd in the address where it should."""
    if lost := unread.unused(facts.tree, solution):
        return lost
    if (part := unread.left_out(job, solution, facts.runs)) is None:
        return None
    found, tensor = part
    odd = addresses.odd_products(facts.tree, solution, addresses.with_sources(facts.tree, [tensor]))
    return with_place(found, odd) if odd else found


def _not_run(exercise: Exercise) -> tuple[CaseResult, ...]:
    return tuple(CaseResult(name, "not-run") for name in exercise.ticks)


def _failed(exercise: Exercise, found: Diagnosis, **shown: Any) -> Report:
    return Report(exercise.number, exercise.title, "failed", _not_run(exercise), found, **shown)


def _report(exercise: Exercise, code: str, runs: list[CaseRun], found: Diagnosis | None) -> Report:
    failing = [run for run in runs if run.reached and not run.passed]
    shown = [excerpt(code, own_line(run.end.stack, exercise.number)) for run in failing if run.end]
    shown += [shown_error(code, run.seen.problem) for run in failing if run.seen and run.seen.problem]
    return Report(
        exercise.number,
        exercise.title,
        "failed" if found else "passed",
        tuple(case_result(run, code, full=run in failing[:1]) for run in runs),
        found,
        shown[0] if shown else (),
        shorten((failing or runs)[0].printed),
    )


# ---- the cases -----------------------------------------------------------------------------------------------------


def make_runs(exercise: Exercise, seed: str = "") -> list[CaseRun]:
    """Inputs and expected outputs of every case, the same at every call with the same seed."""
    if not seed:
        return [_make_run(exercise, call) for case in exercise.cases for call in case.calls()]
    return [replace(run) for run in _drawn(exercise, seed)]


@lru_cache(maxsize=128)
def _drawn(exercise: Exercise, seed: str) -> tuple[CaseRun, ...]:
    """The references of a whole class, computed once; nobody fills these runs in."""
    return tuple(_make_run(exercise, call, seed) for case in exercise.cases for call in case.calls())


def _make_run(exercise: Exercise, case: Case, seed: str = "") -> CaseRun:
    generator = torch.Generator().manual_seed(_number(f"{exercise.number}/{case.name}", seed))
    made = tuple(case.make(generator))
    expects, args = made[: case.hidden], made[case.hidden :]
    copies = fresh(made)
    result = exercise.reference(*copies)
    outputs = () if result is None else result if isinstance(result, tuple) else (result,)
    outputs += tuple(copies[position] for position in exercise.inplace)
    floating = next((a.dtype for a in args if isinstance(a, torch.Tensor) and a.dtype.is_floating_point), torch.float32)
    dtypes = tuple(floating if out.dtype == torch.float64 else out.dtype for out in outputs)
    if exercise.exact is not None:
        outputs = exercise.exact(*fresh(made))
    limits = {"torch_may_finish": exercise.torch_may_finish, "max_launches": exercise.max_launches}
    limits |= {"contiguous": exercise.contiguous}
    limits |= {"no_idle": exercise.no_idle, "demand": exercise.demand, "driven": exercise.driver is not None}
    return CaseRun(case, args, outputs, dtypes, inplace=exercise.inplace, expects=expects, **limits)


def _number(name: str, seed: str) -> int:
    """The seed of one case; who knows that of another case, or an output, cannot tell it."""
    if not seed:
        return zlib.crc32(name.encode())
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:7], "little")


def make_job(exercise: Exercise, code: str, runs: list[CaseRun], **how: Any) -> Job:
    """What a child shall do with an answer; `how`: fields of `Job`."""
    cases = tuple(run.args for run in runs)
    if exercise.driver is not None:
        how |= {
            "driver": exercise.driver.__name__,
            "driver_source": inspect.getsource(inspect.getmodule(exercise.driver)),
        }
    if exercise.picks:
        how["kernels"] = exercise.kernels or right_answers(dict(exercise.picks), own=False)
    how["imports"] = exercise.imports
    return Job(exercise.number, code, exercise.entry, cases, inplace=exercise.inplace, **how)


def _run_on_interpreter(
    exercise: Exercise, code: str, tree: ast.Module, runs: list[CaseRun], tell: _Tell, seed: str = ""
) -> Report | None:
    """Fill in what the children saw. One that dies in a case is replaced by another for the cases after it.

    Returns a report when the answer cannot even be defined.
    """
    for _ in range(_MAX_CHILDREN):
        left = judged.in_any_order(exercise, _left(runs), seed)
        if not left:
            break
        shares = halves.shares(exercise, tree, left)
        count = _Count(tell, sum(run.reached for run in runs), len(runs), [0] * len(shares))
        count.say()
        jobs = [make_job(exercise, code, share) for share in shares]
        attempts = client.at_once(
            *(
                partial(client.run_cases, job, time_limit=exercise.time_limit, on_part=partial(count.heard, child))
                for child, job in enumerate(jobs)
            )
        )
        if undefined := next((one for one in attempts if not one.defines_entry), None):
            return _undefined(exercise, code, undefined)
        for job, share, attempt in zip(jobs, shares, attempts):
            _fill(share, attempt)
            judged.judge(exercise, job, share)
            halves.note(exercise, share)
        if any(attempt.outcome.status == "timeout" for attempt in attempts):
            break
    return None


def _left(runs: list[CaseRun]) -> list[CaseRun]:
    """The cases to be tried now: what takes seconds once all others are right."""
    left = [run for run in runs if not run.reached]
    soon = [run for run in left if not run.case.last]
    return soon if soon or not all(run.passed for run in runs if run.reached) else left


@dataclass
class _Count:
    """Says which case is running. done: before these.  parts: the cases that each child has done."""

    tell: _Tell
    done: int
    total: int
    parts: list[int]

    def heard(self, child: int, parts: int) -> None:
        """Of a child's parts the first is the definition of the answer, and each of the others a case that is done."""
        self.parts[child] = max(parts - 1, 0)
        self.say()

    def say(self) -> None:
        self.tell(f"case {min(self.done + sum(self.parts) + 1, self.total)} of {self.total}")


def _fill(runs: list[CaseRun], attempt: Attempt) -> None:
    printed = _printed_by_case(attempt.outcome.output)
    for i, run in enumerate(runs):
        run.printed = printed.get(-1, "") + printed.get(i, "")
        if i < len(attempt.seen):
            run.seen = attempt.seen[i]
        elif i == len(attempt.seen) and attempt.outcome.status != "ok":
            run.end = attempt.outcome


def _printed_by_case(output: str) -> dict[int, str]:
    """Output split at the child's marks; -1 is what was printed while the cell itself ran."""
    before, *rest = re.split(rf"{CASE_MARK}([0-9]{{1,6}})\n", output)
    cases = {int(number): clean(text) for number, text in zip(rest[::2], rest[1::2], strict=True)}
    return {-1: clean(before)} | cases


def _undefined(exercise: Exercise, code: str, attempt: Attempt) -> Report:
    """The report on a cell that died, raised, or does not define the entry."""
    outcome, definition = attempt.outcome, attempt.definition
    printed = shorten(_printed_by_case(outcome.output)[-1])
    if definition is None:
        line = own_line(outcome.stack, exercise.number)
        return _failed(exercise, from_end(outcome, exercise), excerpt=excerpt(code, line), printed=printed)
    if definition.problem:
        found = diagnosis("exception", plain=plain_exception(definition.problem))
        return _failed(exercise, found, excerpt=shown_error(code, definition.problem), printed=printed)
    names = [name for name in definition.defined if name not in answer.GIVEN]
    found = diagnosis("no-entry", entry=exercise.entry, defined=", ".join(names) or "nothing that can be called")
    return _failed(exercise, found, printed=printed)


def _probe(exercise: Exercise, code: str, run: CaseRun) -> tuple[CaseRun, CaseRun]:
    """One case run again, as it was and with masked lanes left 0."""
    as_it_was, left_0 = client.at_once(
        *(partial(_again, exercise, code, run, poison=poison) for poison in (True, False))
    )
    return as_it_was, left_0


def _again(exercise: Exercise, code: str, run: CaseRun, *, trusted: bool = False, **how: Any) -> CaseRun:
    """A case run once more; `how`: fields of `Job`."""
    again = replace(run, seen=None, end=None)
    job = make_job(exercise, code, [again], **how)
    _fill([again], client.run_cases(job, time_limit=exercise.time_limit, trusted=trusted))
    return again


def _hidden(exercise: Exercise, code: str, tree: ast.Module, runs: list[CaseRun]) -> Diagnosis | None:
    """What right numbers may hide: values that nobody gave, the order of programs and of lanes, a tuner's runs."""
    return (
        _passed_over(exercise, code, runs)
        or _luck(exercise, code, runs)
        or _lanes(tree, runs)
        or _tuned(exercise, code, tree, runs)
    )


def _passed_over(exercise: Exercise, code: str, runs: list[CaseRun]) -> Diagnosis | None:
    """A maximum passes over NaN: where masked lanes were left without a value, a case again with infinities in them.

    If that is wrong, it takes the place of the run that was right.
    """
    lines = {i: launch.unfilled for i, run in enumerate(runs) for launch in run.own_launches if launch.unfilled}
    if not lines:
        return None
    smallest = _smallest(runs, lines)
    again = _again(exercise, code, runs[smallest], poison="infinities")
    if not again.values_wrong:
        return None
    runs[smallest] = again
    return diagnosis("missing-other", line=lines[smallest][0])


def _luck(exercise: Exercise, code: str, runs: list[CaseRun]) -> Diagnosis | None:
    """Where two programs touch one element, a case again with its programs in another order, and all at once.

    A run that is wrong is added.
    """
    races = {i: launch.race for i, run in enumerate(runs) for launch in run.own_launches if launch.race}
    if not races:
        return None
    smallest = _smallest(runs, races)
    for words, how in (
        ("reversed", {"order": "reversed"}),
        ("shuffled", {"order": "shuffled"}),
        ("at once", {"at_once": races[smallest].tensor}),
    ):
        if _goes_wrong(exercise, code, runs, smallest, f"programs {words}", **how):
            return race_diagnosis(races[smallest])
    return None


def _lanes(tree: ast.Module, runs: list[CaseRun]) -> Diagnosis | None:
    """Where lanes of one program store different values to one element, and no barrier stands between any."""
    races = [launch.lanes for run in runs for launch in run.own_launches if launch.lanes]
    return race_diagnosis(races[0]) if races and not answer.names(tree, "debug_barrier") else None


def _tuned(exercise: Exercise, code: str, tree: ast.Module, runs: list[CaseRun]) -> Diagnosis | None:
    """Where a kernel is tuned, a case again in which each configuration runs once, as a GPU would measure it."""
    launching = [i for i, run in enumerate(runs) if run.own_launches]
    if not launching or not answer.names(tree, "autotune"):
        return None
    smallest = _smallest(runs, launching)
    return diagnosis("tuned-in-place") if _goes_wrong(exercise, code, runs, smallest, "tuned", tuned=True) else None


def _smallest(runs: list[CaseRun], among: Collection[int]) -> int:
    return min(among, key=lambda i: sum(a.numel() for a in runs[i].args if isinstance(a, torch.Tensor)))


def _goes_wrong(exercise: Exercise, code: str, runs: list[CaseRun], number: int, words: str, **how: Any) -> bool:
    """Whether a case has wrong values under other circumstances; it is added to the runs then."""
    case = replace(runs[number].case, name=f"{runs[number].case.name}, {words}")
    again = _again(exercise, code, replace(runs[number], case=case), **how)
    if again.values_wrong:
        runs.append(again)
    return again.values_wrong


def _far_larger(exercise: Exercise, code: str, tree: ast.Module, runs: list[CaseRun], seed: str) -> list[CaseRun]:
    """The exercise's large case, if that goes wrong; tried where programs walk, or no more run for more elements.

    Such an answer may have one block for everything, or turns for so many elements and no more.
    """
    if exercise.large is None or not all(run.passed for run in runs):
        return []
    by_size = sorted((run for run in runs if run.own_launches), key=total_bytes)
    programs = [max(launch.programs for launch in run.own_launches) for run in by_size]
    if not programs or (programs[-1] > programs[0] and not answer.has_loop(tree)):
        return []
    large = _make_run(exercise, exercise.large, seed)
    _fill([large], client.run_cases(make_job(exercise, code, [large]), time_limit=_LARGE_SECONDS))
    return [large] if large.seen and not large.passed else []  # short turns through so much take long, and are right


# ---- the other engines ---------------------------------------------------------------------------------------------


def _run_on_gpu(exercise: Exercise, code: str, runs: list[CaseRun]) -> list[CaseRun]:
    """Where there is a GPU, the cases that the interpreter passed once more, on it; only those that differ there."""
    gpu = engines.gpu() if engines.device() != "cpu" else None
    again = [
        replace(run, seen=None, engine="gpu", case=replace(run.case, name=f"{run.case.name}, on {gpu.name}"))
        for run in runs
        if gpu and run.passed and not any(isinstance(a, torch.Tensor) and is_spread(a) for a in run.args)
    ]
    if not again:
        return []
    job = make_job(exercise, code, again, device=engines.device())
    _fill(again, client.run_cases(job, time_limit=_GPU_SECONDS, memory_limit=None))
    return [run for run in again if run.reached and not run.passed]


def amd_card(exercise: Exercise, code: str, arch: str = _CARD_ARCH) -> Card | None:
    """The AMD card of the answer's first kernel, which need not be right; None when there is no kernel to compile."""
    shown = client.first_launch(make_job(exercise, code, make_runs(exercise)[:1]), arch)
    return Card(**shown) if shown else None
