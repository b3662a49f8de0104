"""Division: the three instructions around a reciprocal give the correctly rounded quotient."""

import numpy as np
import pytest
from exact import F32, F32_EDGES, divide
from one_instruction import execute

from gfxlab.simulator.compiled.extension import VARIABLE

# What LLVM emits for a / b with denormals kept: a in register 2, b in register 4.
DIVISION = """
    v_div_scale_f32 v5, {any}, v4, v4, v2
    v_rcp_f32_e32 v6, v5
    v_div_scale_f32 v7, {vcc}, v2, v4, v2
    v_fma_f32 v8, -v5, v6, 1.0
    v_fma_f32 v6, v8, v6, v6
    v_mul_f32_e32 v8, v7, v6
    v_fma_f32 v9, -v5, v8, v7
    v_fma_f32 v8, v9, v6, v8
    v_fma_f32 v9, -v5, v8, v7
    v_div_fmas_f32 v8, v9, v6, v8
    v_div_fixup_f32 v10, v8, v4, v2
"""
REGISTERS = {"gfx942": {"any": "s[4:5]", "vcc": "vcc"}, "gfx1100": {"any": "null", "vcc": "vcc_lo"}}


def _pairs() -> dict[str, np.ndarray]:
    """Pairs of float32 codes; groups that have nothing special in them take shorter ways through the simulator."""
    generator = np.random.default_rng(0)
    edges = np.array(F32_EDGES, np.uint32)
    any_bits = generator.integers(0, 1 << 32, (4096, 2), np.uint32)
    denormal = any_bits[:1024] & np.uint32(0x807FFFFF)
    far_apart = any_bits[:1024] & np.array([0x83FFFFFF, 0xFFFFFFFF], np.uint32) | np.array([0, 0x7C000000], np.uint32)
    exponents = any_bits >> 23 & 0xFF
    return {
        "edges": np.stack(np.meshgrid(edges, edges), axis=-1).reshape(-1, 2)[:1728],
        "any": any_bits,
        "normal": any_bits[((exponents > 0) & (exponents < 255)).all(axis=1)][:3968],
        "ordinary": any_bits & np.uint32(0x87FFFFFF) | np.uint32(0x38000000),
        "denormal": denormal,
        "half denormal": np.where(generator.random((1024, 2)) < 0.5, any_bits[1024:2048], denormal),
        "far apart": np.concatenate([far_apart, far_apart[:, ::-1]]),
    }


PAIRS = _pairs()


@pytest.mark.parametrize("group", PAIRS)
@pytest.mark.parametrize("arch", REGISTERS)
def test_the_quotient_is_correctly_rounded(arch, group):
    a, b = PAIRS[group].T.copy()
    lanes = 64 if arch == "gfx942" else 32
    text = DIVISION.format(**REGISTERS[arch])
    w = execute(text, arch=arch, V={2: a.reshape(-1, lanes), 4: b.reshape(-1, lanes)}, waves=a.size // lanes)
    wrong = [
        f"{x:#x} / {y:#x} = {found:#x}, not {divide(F32, x, y):#x}"
        for x, y, found in zip(a.tolist(), b.tolist(), w.V[10].reshape(-1).tolist())
        if not F32.same(found, divide(F32, x, y))
    ]
    assert not wrong, f"{len(wrong)} of {a.size} wrong: {'; '.join(wrong[:10])}"


@pytest.mark.parametrize("arch", REGISTERS)
@pytest.mark.parametrize("compiled", [True, False])
def test_an_estimate_that_is_no_number_is_a_quotient_too_large(arch, compiled, monkeypatch):
    """As a card has it: infinity minus infinity on the way, whatever the exponents of numerator and denominator."""
    if not compiled:
        monkeypatch.setenv(VARIABLE, "0")
    nan, one, minus = 0x7FC00000, 0x3F800000, 0xBF800000
    single = execute("v_div_fixup_f32 v10, v2, v3, v4", arch=arch, V={2: nan, 3: minus, 4: one})
    assert single.V[10, 0, 0] == 0xFF800000
    half = execute("v_div_fixup_f16 v10, v2, v3, v4", arch=arch, V={2: 0x7E00, 3: 0xBC00, 4: 0x3C00})
    assert half.V[10, 0, 0] & 0xFFFF == 0xFC00
    V = {3: 0x7FF80000, 5: 0x3FF00000, 7: 0x3FF00000}
    double = execute("v_div_fixup_f64 v[10:11], v[2:3], v[4:5], v[6:7]", arch=arch, V=V)
    assert double.V[11, 0, 0] == 0x7FF00000
