"""What the extension executes comes out bit for bit as the steps of Python: every operation, modifier, mask."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from one_instruction import signature, steps

from gfxlab.simulator.compiled import extension
from gfxlab.simulator.compiled.runs import Run
from gfxlab.simulator.core.memory import LocalData
from gfxlab.simulator.core.operands import EXEC
from gfxlab.simulator.core.state import Waves
from gfxlab.simulator.core.values import NARROW, WIDE
from gfxlab.simulator.instructions import Step, scalar, vector

pytestmark = pytest.mark.skipif(extension.EXTENSION is None, reason="the extension is not built")


@pytest.fixture(autouse=True)
def _both_ways(monkeypatch):
    """Also where the whole run leaves the extension unused."""
    monkeypatch.delenv(extension.VARIABLE, raising=False)


REGISTERS = 64
MASKS = ("all", "some", "none", "live")
WAVES, LIVE = 5, np.array([True, False, True, True, False])
# Floats of both sizes: zeros, denormals, ties, the largest, infinities, quiet and signalling NaN; ends of integers.
EDGES = np.array(
    [
        *(0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3FC00000, 0x7F7FFFFF),
        *(0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC01234, 0x7F800001, 0x7FBADBAD, 0x7FFFFFFF, 0xFFFFFFFF),
        *(0x4B000001, 0x4F000000, 0xCF000000, 0x4F800000, 0x477FE000, 0x477FF000, 0x33000000, 0x33000001, 0x387FC000),
        *(0x3C003C00, 0xFC007C00, 0x7E000001, 0x00010400, 0x7BFF03FF, 0x80008000, 31, 32, 33, 63, 64, 0xFFFF, 0x8000),
        *(0x03020100, 0x07060504, 0x0C0D0E0F, 0x05010400, 0x0B0A0908, 0x00FF00FF, 0x12345678, 0x3F8CCCCD, 0x1E3CE508),
        *(0x5E800000, 0x72000000, 0x0B800000, 0x00400000, 0x7E800000, 0x01000000, 0x42C80000, 0xC1200000),
    ],
    np.uint32,
)
SCALARS = {5: 0x3FC00000, 6: 3, 7: 0xFFFFFFFE, 16: 0xF0F0A5A5, 17: 0x0000FFFF, 106: 0x0F0F1234, 107: 0x87654321}
DPP = ("quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf", "row_shr:3 row_mask:0x5 bank_mask:0xe bound_ctrl:1")
_ARGUMENTS = {"mask": "s[16:17]", **dict.fromkeys(WIDE, "v[{0}:{1}]")}


@cache
def words(seed: int, *shape: int) -> np.ndarray:
    chance = np.random.default_rng(seed)
    ordinary = (chance.standard_normal(shape) * 8).astype(np.float32).view(np.uint32)
    edge = EDGES[chance.integers(0, len(EDGES), shape)]
    return np.where(chance.random(shape) < 0.6, edge, ordinary)


def begin(lanes: int, mask: str, seed: int, V: dict[int, np.ndarray]) -> Waves:
    """Waves that hold everything odd; mask: "all", "some", "none", or "live" for some of the waves only."""
    w = Waves(WAVES, lanes, REGISTERS, 1)
    w.V[:24] = words(seed, 24, WAVES, lanes)
    for register, value in V.items():
        w.V[register] = value
    for number, value in SCALARS.items():
        w.S[:, number] = value
    w.S[:, 20:30] = words(seed + 2, WAVES, 10)
    w.lds = LocalData(WAVES, 512)
    w.lds.content[:] = np.arange(w.lds.content.size) * 37 >> 2
    w.SCC[:] = [True, False, True, False, True]
    on = np.random.default_rng(seed).random((WAVES, lanes)) < {"all": 2, "none": 0}.get(mask, 0.6)
    if mask == "some":
        on[1] = False
    w.write_lane_mask(EXEC, on)
    w.select(LIVE if mask == "live" else None)
    return w


def after(made: list[Step], arch: str, mask: str, seed: int, V: dict[int, np.ndarray]) -> tuple[np.ndarray, ...]:
    """All registers, and LDS, after these steps."""
    w = begin(64 if arch.startswith("gfx9") else 32, mask, seed, V)
    with np.errstate(all="ignore"):
        for step in made:
            step(w)
    return w.everything(np.ones(WAVES, bool))


def same(text: str, monkeypatch, arch: str = "gfx942", masks=MASKS, seed: int = 0, V=None) -> bool:
    """Compare both ways; whether the extension does all of it. V: what registers hold, instead of odd words."""
    compiled = steps(text, arch, registers=REGISTERS)
    monkeypatch.setenv(extension.VARIABLE, "0")
    by_numpy = steps(text, arch, registers=REGISTERS)
    for mask in masks:
        monkeypatch.delenv(extension.VARIABLE)
        got = after(compiled, arch, mask, seed, V or {})
        monkeypatch.setenv(extension.VARIABLE, "0")
        wanted = after(by_numpy, arch, mask, seed, V or {})
        for name, a, b in zip(("V", "S", "SCC", "EXEC", "LDS"), got, wanted):
            if not np.array_equal(a, b) and not (name == "V" and which_nan(text) and alike(a, b)):
                place = tuple(int(i) for i in np.argwhere(a != b)[0])
                pytest.fail(f"{text} on {arch}, lanes {mask}: {name}{place} is {a[place]:#x}, not {b[place]:#x}")
    monkeypatch.delenv(extension.VARIABLE)
    return all(isinstance(step, Run) for step in compiled)


def which_nan(text: str) -> bool:
    """Whether numpy and C may differ in whose NaN goes on where several sources are one: neither says."""
    names = (
        "add|sub|subrev|mul|fma|fma_mix|fma_mixlo|fma_mixhi|fmac|fmaak|fmamk|mac|mad|madak|madmk|m\\w+imum3?|div_fmas"
    )
    return bool(re.match(rf"v_(pk_)?({names})_f(16|32)", text))


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, but for which NaN it is: of float32, or of float16 where that is what differs."""
    odd = a != b
    single = np.isnan(a[odd].view(np.float32)) & np.isnan(b[odd].view(np.float32))
    halves = [np.stack([a, b])[:, odd] >> shift & 0xFFFF for shift in (0, 16)]
    fits = [(x[0] == x[1]) | np.isnan(x.astype(np.uint16).view(np.float16)).all(axis=0) for x in halves]
    return bool((single | np.logical_and(*fits)).all())


def operand(kind: str, first: int) -> str:
    return _ARGUMENTS.get(kind, "v{0}").format(first, first + 1)


def arguments(name: str) -> tuple[list[str], list[str], list[str]]:
    """Results, sources, and the sources' kinds of a vector instruction."""
    op = vector.TABLE[name]
    kinds = signature(op)
    results = ["s[24:25]" if kind == "mask" else operand(kind, 10) for kind in op.results]
    return results, [operand(kind, 2 * place) for place, kind in enumerate(kinds)], kinds


def vector_texts(name: str) -> Iterator[str]:
    """With registers, a scalar and a constant in each place, the result where a source is, modifiers."""
    op = vector.TABLE[name]
    results, sources, kinds = arguments(name)
    yield f"{name} {', '.join([*results, *sources])}"
    for place, kind in enumerate(kinds):
        if kind == "mask":
            continue
        for other in ("s[28:29]", "-1") if kind in WIDE else ("s5", "1.0" if kind[0] == "f" else "7", "0x12345"):
            changed = [*sources[:place], other, *sources[place + 1 :]]
            yield f"{name} {', '.join([*results, *changed])}"
    if results[0].startswith("v"):
        yield f"{name} {', '.join([sources[0] if kinds[0] not in WIDE else 'v[0:1]', *results[1:], *sources])}"
    if kinds[0] in ("f32", "f16"):
        signed = [f"-|{source}|" if kind[0] == "f" else source for source, kind in zip(sources, kinds)]
        yield f"{name} {', '.join([*results, *signed])}"
    if len(sources) < 3 and not {*kinds, *op.results} & {"mask", *WIDE}:
        for dpp in DPP:
            yield f"{name} {', '.join([*results, *sources])} {dpp}"
    if any(kind in NARROW for kind in kinds):
        yield f"{name} {', '.join([*results, *sources])} op_sel:[{','.join(['1'] * len(sources))},1]"
    elif len(sources) < 3 and not set(kinds) & {"mask", *WIDE} and results[0][0] == "v":
        parts = f"dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1{' src1_sel:BYTE_3' * (len(sources) > 1)}"
        extended = [f"sext({source})" if kind == "i32" else source for source, kind in zip(sources, kinds)]
        yield f"{name} {', '.join([*results, *extended])} {parts}"


VECTORS = sorted(set(extension.EXTENSION.OPERATIONS) & vector.TABLE.keys()) if extension.EXTENSION else []


def test_every_operation_is_an_instruction():
    assert VECTORS and set(extension.EXTENSION.OPERATIONS) <= vector.TABLE.keys()
    assert set(extension.EXTENSION.SCALAR_OPERATIONS) <= scalar.TABLE.keys()


@pytest.mark.parametrize("name", VECTORS)
def test_lane_by_lane(name, monkeypatch):
    first, *others = vector_texts(name)
    assert same(first, monkeypatch)
    left = [text for text in others if not same(text, monkeypatch, masks=("all", "live"))]
    assert not left


def scalar_texts(name: str) -> Iterator[str]:
    op = scalar.TABLE[name]
    count = 1 if name.startswith(SINGLE) else 2
    wide = [kind in WIDE for kind in op.kinds(count)]
    registers = [("s[22:23]", "s[26:27]")[place] if one else ("s20", "s24")[place] for place, one in enumerate(wide)]
    result = [] if op.scc == "only" else ["s[28:29]" if op.result in WIDE else "s28"]
    yield f"{name} {', '.join([*result, *registers])}"
    yield f"{name} {', '.join([*result, *registers[:-1], '-5'])}"
    yield f"{name} {', '.join([*result, '0x80000001', *registers[1:]])}"


SINGLE = ("s_mov", "s_not", "s_brev", "s_abs", "s_sext")
SCALAR_UNIT = sorted(extension.EXTENSION.SCALAR_OPERATIONS) if extension.EXTENSION else []


@pytest.mark.parametrize("name", SCALAR_UNIT)
def test_scalar_unit(name, monkeypatch):
    seeds = range(2 if name.startswith(SINGLE) else 4)
    left = [t for t in scalar_texts(name) for seed in seeds if not same(t, monkeypatch, masks=("live",), seed=seed)]
    assert not left


OTHERS = {
    "gfx942": """
        s_movk_i32 s20, -7 | s_addk_i32 s20, 0x7fff | s_mulk_i32 s20, -3 | s_cmpk_lt_i32 s20, -1 | s_cmpk_gt_u32 s20, 9
        v_pk_add_f32 v[10:11], v[2:3], v[4:5] | v_pk_mul_f32 v[2:3], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1]
        v_pk_fma_f32 v[2:3], v[4:5], v[2:3], v[6:7] op_sel_hi:[0,1,1] neg_lo:[1,0,0] neg_hi:[0,0,1]
        v_pk_mul_f32 v[10:11], v[2:3], s[28:29] op_sel_hi:[1,0] | v_pk_mov_b32 v[2:3], v[3:4], v[2:3] op_sel:[1,0]
        v_pk_add_f16 v10, v2, v4 op_sel:[1,0] neg_hi:[1,0] | v_pk_mul_f16 v10, v2, 1.0 | v_pk_max_f16 v10, v10, s5
        v_pk_add_u16 v10, v2, v4 op_sel_hi:[0,1] | v_pk_lshlrev_b16 v10, 3, v2 | v_pk_min_i16 v10, v2, v4
        v_fma_mix_f32 v10, v2, v4, v6 op_sel:[1,0,0] op_sel_hi:[1,1,0] | v_fma_mixlo_f16 v10, v2, -v4, |v6|
        v_fma_mixhi_f16 v2, v2, v4, v6 op_sel_hi:[0,1,1] | v_readfirstlane_b32 s20, v2 | v_readlane_b32 s20, v2, 7
        ds_bpermute_b32 v2, v4, v2 offset:12
    """,
    "gfx1100": """
        v_dual_mov_b32 v10, v2 :: v_dual_mov_b32 v2, v10 | v_dual_mul_f32 v11, v2, v4 :: v_dual_add_nc_u32 v2, v11, v6
        v_dual_cndmask_b32 v10, v2, v4 :: v_dual_max_f32 v11, v2, v6 | v_cmp_lt_f32_e64 s20, v2, v4
        v_dual_fmac_f32 v10, v2, v4 :: v_dual_lshlrev_b32 v11, 3, v10 | v_cndmask_b32_e64 v10, v2, v4, s20
        v_add_f16 v10.h, v2.l, v4.h | v_mov_b16_e32 v10.l, v2.h | v_add_f32 v10, v2, v4 dpp8:[7,6,5,4,3,2,1,0]
        v_add_co_ci_u32_e64 v10, s20, v2, v4, s21 | v_add_nc_u32_dpp v10, v2, v4 row_share:3 row_mask:0xf bank_mask:0xf
    """,
}


LINES = [(arch, line.strip()) for arch, lines in OTHERS.items() for line in re.split(r" \| |\n", lines) if line.strip()]


@pytest.mark.parametrize(("arch", "text"), LINES)
def test_others(arch, text, monkeypatch):
    assert same(text, monkeypatch, arch)


PRODUCTS = [
    ("gfx942", "v_mfma_f32_32x32x8_f16 v[32:47], v[2:3], v[4:5], v[32:47]", "f16"),
    ("gfx942", "v_mfma_f32_16x16x16_bf16 v[32:35], v[2:3], v[4:5], v[40:43]", "bf16"),
    ("gfx942", "v_mfma_f32_16x16x4_f32 v[2:5], v2, v3, 1.0", "f32"),
    ("gfx942", "v_mfma_f32_32x32x2_f32 v[32:47], v2, v3, 0", "f32"),
    ("gfx950", "v_mfma_f32_16x16x32_f16 v[32:35], v[2:5], v[4:7], v[32:35]", "f16"),
    ("gfx1100", "v_wmma_f32_16x16x16_f16 v[32:39], v[2:9], v[10:17], v[32:39]", "f16"),
    ("gfx1201", "v_wmma_f32_16x16x16_bf16 v[32:39], v[2:5], v[6:9], v[32:39]", "bf16"),
]


@pytest.mark.parametrize(("arch", "text", "kind"), PRODUCTS)
def test_matrix_products(arch, text, kind, monkeypatch):
    chance, lanes = np.random.default_rng(5), 64 if arch.startswith("gfx9") else 32
    shape = 48, WAVES, lanes
    numbers = [chance.standard_normal(shape) * 2.0 ** chance.integers(-9, 9, shape) for _ in range(2)]
    numbers[0][2, 0, :3] = (np.inf, -0.0, 1e-7)
    single = [x.astype(np.float32).view(np.uint32) for x in numbers]
    low, high = (x.astype(np.float16).view(np.uint16).astype(np.uint32) for x in numbers)
    both = {"f32": single[0], "bf16": single[0] >> 16 | single[1] & 0xFFFF0000, "f16": low | high << 16}[kind]
    V = {register: (both if register < 32 else single[0])[register] for register in range(48)}
    assert same(text, monkeypatch, arch, masks=("all", "live"), V=V)


SETS = extension.EXTENSION.INSTRUCTION_SETS if extension.EXTENSION else ("",)


@pytest.fixture(params=SETS[1:] or SETS)
def _other_instruction_set(request):
    """One that a processor has which is not this one; the best one is what all other tests use."""
    extension.EXTENSION.choose(request.param)
    yield
    extension.EXTENSION.choose(SETS[0])


@pytest.mark.usefixtures("_other_instruction_set")
def test_lane_by_lane_on_other_processors(monkeypatch):
    for name in VECTORS:
        assert same(next(vector_texts(name)), monkeypatch, masks=("live",), seed=1)


@pytest.mark.usefixtures("_other_instruction_set")
@pytest.mark.parametrize(("arch", "text", "kind"), PRODUCTS[:3])
def test_matrix_products_on_other_processors(arch, text, kind, monkeypatch):
    test_matrix_products(arch, text, kind, monkeypatch)


def test_there_are_no_other_instruction_sets():
    with pytest.raises(ValueError, match='no instruction set "mmx"'):
        extension.EXTENSION.choose("mmx")


LANES = np.arange(64)
ADDRESSES = {
    "side by side": LANES * 4,
    "far apart": LANES * 16 % 496,
    "for one word": 0 * LANES + 64,
    "not aligned": LANES * 7 + 1,
    "beyond the end": LANES * 16 + 8 * (LANES % 3) - 32,
}
LOCAL = """
    ds_read_b32 v10, v1 | ds_read_b64 v[10:11], v1 offset:8 | ds_read_b128 v[0:3], v1 | ds_read_b96 v[10:12], v1
    ds_read2_b32 v[1:2], v1 offset1:9 | ds_read2st64_b64 v[10:13], v1 offset1:1 | ds_read_u8 v10, v1
    ds_read_i8 v10, v1 | ds_read_u16 v10, v1 offset:2 | ds_read_i16 v10, v1 | ds_read_u16_d16_hi v10, v1
    ds_write_b32 v1, v2 | ds_write_b64 v1, v[2:3] offset:16 | ds_write_b128 v1, v[4:7] | ds_write_b8 v1, v2
    ds_write_b16 v1, v2 | ds_write2_b32 v1, v2, v3 offset1:5 | ds_write_b96 v1, v[2:4] | ds_write_b16_d16_hi v1, v2
"""


@pytest.mark.parametrize("where", ADDRESSES)
def test_local_data(where, monkeypatch):
    address = np.broadcast_to(ADDRESSES[where], (WAVES, 64)).astype(np.uint32)
    for text in re.split(r" \| |\n", LOCAL.strip()):
        same(text.strip(), monkeypatch, V={1: address})
