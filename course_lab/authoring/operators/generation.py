"""All mutants of a right answer, the likeliest mistakes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from course_lab.authoring import parsing
from course_lab.authoring.operators import findings, hosts, launches, loops, memory, numbers
from course_lab.authoring.operators.source import Change, Code


@dataclass(frozen=True)
class Generated:
    """A right answer with one mistake in it.

    operator: which kind ("other-stride").  code: the whole mutated answer; lines above the mistake keep their numbers.
    says: a clause that completes "the numbers of a kernel that ...", with names of the solution in backticks.
    diagnosis: the code that the check should give, where one fits; else "".  line: where the mistake is.
    """

    operator: str
    code: str
    says: str
    diagnosis: str
    line: int


_IN_ORDER = (
    memory.other_stride, memory.rows_without_gaps, memory.drop_mask, memory.drop_other, memory.half_mask,
    memory.other_value, memory.other_infinity, memory.other_size, loops.off_by_one, loops.loop_ends,
    numbers.without_float32, numbers.rounds_early, numbers.opposite_sign, numbers.lost_operand,
    numbers.swapped_operands, numbers.regrouped, numbers.other_operation, numbers.without_square,
    memory.swapped_loads, numbers.fixed_number, numbers.without_choice,
    numbers.without_function, numbers.other_function, numbers.other_axis, launches.rounded_down, launches.grid_axis,
    loops.other_program, memory.without_offset, loops.lost_update, loops.after_loop, loops.into_loop,
    loops.before_update, loops.loop_step, memory.swapped_strides, memory.flat_mask, memory.invert_mask,
    memory.other_pointer, numbers.other_constant, launches.other_host_size, launches.fixed_block,
    launches.kept_output, launches.kept_result, launches.lost_launch, launches.launched_twice,
    numbers.without_precision, numbers.without_int64, launches.one_too_many, hosts.lost_refusal, hosts.other_condition,
    hosts.lost_conversion, hosts.swapped_results, hosts.shorter_shape, hosts.lost_call, findings.lost_finding,
    findings.other_cause,
)  # fmt: skip

OPERATORS: dict[str, Callable[[Code], Iterator[Change]]] = {
    operator.__name__.replace("_", "-"): operator for operator in _IN_ORDER
}


def generate(solution: str) -> Iterator[Generated]:
    """Every mutant of `solution` that Python can parse, no two with the same code."""
    code, seen = Code(solution), {solution}
    for name, operator in OPERATORS.items():
        for change in operator(code):
            mutated = code.with_edits(change.edits)
            if mutated not in seen and parsing.parses(mutated):
                seen.add(mutated)
                yield Generated(name, mutated, change.says, change.diagnosis, change.line)
