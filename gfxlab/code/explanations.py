"""Machine instructions in plain words, for a reader who has never seen AMD assembly.

The meanings are those of AMD's published instruction set manuals (CDNA 2 to 4, RDNA 3 and 4).
"""

from __future__ import annotations

import re
from functools import cache

from gfxlab.code import isa

KIND_WORDS: dict[str, str] = {
    "matrix": "multiply two small matrices in the matrix units",
    "scratch": "private memory of each lane; here it holds what did not fit into registers",
    "global load": "read from the GPU's memory",
    "global store": "write to the GPU's memory",
    "atomic": "read, change and write memory in one step that nobody can interrupt",
    "cache": "make this compute unit's cache forget, so that it sees what others wrote",
    "cross-lane": "pass values between the lanes of a wave",
    "LDS": "memory that the waves of a workgroup share",
    "scalar load": "read something that is the same for the whole wave, such as a kernel argument",
    "barrier": "wait until every wave of the workgroup is here",
    "wait": "wait for memory or for an earlier result",
    "branch": "go on elsewhere",
    "transcendental": "exp, log, root, reciprocal: a quarter of the rate of an addition",
    "register copy": "move a value between registers",
    "vector": "arithmetic on all lanes of a wave",
    "scalar": "arithmetic that is done once for the whole wave",
    "other": "",
}

_TYPES = {
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "u16": "16-bit", "i16": "16-bit", "b16": "16-bit",
    "u32": "32-bit", "i32": "32-bit", "b32": "32-bit", "u64": "64-bit", "i64": "64-bit", "b64": "64-bit",
}  # fmt: skip

# Mnemonic pattern -> words. {bits} is the width of a memory access, {type} the operand type, {1} {2} ... the groups.
_RULES: tuple[tuple[str, str], ...] = (
    # memory
    (r"(?:global|buffer|flat)_load_lds_", "copy {bits} bits per lane from memory straight into LDS"),
    (r"buffer_load_", "read {bits} bits per lane; lanes with an offset out of range read 0 (a mask)"),
    (r"buffer_store_", "write {bits} bits per lane; lanes with an offset out of range write nothing (a mask)"),
    (r"(?:global|flat)_load_", "read {bits} bits per lane from memory"),
    (r"(?:global|flat)_store_", "write {bits} bits per lane to memory"),
    (r"(?:global|buffer|flat)_atomic_(\w+)", "atomic {1} in memory"),
    (r"s_(?:buffer_)?load_", "read {bits} bits for the whole wave (kernel arguments, uniform values)"),
    (r"scratch_load_", "read back {bits} bits per lane from private memory"),
    (r"scratch_store_", "put {bits} bits per lane aside in private memory"),
    (r"ds_(?:read|load)\w*_tr_", "read {bits} bits per lane from LDS, transposed for the matrix units"),
    (r"ds_(?:read|load)", "read {bits} bits per lane from LDS"),
    (r"ds_(?:write|store)", "write {bits} bits per lane to LDS"),
    (r"ds_swizzle", "exchange values between lanes in a fixed pattern"),
    (r"ds_b?permute", "fetch a value from the lane whose number is given"),
    # cross-lane
    (r"v_readfirstlane", "copy the first lane's value into a scalar register"),
    (r"v_readlane", "copy one lane's value into a scalar register"),
    (r"v_writelane", "write a scalar into one lane"),
    (r"v_permlane", "exchange values between halves or rows of a wave"),
    (r"v_mov_b32_dpp", "copy from a neighbouring lane"),
    (r"v_(\w+?)_[a-z]+\d+_dpp", "{1}, one operand taken from a neighbouring lane (a step of a reduction)"),
    # matrix
    (r"v_(?:mfma|wmma)", "{shape}: multiply two tiles and add the result to an accumulator"),
    (r"v_accvgpr_(?:read|write|mov)", "move between vector registers and accumulators"),
    # transcendental
    (r"v_exp_", "2 to the power of x, {type}"),
    (r"v_log_", "logarithm to base 2, {type}"),
    (r"v_rcp_", "1 / x, {type}"),
    (r"v_rsq_", "1 / square root of x, {type}"),
    (r"v_sqrt_", "square root, {type}"),
    (r"v_(sin|cos|tanh)_", "{1}, {type}"),
    (r"v_div_\w+", "a step of an exact division"),
    # arithmetic
    (r"v_cmpx_(\w+?)_", "compare ({1}) and switch off the lanes where it is false"),
    (r"v_cmp_class", "test for NaN, infinity, zero ..."),
    (r"v_cmp_(\w+?)_", "compare ({1}): one bit per lane, for example a mask"),
    (r"v_(?:dual_)?cndmask", "choose one of two values by a bit per lane (tl.where, a mask)"),
    (r"v_pk_(fma|mul|add|max|min)_(\w+)", "{1} on two {type} values at once"),
    (r"v_(?:dual_)?(?:fma|fmac|fmamk|fmaak|fmaak)_", "a * b + c with one rounding, {type}"),
    (r"v_fma_mix", "a * b + c with one rounding, operands of mixed precision"),
    (r"v_dot2", "products of pairs, added up"),
    (r"v_(?:dual_)?(add|sub|subrev|mul|max|min)_(?:num_)?(?:b?f16|f32|f64)", "{1}, {type}"),
    (r"v_(max3|min3|med3|maximum3|minimum3)_", "{1} of three values, {type}"),
    (r"v_ldexp", "times a power of two"),
    (r"v_(frexp_\w+?)_", "split into mantissa and exponent"),
    (r"v_(rndne|floor|ceil|trunc|fract)_", "{1}, {type}"),
    (r"v_cvt_(\w+?)_(b?f\d+|fp8|bf8|u32|i32|u8|i16|u16|ubyte\d)", "convert {2} to {1}"),
    (r"v_bfrev", "reverse the bits (here often a constant)"),
    (r"v_(?:mov|dual_mov|swap)", "copy a register"),
    (r"v_perm_b32", "pick four bytes out of two registers"),
    (r"v_(?:alignbit|alignbyte)", "shift a pair of registers"),
    (r"v_mad_|v_mul_lo|v_mul_hi|v_mul_\w+24", "integer multiply (addresses, indices)"),
    (r"v_mbcnt", "which lane am I?"),
    (
        r"v_(?:lshl_add|add_lshl|lshl_or|and_or|xad|or3|xor3|add3|bitop3)",
        "two integer operations in one (addresses, indices)",
    ),
    (r"v_(add|sub|subrev)_(?:nc_|co_)?(?:ci_)?[ui]\d+|v_addc|v_subb", "integer add or subtract (addresses, indices)"),
    (r"v_(?:lshlrev|lshrrev|ashrrev|lshr|ashr)", "shift bits (bf16 <-> fp32, addresses)"),
    (r"v_(?:and|or|xor|not|bfe|bfi|bcnt|ffbh|ffbl|clz|ctz)", "bit operation"),
    # scalar
    (r"s_waitcnt|s_wait_(?:load|store|sample|ds|km|x)?cnt", "wait until earlier memory accesses are done"),
    (r"s_wait_alu|s_delay_alu|s_nop|s_wait_idle", "let an earlier result arrive"),
    (r"s_barrier", "wait until every wave of the workgroup is here"),
    (r"s_clause", "announce that the next memory instructions belong together"),
    (r"s_and_saveexec|s_or_saveexec", "switch lanes off by a mask, keep the old set"),
    (r"s_cbranch_exec", "skip what follows when no lane is switched on"),
    (r"s_cbranch", "jump if the condition holds (a loop, an if)"),
    (r"s_branch", "jump"),
    (r"s_endpgm", "the program ends"),
    (r"s_cmp|s_bitcmp", "compare scalars"),
    (r"s_cselect", "choose one of two scalars"),
    (r"s_mov|s_cmov|s_movk", "set a scalar register"),
    (r"s_(?:mul|add|sub|lsh|ash|min|max|abs)", "scalar arithmetic (program id, addresses, loop counters)"),
    (r"s_cvt", "convert a scalar between number types"),
    (r"s_(?:and|or|xor|not|bf|bitset|ff1|flbit|pack|cls|ctz|bcnt)", "scalar bit operation"),
    (r"s_(?:set|inst_prefetch|sendmsg|get|sext)", "control of the wave"),
)  # fmt: skip
_VERBS = {
    "mul": "multiply", "sub": "subtract", "subrev": "subtract", "max": "maximum", "min": "minimum", "fma": "a * b + c",
    "eq": "==", "ne": "!=", "lg": "!=", "neq": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "nlt": "not <", "nle": "not <=", "ngt": "not >", "nge": "not >=", "u": "unordered: NaN", "o": "ordered: no NaN",
}  # fmt: skip
_COMPILED = tuple((re.compile(pattern), words) for pattern, words in _RULES)
_TYPE = re.compile(r"_(b?f\d+|[uib]\d+)(?:_dpp)?$")


def explain(instruction: isa.Instruction) -> str:
    """What an instruction does, in a few plain words."""
    if instruction.spill:
        verb = "save" if "store" in instruction.mnemonic or "write" in instruction.mnemonic else "restore"
        return f"spill: {verb} a register that did not fit"
    return _words(instruction.mnemonic, instruction.bits) or KIND_WORDS[instruction.kind]


@cache
def _words(mnemonic: str, bits: int) -> str:
    for pattern, words in _COMPILED:
        if found := pattern.match(mnemonic):
            type_ = _TYPE.search(mnemonic)
            known = _TYPES.get(type_[1], type_[1]) if type_ else "32-bit"
            shape = isa.matrix_shape(mnemonic)
            groups = (_VERBS.get(group, group) for group in found.groups())
            return words.format(mnemonic, *groups, bits=bits or "some", type=known, shape=shape)
    return ""
