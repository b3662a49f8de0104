"""Execute single instructions on registers of the test's choosing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace

import numpy as np

from gfxlab.code import isa
from gfxlab.simulator.compiled import extension
from gfxlab.simulator.compiled.runs import join
from gfxlab.simulator.core import program
from gfxlab.simulator.core.memory import GlobalMemory, LocalData, Scratch
from gfxlab.simulator.core.operands import EXEC, VCC
from gfxlab.simulator.core.state import Waves
from gfxlab.simulator.instructions import Step, Target, build
from gfxlab.simulator.instructions.multiplication import share

ACCUMULATORS = 256  # vector register number of a0
REGISTERS = 512
RESULT = 10  # lanewise and wavewise: the result is register 10 (and 11), the sources are 2 (and 3), 4, 6, ...


def decoded(text: str) -> tuple[program.Decoded, ...]:
    """A few lines of assembly, read."""
    lines = [f"\t{line.strip()}" for line in text.strip().splitlines()]
    return program.decoded(isa.parse("\n".join([".Lfunc_begin0:", *lines, ".Lfunc_end0:"])), ACCUMULATORS)


def steps(text: str, arch: str, as_block: bool = False, registers: int = REGISTERS) -> list[Step]:
    """The executable form of a few lines of assembly. as_block: with what they have in common done once."""
    target = Target(arch)
    made = [(one, build(one, target)) for one in decoded(text)]
    joined = list(join(made, target, registers)) if extension.used() else [((one,), step) for one, step in made]
    return list(share(*zip(*joined))) if as_block else [step for _, step in joined]


def signature(op) -> list[str]:
    """The types of the sources that are printed, for an entry of the table."""
    count = op.compute.__code__.co_argcount if hasattr(op.compute, "__code__") else op.compute.nin
    if isinstance(op.reads, str):
        count -= len(getattr(op.compute, "__defaults__", None) or ())
        return [op.reads] * (count - op.accumulates)
    return list(op.reads[: len(op.reads) - op.accumulates - op.reads_vcc])


def execute(
    text: str,
    *,
    arch: str = "gfx942",
    V: Mapping[int, object] | None = None,
    S: Mapping[int, object] | None = None,
    waves: int = 1,
    lanes_on: np.ndarray | None = None,
    vcc: np.ndarray | None = None,
    scc: np.ndarray | None = None,
    lds: np.ndarray | None = None,
    memory: GlobalMemory | None = None,
    scratch: int = 0,
    as_block: bool = False,
) -> Waves:
    """Run assembly text and return the waves afterwards.

    V: register number -> [wave, lane] or [lane] or a number, of any 4-byte type. S: register number -> [wave] or a
    number. lanes_on, vcc: bool [wave, lane] or [lane]. scc: bool [wave]. lds: the bytes that every workgroup (of one
    wave) begins with.
    """
    w = Waves(waves, Target(arch).lanes, REGISTERS, 1)
    for number, value in (V or {}).items():
        w.V[number] = _bits(value)
    for number, value in (S or {}).items():
        w.S[:, number] = _bits(value)
    if vcc is not None:
        w.write_lane_mask(VCC, np.asarray(vcc, bool))
    if scc is not None:
        w.SCC[:] = scc
    if lanes_on is not None:
        w.write_lane_mask(EXEC, np.asarray(lanes_on, bool))
    w.memory = memory
    if lds is not None:
        w.lds = LocalData(waves, lds.size)
        every = np.broadcast_to(lds.view(np.uint8), (waves, lds.size))
        w.lds._bytes.u8.reshape(-1)[: waves * w.lds.pitch].reshape(waves, -1)[:, : lds.size] = every
    w.scratch = Scratch(waves * w.lanes, scratch) if scratch else None
    with np.errstate(all="ignore"):
        for step in steps(text, arch, as_block):
            step(w)
    return w


def lds_bytes(w: Waves) -> np.ndarray:
    """The LDS of every wave, uint8 [wave, byte]."""
    return w.lds._bytes.u8[: w.count * w.lds.pitch].reshape(w.count, -1)[:, : w.lds.size]


def _bits(value) -> np.ndarray:
    value = np.asarray(value)
    if value.dtype in (np.int64, np.uint64):
        return (value & 0xFFFFFFFF).astype(np.uint32)
    return value.view(np.uint32) if value.dtype.itemsize == 4 else value.astype(np.uint32)


def cases(*sources: Iterable) -> list[tuple]:
    """Every combination of the sources' values."""
    return list(itertools.product(*sources))


def lanewise(
    text: str,
    reference: Callable,
    *sources: Iterable[int],
    arch: str = "gfx942",
    result_bits: int = 32,
    carry: Sequence[bool] | None = None,
    same: Callable[[int, int], bool] = int.__eq__,
    old: int = 0x5A5AA5A5,
) -> None:
    """Run a vector instruction on every combination of source values and compare each lane with `reference(*values)`.

    It runs twice, with all lanes and with every third one switched off, whose result registers must keep `old`.
    reference: gives the result's bits, or with `carry` a pair: bits and the bit of VCC. carry: values of VCC before,
    tried in every combination too and handed to `reference` last.
    """
    combinations = cases(*sources, *([] if carry is None else [carry]))
    lanes = Target(arch).lanes
    waves = -(-len(combinations) // lanes)
    padded = [*combinations, *[combinations[0]] * (waves * lanes - len(combinations))]
    columns = [np.array(column, dtype=object).reshape(waves, lanes) for column in zip(*padded)]
    vcc = None if carry is None else columns.pop().astype(bool)
    V = {RESULT: old, RESULT + 1: old}
    for place, column in enumerate(columns):
        V[2 + 2 * place] = (column & 0xFFFFFFFF).astype(np.uint32)
        V[3 + 2 * place] = (column >> 32 & 0xFFFFFFFF).astype(np.uint32)
    expected = [reference(*case) for case in padded]
    third = np.arange(lanes) % 3 != 1
    for lanes_on in (np.ones(lanes, bool), third):
        w = execute(text, arch=arch, V=V, waves=waves, lanes_on=lanes_on, vcc=vcc)
        words = [w.V[RESULT + place].reshape(-1).tolist() for place in range(result_bits // 32)]
        bits = w.lane_mask(VCC).reshape(-1).tolist()
        for number, (case, wanted) in enumerate(zip(combinations, expected)):
            found = sum(word[number] << 32 * place for place, word in enumerate(words))
            described = f"{text} of {', '.join(hex(x) for x in case)}"
            if not lanes_on[number % lanes]:
                assert found == sum(old << 32 * place for place in range(len(words))), f"{described}: lane is off"
                continue
            if carry is not None:
                wanted, bit = wanted
                assert bits[number] == bit, f"{described}: carry {bits[number]}"
            assert same(found, wanted & ((1 << result_bits) - 1)), f"{described}: {found:#x}, not {wanted:#x}"


def wavewise(
    text: str,
    reference: Callable,
    *sources: Iterable[int],
    arch: str = "gfx942",
    result_bits: int = 32,
    scc: Sequence[bool] = (False, True),
    same: Callable[[int, int], bool] = int.__eq__,
) -> None:
    """Run a scalar instruction on every combination of source values and of SCC.

    reference: takes the values and a SimpleNamespace whose `scc` it may read and change; gives the result's bits, or
    None where nothing is written.
    """
    combinations = cases(*sources, scc)
    columns = [np.array(column, dtype=object) for column in zip(*combinations)]
    before = columns.pop().astype(bool)
    S = {RESULT: 0x5A5AA5A5, RESULT + 1: 0x5A5AA5A5}
    for place, column in enumerate(columns):
        S[2 + 2 * place] = (column & 0xFFFFFFFF).astype(np.uint32)
        S[3 + 2 * place] = (column >> 32 & 0xFFFFFFFF).astype(np.uint32)
    w = execute(text, arch=arch, S=S, waves=len(combinations), scc=before)
    words = [w.S[:, RESULT + place].tolist() for place in range(result_bits // 32)]
    for number, (*values, condition) in enumerate(combinations):
        status = SimpleNamespace(scc=condition)
        wanted = reference(*values, status)
        described = f"{text} of {', '.join(hex(x) for x in values)} with SCC {condition}"
        if wanted is not None:
            found = sum(word[number] << 32 * place for place, word in enumerate(words))
            wanted &= (1 << result_bits) - 1
            assert same(found, wanted), f"{described}: {found:#x}, not {wanted:#x}"
        assert bool(w.SCC[number]) == bool(status.scc), f"{described}: SCC {bool(w.SCC[number])}"
