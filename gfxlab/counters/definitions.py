"""AMD's counters that a simulator without a clock can count, each with AMD's definition and where ours differs.

Definitions: ROCm documentation, "MI300 and MI200 series performance counters and metrics". On RDNA the same names are
used here; rocprofv3 knows others there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from gfxlab.code.work import flops_of
from gfxlab.simulator.show.run import Run

SOURCE = "https://rocm.docs.amd.com/en/latest/reference/gpu-arch/mi300-mi200-performance-counters.html"


@dataclass(frozen=True)
class Counter:
    """One counter. amd: its definition there; differs: where ours may be another number; empty: nothing is known."""

    name: str
    amd: str
    count: Callable[[Run], int]
    differs: str = ""


def of_run(run: Run) -> dict[str, int]:
    """{name: count} of a simulated launch; the LDS's cycles are there only if it was profiled."""
    return {counter.name: counter.count(run) for counter in COUNTERS if run.profile or "LDS_" not in counter.name}


def _executed(pattern: str, but: str = r"(?!)") -> Callable[[Run], int]:
    """How many instructions waves executed whose mnemonic matches `pattern` and not `but`."""
    wanted, unwanted = re.compile(pattern), re.compile(but)

    def count(run: Run) -> int:
        times = zip(run.program.blocks, run.executed)
        return sum(
            int(often)
            for block, often in times
            for one in run.program.instructions[block.start : block.stop]
            if wanted.match(one.mnemonic) and not unwanted.match(one.mnemonic)
        )

    return count


def _of_operands(kind: str) -> str:
    """Matrix instructions whose operands are of `kind`."""
    return rf"v_(mfma|smfmac)_\w+?_\d+x\d+x\d+(_\d+b)?_?{kind}"


def _matrix_operations(kind: str) -> Callable[[Run], int]:
    """Operations of matrix instructions whose operands are of `kind`, by 512."""
    wanted = re.compile(_of_operands(kind))

    def count(run: Run) -> int:
        total = 0
        for block, often in zip(run.program.blocks, run.executed):
            for one in run.program.instructions[block.start : block.stop]:
                if wanted.match(one.mnemonic):
                    total += int(often) * flops_of(one.text, run.program.lanes)[1]
        return total // 512

    return count


def _lds(run: Run) -> int:
    return _executed(r"(ds|flat)_" if run.compiled.arch == "gfx90a" else r"ds_")(run)


def _waves(run: Run) -> int:
    return prod(run.grid) * run.compiled.num_warps


_MATRIX = r"v_(mfma|smfmac|wmma|swmmac)_"
_MEMORY = r"(global|buffer|flat|scratch)_"
_CACHE = r"(global|buffer)_(gl0_inv|gl1_inv|inv|wb|wbinv|wbl2|wbinvl1)"
_WRITE = rf"{_MEMORY}(store|atomic)_"
_SCALAR_MEMORY = r"s_(buffer_)?(load|store|scratch|atomic|dcache|memtime|memrealtime|gl1_inv)"
_BRANCH = r"s_(cbranch|branch|setpc|swappc|call)"
_MESSAGE = r"s_(sendmsg|endpgm)"
_SEQUENCER = r"s_(wait|nop|delay_alu|sleep|barrier|set_inst_prefetch|setprio|clause|icache)"
_NOT_ALU = rf"{_SCALAR_MEMORY}|{_BRANCH}|{_MESSAGE}|{_SEQUENCER}"
_UNLISTED = "AMD's table has no line for it, rocprofv3 has the counter on MI300; the words are those of its neighbours."
_PACKED = "A packed instruction (v_pk_) counts once here; AMD does not say whether it counts twice."


def _arithmetic(unit: str, bits: int) -> str:
    """Vector instructions of one operation: `v_add_f32`, also packed and in the pairs of RDNA 3."""
    verbs = {
        "ADD": "(add|sub|subrev)",
        "MUL": "mul(_legacy)?",
        "FMA": "(fma|fmac|fmaak|fmamk|mad|mac|pk_fma|madak|madmk)",
    }
    if unit == "TRANS":
        return rf"v_(exp|log|rcp|rsq|sqrt|sin|cos)(_legacy|_iflag)?_f{bits}"
    return rf"v_(pk_)?{verbs[unit]}(_legacy)?_f{bits}"


def _per_type() -> tuple[Counter, ...]:
    words = {"ADD": "ADD or SUB", "MUL": "multiply", "FMA": "FMA or multiply-add", "TRANS": "transcendental"}
    return tuple(
        Counter(
            f"SQ_INSTS_VALU_{unit}_F{bits}",
            f"Number of VALU F{bits} {words[unit]} instructions issued",
            _executed(_arithmetic(unit, bits)),
            "" if unit == "TRANS" else _PACKED,
        )
        for bits in (16, 32, 64)
        for unit in words
    )


COUNTERS: tuple[Counter, ...] = (
    Counter(
        "SQ_WAVES", "Number of wavefronts dispatched to sequencers, including both new and restored wavefronts", _waves
    ),
    Counter(
        "SQ_INSTS",
        "Number of instructions issued",
        _executed(""),
        "We count every instruction of the code, s_nop and s_waitcnt too; AMD does not say whether those are issued.",
    ),
    Counter(
        "SQ_INSTS_VALU",
        "Number of vector arithmetic logic unit (VALU) instructions including matrix FMA issued",
        _executed(r"v_"),
        "A pair of RDNA 3 (v_dual_) counts once.",
    ),
    Counter(
        "SQ_INSTS_MFMA", "Number of matrix FMA instructions issued", _executed(_MATRIX), "WMMA of RDNA counts here."
    ),
    *_per_type(),
    Counter(
        "SQ_INSTS_VALU_INT32",
        "Number of VALU 32-bit integer instructions (signed or unsigned) issued",
        _executed(r"v_(?!cvt|mfma|smfmac)\w*_[iu]32(_|$)", r"v_cmp"),
        "We count arithmetic that is named _i32 or _u32, without shifts, logic (_b32) and comparisons.",
    ),
    Counter(
        "SQ_INSTS_VALU_INT64",
        "Number of VALU 64-bit integer instructions (signed or unsigned) issued",
        _executed(r"v_(?!cvt)\w*_[iu]64(_|$)", r"v_cmp"),
        "We count arithmetic that is named _i64 or _u64; two 32-bit halves with a carry are 32-bit instructions.",
    ),
    Counter("SQ_INSTS_VALU_CVT", "Number of VALU Conversion instructions issued", _executed(r"v_cvt_")),
    *(
        Counter(f"SQ_INSTS_VALU_MFMA_{name}", f"Number of {words} matrix FMA instructions issued", count, differs)
        for name, words, count, differs in (
            ("I8", "8-bit Integer", _executed(_of_operands("i8")), ""),
            ("F16", "F16", _executed(_of_operands("f16")), ""),
            ("BF16", "BF16", _executed(_of_operands("bf16")), "AMD's table has a line for it on MI200 alone."),
            ("F32", "F32", _executed(_of_operands("f32")), ""),
            ("F64", "F64", _executed(_of_operands("f64")), ""),
        )
    ),
    *(
        Counter(
            f"SQ_INSTS_VALU_MFMA_MOPS_{name}",
            f"Number of {words} matrix FMA ops in the unit of 512",
            _matrix_operations(kind),
            differs,
        )
        for name, words, kind, differs in (
            ("I8", "8-bit integer", "i8", ""),
            ("F16", "F16 floating", "f16", ""),
            ("BF16", "BF16 floating", "bf16", ""),
            ("F32", "F32 floating", "f32", ""),
            ("F64", "F64 floating", "f64", ""),
            ("F8", "8-bit floating", "(fp8|bf8)", f"{_UNLISTED} fp8 and bf8 count here, f8f6f4 of gfx950 nowhere."),
            ("XF32", "XF32 floating", "xf32", _UNLISTED),
        )
    ),
    Counter(
        "SQ_INSTS_VMEM_WR",
        "Number of vector memory write instructions (including flat) issued",
        _executed(_WRITE),
        "We count atomics here.",
    ),
    Counter(
        "SQ_INSTS_VMEM_RD",
        "Number of vector memory read instructions (including flat) issued",
        _executed(rf"{_MEMORY}load_"),
        "A load that goes to LDS at once counts here.",
    ),
    Counter(
        "SQ_INSTS_VMEM",
        "Number of vector memory instructions issued, including both flat and buffer instructions",
        _executed(_MEMORY, _CACHE),
        "Without what only invalidates or writes back a cache.",
    ),
    Counter(
        "SQ_INSTS_SALU",
        "Number of scalar arithmetic logic unit (SALU) instructions issued",
        _executed(r"s_", _NOT_ALU),
        "Without waits, barriers, s_nop and the like, which the sequencer executes itself.",
    ),
    Counter("SQ_INSTS_SMEM", "Number of scalar memory instructions issued", _executed(_SCALAR_MEMORY)),
    Counter(
        "SQ_INSTS_FLAT",
        "Number of flat instructions issued",
        _executed(r"flat_"),
        "We count flat_ alone; global_ and scratch_ share its encoding, and AMD does not say whether they count.",
    ),
    Counter(
        "SQ_INSTS_LDS",
        "Number of LDS instructions issued (MI200: includes flat; MI300: does not include flat)",
        _lds,
        "ds_bpermute and ds_swizzle, which move data between lanes without memory, count here.",
    ),
    Counter("SQ_INSTS_BRANCH", "Number of branch instructions issued", _executed(_BRANCH)),
    Counter("SQ_INSTS_SENDMSG", "Number of SENDMSG instructions including s_endpgm issued", _executed(_MESSAGE)),
    Counter(
        "SQ_LDS_BANK_CONFLICT",
        "Number of cycles LDS is stalled by bank conflicts",
        lambda run: run.lds.conflicts,
        "Ours follow from the addresses of each access alone (docs/simulator.md); nothing else stalls here.",
    ),
    Counter(
        "SQ_LDS_IDX_ACTIVE",
        "Number of cycles LDS is used for indexed operations",
        lambda run: run.lds.cycles,
        "Loads, stores and atomics; not ds_bpermute and ds_swizzle.",
    ),
)
