"""Finds the table that knows an instruction."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gfxlab.simulator.core.faults import UnknownInstruction
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions import (
    atomics,
    cross_lane,
    dual,
    global_memory,
    hardware_registers,
    local_data,
    many_floats,
    matrix,
    packed,
    place_and_time,
    scalar,
    scratch,
    small_floats,
    vector,
)
from gfxlab.simulator.instructions.common import Step, Target

Builder = Callable[[Decoded, Target], Step]

# No result in any register: they order memory or time, and this machine has neither caches nor a clock.
_NOTHING = re.compile(
    r"[sv]_nop|s_(wait\w*|setprio|sleep|sched\w*|clause|delay_alu|icache_inv|dcache_\w+|ttracedata|sethalt|sendmsg(halt)?|"
    r"set_inst_prefetch_distance|code_end|version|prefetch_\w+|buffer_prefetch_data|sleep_var|wakeup|ttracedata_imm|gl1_inv|"
    r"(in|de)cperflevel)|ds_nop|(buffer|global)_(gl\d_inv|inv\w*|wb\w*)"
)
# How caches are to treat an access: nothing that a result depends on.
_HINTS = {"glc", "slc", "dlc", "scc", "sc0", "sc1", "nt", "nv", "th", "scope"}
_NEWER_NAMES = (  # gfx11 and gfx12 renamed many instructions of gfx9 without changing them
    (re.compile(r"^v_(add|sub|subrev)_nc_([ui]\d+)"), r"v_\1_\2"),
    (re.compile(r"^v_(add|sub|subrev)_co_ci_u32"), r"v_\1c_co_u32"),
    (re.compile(r"^v_(pk_)?(max|min)_num_(f\d+)"), r"v_\1\2_\3"),
    (re.compile(r"^v_(max3|min3|med3)_num_(f\d+)"), r"v_\1_\2"),
    (re.compile(r"^v_(maxmin|minmax)_num_(f\d+)"), r"v_\1_\2"),
    (re.compile(r"^v_mad_co_([ui])64"), r"v_mad_\g<1>64"),
    (re.compile(r"^s_(add|sub)_co_ci_u32"), r"s_\1c_u32"),
    (re.compile(r"^s_(add|sub)_co_([ui]32)"), r"s_\1_\2"),
    (re.compile(r"^s_addk_co_i32"), "s_addk_i32"),
    (re.compile(r"^s_(and|or)_not1_"), r"s_\1n2_"),
    (re.compile(r"^s_(and|or)_not0_"), r"s_\1n1_"),
    (
        re.compile(r"^v_(subc|subrevc)_co_u32"),
        lambda found: {"subc": "v_subb", "subrevc": "v_subbrev"}[found[1]] + "_co_u32",
    ),
    (re.compile(r"^s_subc_u32"), "s_subb_u32"),
)
_FAMILIES: tuple[tuple[re.Pattern, Builder], ...] = tuple(
    (re.compile(pattern), builder)
    for pattern, builder in (
        (r"v_dual_", dual.build),
        (hardware_registers.NAMES.pattern, hardware_registers.build),
        (r"v_(mfma|wmma)_", matrix.build),
        (
            r"(global|buffer|flat)_atomic_|ds_(r?sub|add|inc|dec|max|min|and|or|xor|mskor|cmpst|cmpstore|pk_add|cond_sub|"
            r"wrxchg|storexchg)",
            atomics.build,
        ),
        (r"scratch_", scratch.build),
        (r"(global|buffer|flat)_|s_(buffer_)?load_", global_memory.build),
        (r"ds_(bpermute|permute|swizzle)|v_(readlane|readfirstlane|writelane|permlane|mbcnt)", cross_lane.build),
        (r"ds_", local_data.build),
        (r"s_getpc|s_mem(real)?time|s_sendmsg_rtn", place_and_time.build),
        (r"s_|v_s_", scalar.build),
        (many_floats.NAMES.pattern, many_floats.build),
        (small_floats.NAMES.pattern, small_floats.build),
        (r"v_(pk_|fma_mix|mad_mix)", packed.build),
        (r"v_", vector.build),
    )
)


def nothing(w) -> None:
    """The step of an instruction that has no effect here."""


@dataclass(frozen=True)
class Unknown:
    """The step of an instruction that no table knows: it says so."""

    instruction: Decoded

    def __call__(self, w) -> None:
        raise UnknownInstruction(self.instruction)


def plain_name(mnemonic: str) -> str:
    """A mnemonic as the tables have it: gfx9's name, without the suffixes of its encoding."""
    name = mnemonic.removesuffix("_dpp").removesuffix("_e64")
    for pattern, newer in _NEWER_NAMES:
        name = pattern.sub(newer, name)
    return name


def known(instruction: Decoded, target: Target) -> bool:
    """Whether a table knows the instruction, with its operands and modifiers."""
    return not isinstance(build(instruction, target), Unknown)


def build(instruction: Decoded, target: Target) -> Step:
    """The function that executes one instruction on the waves; of an unknown one, a function that says so."""
    name = plain_name(instruction.mnemonic)
    if _NOTHING.fullmatch(name):
        return nothing
    for pattern, builder in _FAMILIES:
        if pattern.match(name):
            if instruction.kind == "scratch" and builder is global_memory.build:
                builder = scratch.build
            try:
                step = builder(name, instruction, target)
            except (LookupError, ValueError):  # no entry, or an operand or modifier that the entry knows nothing of
                return Unknown(instruction)
            return Unknown(instruction) if instruction.modifiers.unasked() - _HINTS else step
    return Unknown(instruction)
