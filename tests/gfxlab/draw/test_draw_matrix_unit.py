"""The picture of a matrix instruction: its layout is what the simulator executes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gfxlab import draw, simulator
from gfxlab.simulator.instructions.matrix import layout

CASES = [  # arch, side of the tiles, instruction
    ("gfx90a", 32, "v_mfma_f32_32x32x8f16"),
    ("gfx942", 32, "v_mfma_f32_32x32x8_f16"),
    ("gfx942", 16, "v_mfma_f32_16x16x16_f16"),
    ("gfx950", 32, "v_mfma_f32_32x32x16_f16"),
    ("gfx1100", 16, "v_wmma_f32_16x16x16_f16"),
    ("gfx1201", 16, "v_wmma_f32_16x16x16_f16"),
]


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    places = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c_ptr + places, tl.dot(tl.load(a_ptr + places), tl.load(b_ptr + places)))


@pytest.mark.parametrize(("arch", "side", "name"), CASES)
def test_the_lanes_of_the_layout_hold_those_elements(arch, side, name):
    """One step of the machine code: every register of every lane of the result is the sum that the layout says."""
    a, b = torch.randn(2, side, side, generator=torch.Generator().manual_seed(0)).half()
    walk = simulator.step(dot_kernel, (1,), (a, b, torch.empty(side, side)), N=side, num_warps=1, arch=arch)
    frame = [one for one in walk if one.instruction.kind == "matrix"][-1]
    assert frame.instruction.mnemonic.removesuffix("_e64") == name
    held = layout(name, arch)
    got = np.stack([vector.after.view("float32") for vector in frame.vectors if vector.written], axis=1)
    expected = (a.double() @ b.double()).numpy()
    product, transposed = (x.reshape(-1)[held.result] for x in (expected, expected.T))  # Triton may exchange A and B
    assert got.shape == held.result.shape
    assert np.allclose(got, product, atol=1e-2) or np.allclose(got, transposed, atol=1e-2)


@pytest.mark.parametrize(("arch", "side", "name"), CASES)
def test_every_element_is_held_as_often_as_the_picture_says(arch, side, name):
    held = layout(name, arch)
    assert sorted(held.result.reshape(-1)) == list(range(held.m * held.n))
    pairs = held.row[:, None] * held.k + held.operand
    counts = np.bincount(pairs.reshape(-1), minlength=held.m * held.k)
    times = 2 if arch == "gfx1100" else 1
    assert (counts == times).all()
    assert f"the wave holds A and B {'2 times' if times == 2 else 'once'}" in str(draw.matrix_unit(name, arch))


def test_the_lane_is_marked_in_all_three_matrices():
    picture = draw.matrix_unit("v_mfma_f32_32x32x8_f16", lane=37)
    assert picture.text.splitlines() == [
        "v_mfma_f32_32x32x8_f16 on gfx942: 32 x 32 results, 8 products each, in one instruction",
        "  lane 37: row 5 of A and column 5 of B, each for k = 4-7 (the wave holds A and B once)",
        "  lane 37: column 5 of D, rows 4-7, 12-15, 20-23, 28-31",
    ]
    assert picture.svg.count("lane 37, element") == 4 + 4 + 16
    assert "row 4, column 5" in picture.svg and "lanes 32 to 63" in picture.svg


@pytest.mark.parametrize(("name", "numbered"), [("v_mfma_f32_32x32x8_f16", False), ("v_mfma_f32_16x16x16_f16", True)])
def test_elements_are_numbered_where_there_is_room(name, numbered):
    picture = draw.matrix_unit(name)
    assert ("numbered as its registers are" in picture.svg) == (">3</text>" in picture.svg) == numbered


def test_what_cannot_be_drawn_is_refused():
    for name in ("v_add_f32", "v_mfma_f32_4x4x4_16b_f16", "v_mfma_f64_16x16x4_f64"):
        with pytest.raises(ValueError, match="no matrix instruction"):
            draw.matrix_unit(name)
    with pytest.raises(ValueError, match="lanes 0 to 31; got lane 32"):
        draw.matrix_unit("v_wmma_f32_16x16x16_f16", "gfx1100", lane=32)
