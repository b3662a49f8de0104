"""Registers that an instruction reads although no instruction before it, on any way through the code, wrote them.

Only the code is looked at, not the launch.  Not every such read is a mistake: compilers leave a register undefined
where its value does not matter.  What an instruction keeps of its old destination (DPP, v_writelane) is no read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from gfxlab.simulator.core.operands import VCC, Operand
from gfxlab.simulator.core.program import Decoded, Program, is_call

_ALL_READ = re.compile(
    r"(global|buffer|flat)_store|ds_(write|store)|s_(cmp|bitcmp|cbranch|branch|waitcnt|barrier)|\w+_cmpx_"
)
_ATOMIC = re.compile(r"(global|buffer|flat)_atomic|ds_(add|sub|inc|dec|max|min|and|or|xor|cmpst|cmpstore)_(?!.*rtn)")
_READ_TOO = re.compile(r"v_(pk_|dual_)?(fmac|mac|dot\w*c)_|v_\w*swap")  # the destination is a source as well
_TWO_RESULTS = re.compile(r"v_(div_scale|(add|sub|subrev|addc|subb|subbrev|mad)\w*_co_|mad_[ui]64)")
_PACKED = re.compile(r"v_pk_\w+_[fb]32")
_FROM_BELOW = re.compile(r"v_lshl_add_u64|v_lshlrev_b64|s_lshl_b64|s_add_(nc_)?u64")  # carries and shifts go upward
_WIDE_ADDEND = re.compile(r"v_mad_\w*[ui]64")
_COPY = re.compile(r"[vs]_mov_b(32|64)")
_RETURNS = ("sc0", "glc")
_SCALARS = 1024  # bits from here on stand for scalar registers; there are fewer vector registers


@lru_cache(maxsize=128)
def undefined_reads(program: Program) -> tuple[tuple[Decoded, str], ...]:
    """(instruction, register) of every read that nothing can have written."""
    if any(map(is_call, program.instructions)):  # which function goes on where is known at run time only
        return ()
    entering = _written_before(program)
    found = []
    for number, block in enumerate(program.blocks):
        written = entering[number]
        if written is None:  # no way leads here
            continue
        for instruction in program.instructions[block.start : block.stop]:
            reads = () if _by_halves(instruction) is not None else _roles(instruction)[0]
            found += [(instruction, name) for bit, name in _registers(reads) if not written >> bit & 1]
            written = _after(instruction, written)
    return tuple(found)


def _written_before(program: Program) -> list[int | None]:
    """For each block one bit a register: written on some way to it."""
    entering: list[int | None] = [None] * len(program.blocks)
    entering[0] = _at_launch(program)
    waiting = [0]
    while waiting:
        number = waiting.pop()
        block = program.blocks[number]
        leaving = entering[number]
        for instruction in program.instructions[block.start : block.stop]:
            leaving = _after(instruction, leaving)
        for following in program.following(number):
            known = entering[following]
            if known is None or leaving & ~known:
                entering[following] = leaving | (known or 0)
                waiting.append(following)
    return entering


def _after(instruction: Decoded, written: int) -> int:
    """What is written after an instruction. Of copies and pairs each half is as undefined as what it is made of."""
    halves = _by_halves(instruction)
    if halves is None:
        return written | _mask(_roles(instruction)[1])
    before = written
    for target, sources in halves:
        known = all(before >> bit & 1 for bit, _ in _registers(sources))
        for bit, _ in _registers([target]):
            written = written | 1 << bit if known else written & ~(1 << bit)
    return written


def _by_halves(instruction: Decoded) -> list[tuple[Operand, list[Operand]]] | None:
    """(a register, what it is made of) for each half of a result, where the halves do not ask for all of the sources.

    The compiler has no use for the other half then: such an instruction reads nothing, until its result is read.
    """
    name, operands = instruction.mnemonic, instruction.operands
    if instruction.second:
        both = (instruction, instruction.second)
        return [(one.operands[0], [one.operands[1]]) for one in both] if all(map(_moves, both)) else None
    if instruction.modifiers and not _PACKED.match(name):
        return None
    if _COPY.fullmatch(name) or _FROM_BELOW.match(name):
        result, *sources = operands
        parts = [[_half(o, h) if o.count == 2 else o for o in sources] for h in range(result.count)]
        if _FROM_BELOW.match(name):  # the amount of a shift counts for both
            parts = [parts[0], [*parts[0], *parts[1]]]
        return [(_half(result, h) if result.count == 2 else result, part) for h, part in enumerate(parts)]
    if not _PACKED.match(name) or _READ_TOO.match(name):
        return None
    result, *sources = operands
    choices = (instruction.modifiers.get("op_sel", [0, 0, 0]), instruction.modifiers.get("op_sel_hi", [1, 1, 1]))
    if name == "v_pk_mov_b32":  # one number of each source
        parts = [[(sources[h], choices[0][h])] for h in (0, 1)]
    else:
        parts = [list(zip(sources, choices[h])) for h in (0, 1)]
    return [(_half(result, h), [_half(o, c) if o.count == 2 else o for o, c in part]) for h, part in enumerate(parts)]


def _moves(instruction: Decoded) -> bool:
    """Half of a dual instruction that only copies a register."""
    return instruction.mnemonic == "v_dual_mov_b32"


def _numbered(operand: Operand) -> bool:
    return operand.is_scalar and operand.index < VCC


def _at_launch(program: Program) -> int:
    """The thread's number is in v0; the first scalar registers hold the arguments' address and the program's number."""
    scalars = program.descriptor.get("user_sgpr_count", 16) + 5
    return 1 | ((1 << scalars) - 1) << _SCALARS


def _roles(instruction: Decoded) -> tuple[list[Operand], list[Operand]]:
    """The registers that an instruction reads, and those that it writes."""
    name, operands = instruction.mnemonic, list(instruction.operands)
    if instruction.second:
        reads, writes = _roles(instruction.second)
        kept = operands[:1] if _READ_TOO.match(name) else []
        mine, theirs = (
            [] if _moves(one) else reads for one, reads in ((instruction, operands[1:]), (instruction.second, reads))
        )
        return [*kept, *mine, *theirs], [*operands[:1], *writes]
    if name.startswith("v_writelane") or instruction.kind == "scratch" and "store" in name:
        # registers are saved by the pair or by four, and some of these may hold nothing
        return [], operands[:1] if name.startswith("v_") else []
    returns = any(flag in instruction.modifiers for flag in _RETURNS) or "th" in instruction.modifiers
    if _ALL_READ.match(name) or instruction.loads_to_lds or _ATOMIC.match(name) and not returns:
        return operands, []
    results = 2 if _TWO_RESULTS.match(name) or "swap" in name and name.startswith("v_") else 1
    kept = operands[:results] if _READ_TOO.match(name) else []
    if name.startswith("buffer_atomic"):
        kept = operands[:1]
    return kept + _in_part(instruction, operands[results:]), operands[:results]


def _in_part(instruction: Decoded, sources: list[Operand]) -> list[Operand]:
    """Without the halves of 64-bit sources that an instruction has no use for."""
    if _WIDE_ADDEND.match(instruction.mnemonic):  # compilers use the low half of the sum alone where that is enough
        return [*sources[:-1], _half(sources[-1], 0)]
    return sources


def _half(operand: Operand, high: int) -> Operand:
    return replace(operand, index=operand.index + high, count=1)


def _registers(operands: Iterable[Operand]) -> Iterator[tuple[int, str]]:
    """(bit, name) of each register; those with a name of their own (vcc, exec, m0) always hold something."""
    for operand in operands:
        if operand.is_vector or _numbered(operand):
            first = operand.index if operand.is_vector else _SCALARS + operand.index
            letter = operand.file
            yield from ((first + i, f"{letter}{operand.index + i}") for i in range(operand.count))


def _mask(operands: Iterable[Operand]) -> int:
    return sum({1 << bit for bit, _ in _registers(operands)})
