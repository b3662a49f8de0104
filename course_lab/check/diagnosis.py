"""From symptoms to the likely mistake: a code and a sentence that says where to look, and never what to write.

`RULES` are tried in order, on the failing cases in order; the first that fits is reported.  Order matters: what surely
explains everything else (the code did not run) comes first, what merely describes the numbers comes last.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from course_lab.authoring.exercise import AGAIN, Exercise
from course_lab.authoring.far_rows import is_far
from course_lab.check import answer
from course_lab.check.protocol import FaultSeen, LaunchSeen, Outside, RaceSeen
from course_lab.check.sentences import (
    ARGUMENT_UNTOUCHED,
    LANES,
    MASK_TOO_WIDE,
    ONLY_AGAIN,
    PARTLY_WRITTEN,
    WRONG_STRIDE,
    Diagnosis,
    diagnosis,
    plain_exception,
)
from course_lab.check.verdict import CaseRun, Comparison, close, compare, fresh, numbers, total_bytes
from gfxlab.programs import format_program


@dataclass
class Facts:
    """All that the rules look at.

    probe: runs a failing case again; returns (the same again, masked lanes left 0), each a CaseRun.
    """

    exercise: Exercise
    tree: ast.Module
    runs: list[CaseRun]
    probe: Callable[[CaseRun], tuple[CaseRun, CaseRun]]

    @cached_property
    def failing(self) -> list[CaseRun]:
        return [run for run in self.runs if run.reached and not run.passed]

    @cached_property
    def telling(self) -> list[CaseRun]:
        """Failing cases, without those whose offsets need 64 bits where others fail too: there all goes astray."""
        near = [run for run in self.failing if not _is_far(run)]
        return near or self.failing

    @cached_property
    def wrong(self) -> list[CaseRun]:
        """Failing cases whose outputs have the right form and the wrong numbers."""
        return [run for run in self.failing if run.values_wrong]

    @cached_property
    def probed(self) -> tuple[CaseRun, CaseRun]:
        """The first wrong case run again."""
        return self.probe(self.wrong[0])

    @cached_property
    def fault(self) -> FaultSeen | None:
        """The access that went astray, a store before a load."""
        seen = [fault for run in self.telling if run.seen for fault in run.seen.faults]
        return next((fault for fault in seen if fault.kind != "load"), seen[0] if seen else None)

    def argument(self, position: int) -> str:
        names = self.exercise.arguments
        return names[position] if position < len(names) else f"number {position + 1}"


COMPLAINT = "Finding"  # the exception by which an exercise's driver complains
_MOST_WORDS = 300  # characters of an error's own
_FEWEST = 3  # numbers that make a factor believable
_MANY = 4  # cases that pass, for the only one that fails to say something
_MANY_NUMBERS = 1 << 16  # among which different ones are sought
_LEAST_SIZE = 8  # smaller ones are sizes by chance
_MOST_OFFSETS = 1 << 24  # exchanged strides lead as far as the longer side squared


def diagnose(facts: Facts) -> Diagnosis:
    """The first rule that fits."""
    for rule in RULES:
        if found := rule(facts):
            return found
    return diagnosis("unknown")


def own_line(stack: tuple[tuple[str, int, str], ...], number: str) -> int | None:
    """The innermost line of the answer itself on a stack."""
    return next((line for name, line, _ in stack if name == answer.filename(number)), None)


# ---- the code did not get through ----------------------------------------------------------------------------------


def died(facts: Facts) -> Diagnosis | None:
    """A time limit only where no case before it failed: on a busy machine it may be passed by luck."""
    for run in facts.failing:
        if run.end is not None and (run.end.status != "timeout" or run is facts.failing[0]):
            return _end_of(run, facts)
    return None


def out_of_time(facts: Facts) -> Diagnosis | None:
    """A time limit after cases that failed for no reason that can be named."""
    return next((_end_of(run, facts) for run in facts.failing if run.end is not None), None)


def _end_of(run: CaseRun, facts: Facts) -> Diagnosis:
    return from_end(run.end, facts.exercise, loops=answer.has_loop(facts.tree))


def from_end(end, exercise: Exercise, *, loops: bool = True) -> Diagnosis:
    """The diagnosis for a child that died; loops: whether the answer has any."""
    line = own_line(end.stack, exercise.number)
    where = f", in line {line}" if line else ""
    if end.status == "timeout":
        return diagnosis("timeout" if loops else "too-slow", limit=exercise.time_limit, where=where)
    if end.status == "memory":
        return diagnosis("memory", where=where)
    return diagnosis("crash", where=where, message=(end.error.message or end.error.type)[:_MOST_WORDS])


def raised(facts: Facts) -> Diagnosis | None:
    for run in facts.failing:
        if run.seen and run.seen.problem:
            code, colon, sentence = run.seen.problem.message.partition(": ")
            if run.driven and run.seen.problem.type == COMPLAINT and colon:
                return Diagnosis(code, sentence)
            first = answer.taken_first(facts.tree)
            if first is not None and first.lineno == run.seen.problem.line:  # before Triton 3.9 it does not get through
                return _parentheses(first)
            return diagnosis("exception", plain=plain_exception(run.seen.problem))
    return None


def no_kernel(facts: Facts) -> Diagnosis | None:
    for run in facts.failing:
        if run.seen and run.needs_kernel and not run.own_launches:
            defined = answer.kernels(facts.tree)
            started = {launch.name for other in facts.runs for launch in other.own_launches}
            never = [name for name in defined if name not in started] if started else defined[:1]
            if never:
                return diagnosis("not-launched", kernel=never[0])
            return diagnosis("not-always-launched" if defined else "no-kernel")
    return None


def torch_result(facts: Facts) -> Diagnosis | None:
    if any(run.inplace for run in facts.wrong):  # an argument that needed no change is right by itself
        return None
    if any(run.values_right and run.made_by_torch for run in facts.failing):
        return diagnosis("torch-result")
    return None


def torch_before(facts: Facts) -> Diagnosis | None:
    for run in facts.failing:
        if run.values_right and run.unread >= 0:
            return diagnosis("torch-before", argument=facts.argument(run.unread))
    return None


# ---- the wrong form ------------------------------------------------------------------------------------------------


def wrong_form(facts: Facts) -> Diagnosis | None:
    for run in facts.failing:
        if run.seen is None:
            continue
        if not run.comparisons:
            count = len(run.expected) - len(run.inplace)
            wanted = "a tensor" if count == 1 else f"{count} tensors" if count else "None"
            return diagnosis("wrong-type", entry=facts.exercise.entry, wanted=wanted, got=run.seen.returned)
        for i, comparison in enumerate(run.comparisons):
            if comparison.problem:
                output = output_name(run, i).capitalize()
                return diagnosis(comparison.problem, output=output, wanted=comparison.wanted, got=comparison.received)
    return None


def output_name(run: CaseRun, number: int) -> str:
    """'the output', 'output 2' or 'argument 3 after the call'."""
    returned = len(run.expected) - len(run.inplace)
    if number >= returned:
        return f"argument {run.inplace[number - returned] + 1} after the call"
    return "the output" if returned == 1 else f"output {number + 1}"


def input_modified(facts: Facts) -> Diagnosis | None:
    for run in facts.failing:
        if run.seen and any(fault.kind != "load" for fault in run.seen.faults):
            continue  # a store that goes astray may land in an argument, or not: that depends on where tensors lie
        for change in run.modified:
            event = run.event(change.event)
            where = f", in line {event.line}" if event else ""
            return diagnosis("input-modified", argument=facts.argument(change.position), where=where)
    return None


def input_returned(facts: Facts) -> Diagnosis | None:
    """What is wrong besides is a consequence: the result lies over an argument, which was left as it is."""
    for run in facts.failing:
        changed = [change.position for change in run.modified]
        for output, position in run.shares:
            if position in changed:
                continue
            return diagnosis("input-returned", output=output_name(run, output), argument=facts.argument(position))
    return None


def result_reused(facts: Facts) -> Diagnosis | None:
    return diagnosis("result-reused") if any(run.seen and run.seen.stale for run in facts.failing) else None


def too_many_launches(facts: Facts) -> Diagnosis | None:
    for run in facts.failing:
        if run.too_many_launches:
            allowed = "one" if run.max_launches == 1 else run.max_launches
            return diagnosis("too-many-launches", got=len(run.own_launches), allowed=allowed)
    return None


def demands(facts: Facts) -> Diagnosis | None:
    """What the text asks for besides the numbers."""
    for run in facts.failing:
        if run.values_right and run.unmet:
            return diagnosis("demand-not-met", sentence=run.unmet)
    return None


# ---- a known mistake, recognised by its numbers --------------------------------------------------------------------


def missing_parentheses(facts: Facts) -> Diagnosis | None:
    first = answer.taken_first(facts.tree)
    return _parentheses(first) if first is not None else None


def _parentheses(first: ast.BinOp) -> Diagnosis:
    return diagnosis("missing-parentheses", line=first.lineno, text=ast.unparse(first))


def suspects(facts: Facts) -> Diagnosis | None:
    """Not where a case is wrong for its accesses alone: what went astray there comes first."""
    if any(run.values_right and run.seen.faults for run in facts.telling) and faults(facts).code in _UNMASKED:
        return None
    if facts.fault and facts.fault.kind != "load" and answer.is_masked(facts.tree, facts.fault.line):
        return None  # no formula says where a store goes
    for whole in (True, False):  # one that gives all of the answer's results is likelier than one that gives the wrong
        for suspect in facts.exercise.suspects:
            if _explains(suspect.formula, facts, whole) and not _spoils(suspect.formula, facts):
                return Diagnosis(suspect.code, suspect.sentence)
    return None


def _explains(formula: Callable[..., Any], facts: Facts, whole: bool) -> bool:
    """Whether a mistake gives the numbers of every wrong case; the smallest says no for most of them."""
    wrong = False
    for run in sorted((run for run in facts.wrong if not _is_far(run)), key=total_bytes):
        if not (found := _reproduces(formula, run, whole)):
            return False
        wrong |= found == _SAME_AND_WRONG
    return wrong


def _spoils(formula: Callable[..., Any], facts: Facts) -> bool:
    """Whether a mistake makes a case wrong that the answer has right: then the answer does not make it.

    Two mistakes may end alike where little is left of the numbers: -inf, say.
    """
    passed = [run for run in facts.runs if run.passed and run.comparisons and not _is_far(run)]
    return any(not _leaves_right(formula, run) for run in passed)


def _leaves_right(formula: Callable[..., Any], run: CaseRun) -> bool:
    """Whether any of a mistake's results is right: the answer may make it in one of them."""
    result = formula(*fresh(run.args))
    results = result if isinstance(result, tuple) else (result,)
    return any(
        compare(expected, tensor.to(dtype), comparison.tolerance, dtype).right
        for tensor, comparison, expected, dtype in zip(results, run.comparisons, run.expected, run.dtypes)
    )


def likely_suspect(facts: Facts) -> Diagnosis | None:
    """One that gives the numbers of nearly all wrong cases: in the others it may overflow, or lose digits otherwise."""
    near = [run for run in facts.wrong if not _is_far(run)]
    for suspect in facts.exercise.suspects:
        found = [_reproduces(suspect.formula, run) for run in near]
        if found.count(_SAME_AND_WRONG) >= _FEWEST and found.count(0) * _MANY <= len(found):
            return Diagnosis(suspect.code, suspect.sentence)
    return None


_UNMASKED = ("missing-load-mask", "missing-store-mask")


def _is_far(run: CaseRun) -> bool:
    return any(isinstance(a, torch.Tensor) and is_far(a) for a in run.args)


_SAME, _SAME_AND_WRONG = 1, 2


def _reproduces(formula: Callable[..., Any], run: CaseRun, whole: bool = False) -> int:
    """Whether a mistake gives this answer's numbers; 0 where it does not.

    Where the answer is nearly right, a mistake that does nothing in this case gives them too, and explains nothing.
    A mistake in one of several results leaves the others right, though a formula may change them all; with `whole` it
    must give these as well.
    """
    result = formula(*fresh(run.args))
    results = result if isinstance(result, tuple) else (result,)
    if len(results) > len(run.comparisons):
        return 0
    wrong = False
    for tensor, comparison, expected, dtype in zip(results, run.comparisons, run.expected, run.dtypes):
        guess = numbers(tensor)
        if guess.shape != comparison.got.shape:
            return 0
        if not comparison.close(guess, comparison.got, times=2).all():
            if comparison.right and len(results) > 1 and not whole:
                continue
            return 0
        wrong |= not comparison.right and not compare(expected, tensor.to(dtype), comparison.tolerance, dtype).right
    return _SAME_AND_WRONG if wrong else _SAME


# ---- what the interpreter saw --------------------------------------------------------------------------------------


def faults(facts: Facts) -> Diagnosis | None:
    fault = facts.fault
    if fault is None:
        return None
    about = {"program": format_program(fault.program), "tensor": fault.tensor, "line": fault.line}
    if fault.first_element <= -(1 << 28) or (fault.first_element >= 0 and all(map(_is_far, facts.failing))):
        return diagnosis("missing-int64", element=fault.first_element, **about)
    if 0 <= fault.first_element < fault.size:  # illegal only where rows have gaps between them
        return diagnosis("between-rows", **about)
    # a load may come from a tensor with gaps, which ends beyond its size
    past_the_end = fault.first_element == fault.size or (fault.partial and fault.kind == "load")
    masked = answer.is_masked(facts.tree, fault.line)
    past_the_end &= fault.partial or fault.lanes > 1 or masked  # one number by itself has no lanes to mask
    if fault.first_element < 0 and _may_be_padding(facts):
        return diagnosis("padding-slot", **about)
    about |= {"element": _place(fault), "size": fault.size}
    if masked and fault.outside.way in WRONG_STRIDE:
        return _wrong_stride(fault.outside, about)
    if fault.first_element < 0 or not past_the_end:
        return diagnosis("out-of-bounds", **about)
    if masked:
        ask = MASK_TOO_WIDE["one-lane" if fault.lanes == 1 else fault.outside.way]
        return diagnosis("mask-too-wide", ask=ask.format(axis=fault.outside.axis), **about)
    return diagnosis("missing-load-mask" if fault.kind == "load" else "missing-store-mask", **about)


def _wrong_stride(outside: Outside, about: dict[str, Any]) -> Diagnosis:
    """Something is as far apart as nothing in the tensor is: no mask could mend that."""
    other = format_program(outside.other) if outside.other else ""
    why = WRONG_STRIDE[outside.way].format(axis=outside.axis, step=outside.step, other=other)
    return diagnosis("wrong-stride", why=why, strides=outside.strides, **about)


def _place(fault: FaultSeen) -> str:
    """The element's number, and in a matrix what would be its row and column."""
    place = [str(n) for n in fault.index]
    return f"{fault.first_element} ([{', '.join(place)}])" if len(place) > 1 else str(fault.first_element)


def _keywords(tree: ast.Module) -> list[ast.keyword]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.keyword)]


def _may_be_padding(facts: Facts) -> bool:
    """Whether an argument of the first failing case holds -1 among its integers, or idle lanes do: no place."""
    if any(keyword.arg == "other" and ast.unparse(keyword.value) == "-1" for keyword in _keywords(facts.tree)):
        return True
    args = facts.failing[0].args
    integers = [a for a in args if isinstance(a, torch.Tensor) and a.dtype in (torch.int32, torch.int64)]
    return any(bool((a == -1).any()) for a in integers)


def damage(facts: Facts) -> Diagnosis | None:
    """Without the interpreter's guard (a GPU, an unknown Triton): a margin around a tensor was overwritten."""
    for run in facts.failing:
        if run.seen and run.seen.damaged:
            return Diagnosis("missing-store-mask", "Memory beside a tensor was overwritten. Which lanes may write?")
    return None


def same_programs(facts: Facts) -> Diagnosis | None:
    for run in facts.wrong:
        for launch in run.own_launches:
            if launch.twins and not _adds_up(launch, facts.tree):
                first, second = (format_program(program) for program in launch.twins)
                return diagnosis("program-id-unused", first=first, second=second)
        overlap = run.seen.overlap
        races = [launch.race for launch in run.own_launches if launch.race]
        if overlap and races and races[0].kind == "load":  # what one stores, another adds to
            return race_diagnosis(races[0])
        if overlap:
            first, second = (format_program(program) for program in overlap.programs)
            about = {"element": overlap.element, "tensor": overlap.tensor}
            return diagnosis("overlapping-programs", first=first, second=second, **about)
    return None


def _adds_up(launch: LaunchSeen, tree: ast.Module) -> bool:
    """Whether programs that look at every axis of the grid load what others of them store: one place for a sum."""
    axes = {ast.dump(ast.Constant(axis)) for axis, programs in enumerate(launch.grid) if programs > 1}
    return launch.race is not None and launch.race.kind == "load" and axes <= answer.program_axes(tree)


def race_diagnosis(race: RaceSeen) -> Diagnosis:
    """What two programs, or two lanes of one, do to one element, in words."""
    if race.kind == "lanes":
        one, other = race.lines
        lines = f"Line {one} stores twice" if one == other else f"Lines {one} and {other} store different numbers"
        return Diagnosis("race", LANES.format(lines=lines, element=race.element, tensor=race.tensor))
    first, second = (format_program(program) for program in race.programs)
    element = f"element {race.element} of {race.tensor}"
    if race.kind == "store":
        one = f"Program {first} stores to {element} in line {race.lines[0]}"
        return diagnosis(
            "race", one=one, other=f"program {second} stores something else there, in line {race.lines[1]}"
        )
    one = f"Program {first} touches {element} in line {race.lines[0]}"
    return diagnosis("race", one=one, other=f"program {second} in line {race.lines[1]}, and one of them stores it")


def far_row_missed(facts: Facts) -> Diagnosis | None:
    """Only where rows have numbers of millions, what belongs there went elsewhere."""
    if facts.failing and all(run.values_wrong and _is_far(run) and _missed(run) for run in facts.failing):
        return diagnosis("far-row-missed", case=facts.failing[0].case.name)
    return None


def _missed(run: CaseRun) -> bool:
    """Whether a wrong element is one that nobody stored."""
    owners = [writers is None or writers.numpy() < 0 for writers in run.seen.writers]
    return any(bool((owner & comparison.wrong).any()) for owner, comparison in zip(owners, run.comparisons))


def kept_lost(facts: Facts) -> Diagnosis | None:
    """An argument that the answer works on holds something else where it was to stay as it is, and no kernel wrote."""
    for run in (run for run in facts.wrong if not _is_far(run)):
        returned = len(run.expected) - len(run.inplace)
        for position, comparison, writers in zip(
            run.inplace, run.comparisons[returned:], run.seen.writers[returned:], strict=True
        ):
            stays = comparison.wrong & (numbers(run.args[position]) == comparison.expected)
            lost = stays & (writers.numpy() < 0 if writers is not None else True)
            if lost.any():
                index = f"[{', '.join(map(str, np.argwhere(lost)[0]))}]"
                about = {"missing": int(lost.sum()), "argument": facts.argument(position), "index": index}
                return diagnosis("kept-lost", **about)
    return None


def unset(facts: Facts) -> Diagnosis | None:
    """A kernel adds to what lies in memory that nobody has set."""
    seen = [launch.unset for run in facts.wrong for launch in run.own_launches if launch.unset]
    return diagnosis("unset-memory", line=seen[0].line, tensor=seen[0].tensor) if seen else None


def unwritten(facts: Facts) -> Diagnosis | None:
    for run in facts.wrong:
        if run.own_launches and all(0 in launch.grid for launch in run.own_launches):
            return diagnosis("empty-grid", grid=tuple(run.own_launches[0].grid))
        for number, comparison in enumerate(run.comparisons):
            if run.seen.writers[number] is None:
                if run.driven or run.torch_may_finish or comparison.right:
                    continue
                return _nothing_stored(run, facts) or _untouched(run, number, facts)
            owners = run.seen.writers[number].numpy()
            never = (owners < 0) & comparison.wrong
            if never.any():
                return _short_grid(owners, run, facts) or _holes(never, owners, run)
    return None


def _untouched(run: CaseRun, number: int, facts: Facts) -> Diagnosis:
    """An output, or an argument that an answer works on, that no kernel stored to."""
    returned = len(run.expected) - len(run.inplace)
    if number < returned:
        return diagnosis("output-untouched")
    argument = facts.argument(run.inplace[number - returned])
    return Diagnosis("output-untouched", ARGUMENT_UNTOUCHED.format(argument=argument))


def _nothing_stored(run: CaseRun, facts: Facts) -> Diagnosis | None:
    """Its programs ran, there is a store in them, and none of them came to it."""
    if any(launch.idle < launch.programs for launch in run.own_launches) or not answer.calls(facts.tree, "store"):
        return None
    return diagnosis("nothing-stored", kernel=run.own_launches[-1].name)


def _holes(never: np.ndarray, owners: np.ndarray, run: CaseRun) -> Diagnosis:
    index = list(np.argwhere(never)[0])
    about = {"missing": int(never.sum()), "total": never.size}
    return diagnosis("partly-written", index=f"[{', '.join(str(i) for i in index)}]", ask=_ask(owners, run), **about)


def _ask(owners: np.ndarray, run: CaseRun) -> str:
    """What to look at: a loop; where all programs together wrote the beginning and no more, the grid, or the mask."""
    flat, launches = owners.reshape(-1), run.own_launches
    if creeping := [launch.creeps for launch in launches if launch.creeps]:
        line, step, length = creeping[0]
        return PARTLY_WRITTEN["creeps"].format(line=line, step=step, length=length)
    extent = int((flat >= 0).sum())
    if len(launches) != 1 or not extent or (flat[:extent] < 0).any():
        return PARTLY_WRITTEN["hole"]
    block, programs = _block_of_first_program(flat, run)[0], launches[0].programs
    width = owners.shape[-1] if owners.ndim > 1 else 0
    cut = bool(block & (block - 1)) and not (width and block % width == 0)  # a block's length is a power of two
    whole_rows = width and extent % width == 0
    if extent % block == 0 and not cut and (whole_rows or extent == block * programs):
        return PARTLY_WRITTEN["few-programs"].format(writers=extent // block, programs=programs, block=block)
    if extent < block * programs or (cut and programs == 1):
        return PARTLY_WRITTEN["short-mask"].format(extent=extent)
    return PARTLY_WRITTEN["hole"]


def _short_grid(owners: np.ndarray, run: CaseRun, facts: Facts) -> Diagnosis | None:
    """The written elements are a box of whole blocks, and what is missing along a dimension is less than a block.

    That is one launch's grid, or the loop of one program.
    """
    if len({run.seen.events[n].launch for n in np.unique(owners[owners >= 0])}) != 1:
        return None
    if answer.splits_program(facts.tree):
        return None  # a tile is found by its number: no axis of the grid is one of the result's
    for grid in (owners,) if _rows_have_programs(facts) else (owners.reshape(-1), owners):
        written = grid >= 0
        extent = [int(where.max()) + 1 if where.size else 0 for where in np.nonzero(written)]
        if not extent or math.prod(extent) != int(written.sum()):
            continue
        block = _block_of_first_program(grid, run)
        short = [d for d, size in enumerate(grid.shape) if extent[d] < size]
        if short and all(grid.shape[d] - extent[d] < block[d] and extent[d] % block[d] == 0 for d in short):
            d, total = short[0], grid.shape[short[0]]
            things = "elements" if grid.ndim == 1 else f"positions along dimension {d}"
            about = {"missing": total - extent[d], "total": total, "things": things}
            if block[d] == extent[d] and answer.in_loop(facts.tree, run.seen.events[int(owners.flat[0])].line):
                return diagnosis("loop-too-short", **about)
            in_a_row = d == owners.ndim - 1 and _rows_have_programs(facts)
            why = "block-too-short" if in_a_row else _why_short(facts.tree, grid, run, block, d)
            return diagnosis(why, block=block[d], **about)
    return None


def _rows_have_programs(facts: Facts) -> bool:
    """Whether in every case there are as many programs as rows, and rows differ in number: no grid counts blocks."""
    counts = {
        (math.prod(run.expected[0].shape[:-1]), launch.programs)
        for run in facts.runs
        for launch in run.own_launches
        if run.expected[0].ndim > 1
    }
    return len(counts) > 1 and all(rows == programs for rows, programs in counts)


def _why_short(tree: ast.Module, grid: np.ndarray, run: CaseRun, block: list[int], d: int) -> str:
    """Too few programs, or a mask; where no axis of the grid is left for the dimension, its one block is too short.

    The length of a tile is a power of two: what is no such number was cut by a mask.
    """
    walked = sum(step < size for step, size in zip(block, grid.shape)) - 1
    if grid.ndim > 1 and len(answer.program_axes(tree)) <= walked:
        return "mask-too-narrow" if block[d] & (block[d] - 1) else "block-too-short"
    needed = math.prod(-(-size // step) for size, step in zip(grid.shape, block))
    return "mask-too-narrow" if max(launch.programs for launch in run.own_launches) >= needed else "grid-floor-division"


def _block_of_first_program(owners: np.ndarray, run: CaseRun) -> list[int]:
    """How far the stores of the program that wrote the very first element reach, along each dimension."""
    table = run.seen.events
    first = table[int(owners.flat[0])]
    events = [n for n, event in enumerate(table) if (event.launch, event.program) == (first.launch, first.program)]
    return [int(where.max()) + 1 for where in np.nonzero(np.isin(owners, events))]


def missing_other(facts: Facts) -> Diagnosis | None:
    for run in facts.wrong[:1]:
        lines = sorted({line for launch in run.own_launches for line in launch.unfilled})
        if lines and (
            facts.probed[1].values_right or _nan_where_finite(run) and not _nan_where_finite(facts.probed[1])
        ):
            return diagnosis("missing-other", line=lines[0])
    return None


def _nan_where_finite(run: CaseRun) -> bool:
    return any(bool((np.isnan(c.got) & ~np.isnan(c.expected)).any()) for c in run.comparisons if not c.problem)


def nondeterministic(facts: Facts) -> Diagnosis | None:
    if not facts.wrong:
        return None
    if all(run.case.name.endswith(AGAIN) for run in facts.failing):
        return Diagnosis("nondeterministic", ONLY_AGAIN)
    run, again = facts.wrong[0], facts.probed[0]
    for one, other in zip(run.outputs, again.outputs, strict=False):
        if one.shape == other.shape and not close(numbers(one), numbers(other), 0.0, 0.0).all():
            return diagnosis("nondeterministic")
    return None


# ---- what the numbers look like ------------------------------------------------------------------------------------


def _everywhere(test: Callable[[Comparison], Any], facts: Facts) -> Any:
    """The result of `test` on the first wrong output, if it is truthy for every wrong output of every wrong case."""
    results = [test(c) for run in facts.wrong for c in run.comparisons if not c.right]
    return results[0] if results and all(results) else None


def transposed(facts: Facts) -> Diagnosis | None:
    def test(comparison):
        expected, got = comparison.expected, comparison.got
        if expected.ndim != 2 or min(expected.shape) < 2 or max(expected.shape) ** 2 > _MOST_OFFSETS:
            return False
        rows, cols = expected.shape
        offsets = np.arange(rows)[:, None] + cols * np.arange(cols)[None, :]  # where exchanged strides lead
        legal = offsets < expected.size
        once = legal & (np.bincount(offsets.reshape(-1))[offsets] == 1)
        e, g = expected.reshape(-1), got.reshape(-1)
        pairs = [(e[offsets[legal]], got[legal]), (expected[once], g[offsets[once]]), (expected.T.reshape(-1), g)]
        return any(len(one) >= 4 and comparison.close(one, other).all() for one, other in pairs)

    return diagnosis("swapped-strides") if _everywhere(test, facts) else None


def shifted(facts: Facts) -> Diagnosis | None:
    def test(comparison):
        e, g = comparison.expected.reshape(-1), comparison.got.reshape(-1)
        wrong = np.flatnonzero(comparison.wrong)
        middle = int(wrong[len(wrong) // 2])
        for j in np.flatnonzero(e == g[middle])[:8]:
            k = middle - int(j)
            there, here = (e[:-k], g[k:]) if k > 0 else (e[-k:], g[:k])
            telling = len(here) >= 8 and len(np.unique(there[:_MANY_NUMBERS])) >= _FEWEST
            if k and telling and comparison.close(there, here).all():
                return k
        return 0

    shift = _everywhere(test, facts)
    return diagnosis("shifted", shift=abs(shift)) if shift else None


def through_float32(facts: Facts) -> Diagnosis | None:
    """Whole numbers that float32 does not hold, rounded to those that it holds."""

    def test(comparison):
        expected, got = comparison.expected, comparison.got
        return expected.dtype.kind in "iu" and np.array_equal(got, expected.astype(np.float32).astype(expected.dtype))

    return diagnosis("through-float32") if _everywhere(test, facts) else None


def _usable(comparison: Comparison) -> np.ndarray:
    """Which expected numbers are large enough to be divided by."""
    expected = comparison.expected
    return np.isfinite(expected) & (np.abs(expected) > 10 * comparison.tolerance.atol + 1e-12)


def _factor(comparison: Comparison, row: slice | int = slice(None)) -> float:
    """The constant that the output is off by, 0.0 when there is none."""
    width = comparison.expected.shape[-1:]
    expected = comparison.expected.reshape(-1, *width)[row]
    got = comparison.got.reshape(-1, *width)[row]
    usable = _usable(comparison).reshape(-1, *width)[row] & np.isfinite(got)
    if usable.sum() < _FEWEST or not np.isfinite(got).all():
        return 0.0
    factor = float(np.median(got[usable] / expected[usable]))
    if f"{factor:.4g}" == "1":  # no factor that anybody would look for
        return 0.0
    plain = bool(comparison.close(expected * factor, got, times=2).all())
    return factor if plain and factor != 0.0 and not comparison.close(expected, got).all() else 0.0


def constant_factor(facts: Facts) -> Diagnosis | None:
    """A few numbers show no factor of their own; they must have that of another output."""
    wrong = [c for run in facts.wrong for c in run.comparisons if not c.right]
    many = [c for c in wrong if _usable(c).sum() >= _FEWEST]
    factors = [_factor(c) for c in many]
    if not factors or not all(factors):
        return None
    few = [c for c in wrong if _usable(c).sum() < _FEWEST]
    agree = all(any(c.close(c.expected * factor, c.got, times=2).all() for factor in factors) for c in few)
    return diagnosis("constant-factor", factor=factors[0]) if agree else None


def row_factor(facts: Facts) -> Diagnosis | None:
    def test(comparison):
        shape = comparison.expected.shape
        if len(shape) < 2 or shape[-1] < 3:
            return False
        wrong = np.flatnonzero(comparison.wrong.reshape(-1, shape[-1]).any(axis=1))
        return all(_factor(comparison, int(row)) for row in wrong)

    return diagnosis("row-factor") if _everywhere(test, facts) else None


def nearly(facts: Facts) -> Diagnosis | None:
    def test(comparison):
        expected, got = comparison.expected, comparison.got
        finite = np.isfinite(expected)
        if expected.dtype.kind != "f" or not np.isfinite(got[finite]).all() or not finite.any():
            return False
        near = max(0.02, comparison.step)
        return np.abs(got[finite] - expected[finite]).max() <= near * np.abs(expected[finite]).max()

    if any(_is_wide(run) for run in facts.wrong) and not answer.names(facts.tree, "float16", "bfloat16"):
        return None  # nothing there has fewer bits
    return diagnosis("half-accumulation") if _everywhere(test, facts) or _only_narrow(facts) else None


def _only_narrow(facts: Facts) -> bool:
    """Right wherever all is float32, and elsewhere off by no more than roundings of the arguments could do."""
    if any(map(_is_wide, facts.failing)) or not any(run.passed and _is_wide(run) for run in facts.runs):
        return False
    return all(_like_roundings(run) for run in facts.wrong)


def _like_roundings(run: CaseRun) -> bool:
    given = [a.detach().double().abs() for a in run.args if isinstance(a, torch.Tensor) and a.dtype.is_floating_point]
    largest = max((float(a[a.isfinite()].max()) for a in given if a.isfinite().any()), default=0.0)
    for comparison in run.comparisons:
        expected, got = comparison.expected, comparison.got
        if comparison.right or expected.dtype.kind != "f":
            continue
        finite = np.isfinite(expected)
        if not np.isfinite(got[finite]).all() or not finite.any():
            return False
        most = max(largest, float(np.abs(expected[finite]).max()))
        if np.abs(got[finite] - expected[finite]).max() > max(0.02 * most, comparison.step * most):
            return False
    return True


def only_in_16_bits(facts: Facts) -> Diagnosis | None:
    """`nearly`, where all that fails is in 16 bits and something passes in 32: no factor explains that."""
    fine = any(_is_wide(run) for run in facts.runs if run.passed)
    return nearly(facts) if fine and facts.wrong and not any(map(_is_wide, facts.wrong)) else None


def not_finite(facts: Facts) -> Diagnosis | None:
    """All that is wrong is NaN or infinite, where numbers are expected."""

    def test(comparison):
        wrong = comparison.wrong
        return bool((~np.isfinite(comparison.got[wrong]) & np.isfinite(comparison.expected[wrong])).all())

    return diagnosis("not-finite") if _everywhere(test, facts) else None


def _is_wide(run: CaseRun) -> bool:
    """Whether the first numbers of a case, which its others may go with, are of 32 bits."""
    first = next((a for a in run.args if isinstance(a, torch.Tensor) and a.dtype.is_floating_point), None)
    return first is not None and first.dtype == torch.float32


def _floats(run: CaseRun) -> set[torch.dtype]:
    return {a.dtype for a in run.args if isinstance(a, torch.Tensor) and a.dtype.is_floating_point}


def where(facts: Facts) -> str:
    """What the failing cases have in common and no passing one has, in a sentence; "" where there is nothing."""
    wrong, right = facts.failing, [run for run in facts.runs if run.passed]
    if not wrong or not right:
        return ""
    for sentence, holds in _PROPERTIES:
        if all(map(holds, wrong)) and not any(map(holds, right)):
            return sentence
    names = {run.case.name.removesuffix(AGAIN) for run in wrong}
    if len(names) == 1 and len(right) >= _MANY:
        return f"Only the case “{names.pop()}” fails."
    dtypes, fine = [set().union(*map(_floats, runs)) for runs in (wrong, right)]
    if dtypes and fine and not dtypes & fine:
        names = sorted(str(d).removeprefix("torch.") for d in dtypes)
        return f"Only {' and '.join(names)} {'fails' if len(names) == 1 else 'fail'}."
    return ""


def _tensors(run: CaseRun) -> list[torch.Tensor]:
    return [a for a in run.args if isinstance(a, torch.Tensor)]


_PROPERTIES: tuple[tuple[str, Callable[[CaseRun], bool]], ...] = (
    ("Only the second call is wrong: what does the first leave behind?", lambda run: run.case.name.endswith("again")),
    ("Only where a tensor is not contiguous.", lambda run: not all(a.is_contiguous() for a in _tensors(run))),
    (
        "Only where the last dimension is no power of two.",
        lambda run: any(a.dim() and a.shape[-1] & (a.shape[-1] - 1) for a in _tensors(run)),
    ),
)


def hard_coded(facts: Facts, stub: str | None) -> Diagnosis | None:
    """A number in the code is a size of a case that passes, and of none that fails.

    It is no rule: what the numbers say comes first, and this is asked where they leave the cause open.  The length of
    a tile and a number that the untouched stub holds are no sizes.
    """
    given = answer.parse(stub or "")
    known = answer.tile_lengths(facts.tree) | _tiles_passed(facts)
    known |= set() if isinstance(given, answer.SyntaxProblem) else set(answer.integers(given))
    telling = _sizes([run for run in facts.runs if run.passed]) - _sizes(facts.failing) - known
    for value, line in answer.integers(facts.tree).items():
        if value in telling and value >= _LEAST_SIZE:
            return diagnosis("hard-coded-size", size=value, line=line)
    return None


def _tiles_passed(facts: Facts) -> set[int]:
    """The lengths of tiles that kernels got as arguments, by position too."""
    names = answer.tile_names(facts.tree)
    launches = [launch for run in facts.runs for launch in run.own_launches]
    return {value for launch in launches for name, value in launch.constants if name in names and type(value) is int}


def _sizes(runs: list[CaseRun]) -> set[int]:
    args = [a for run in runs for a in run.args]
    of_tensors = {n for a in args if isinstance(a, torch.Tensor) for n in (*a.shape, a.numel())}
    return of_tensors | {a for a in args if type(a) is int}


RULES = (
    died,
    raised,
    no_kernel,
    input_returned,
    torch_result,
    torch_before,
    wrong_form,
    input_modified,
    result_reused,
    too_many_launches,
    demands,
    missing_parentheses,
    suspects,
    transposed,
    faults,
    damage,
    same_programs,
    far_row_missed,
    kept_lost,
    unset,
    unwritten,
    missing_other,
    nondeterministic,
    out_of_time,
    likely_suspect,
    through_float32,
    shifted,
    only_in_16_bits,
    constant_factor,
    row_factor,
    nearly,
    not_finite,
)
