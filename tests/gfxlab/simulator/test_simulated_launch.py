"""Whole launches on the simulated GPUs."""

import pytest
import torch
import triton
import triton.language as tl

from gfxlab.engine import dual_mode
from gfxlab.simulator import IllegalAccess, UnknownInstruction, simulate

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")
ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n if MASKED else offs < n + BLOCK
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


@pytest.mark.parametrize("arch", ARCHS)
def test_adds(arch):
    x, y = torch.randn(1000), torch.randn(1000)
    out = torch.full((1000,), float("nan"))
    simulate(add_kernel, (4,), (x, y, out, 1000), arch=arch, BLOCK=256, MASKED=True)
    torch.testing.assert_close(out, x + y, atol=0, rtol=0)


@pytest.mark.parametrize("arch", ARCHS)
def test_names_the_element_past_the_end(arch):
    x, out = torch.randn(1000), torch.full((1000,), float("nan"))
    with pytest.raises(IllegalAccess, match=r"of program 3 loads element 1\d\d\d of x_ptr, past the end of its 1000"):
        simulate(add_kernel, (4,), (x, x, out, 1000), arch=arch, BLOCK=256, MASKED=False)


@triton.jit
def widen_kernel(x_ptr, out_ptr):
    offs = tl.arange(0, 256)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs).to(tl.float8e5, bitcast=True).to(tl.bfloat16))


@pytest.mark.parametrize("arch, infinity", [("gfx942", 2.0**16), ("gfx950", float("inf"))])
def test_float8_becomes_bfloat16_as_triton_has_written_it(arch, infinity):
    """By a product with 2**112 where there is no instruction for it: infinity is a number like the others there."""
    codes = torch.arange(256).to(torch.uint8)
    out = torch.empty(256, dtype=torch.bfloat16)
    simulate(widen_kernel, (1,), (codes, out), arch=arch, profile=False, num_warps=1)
    finite = codes % 128 < 0x7C
    assert torch.equal(out[finite], codes.view(torch.float8_e5m2)[finite].to(torch.bfloat16))
    assert out[0x7C] == infinity and out[0xFC] == -infinity


@triton.jit
def assembly_kernel(x_ptr, out_ptr, TEXT: tl.constexpr):
    offs = tl.arange(0, 64)
    x = tl.load(x_ptr + offs)
    y = tl.inline_asm_elementwise(TEXT, "=&v,v,~{s30},~{scc}", [x], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out_ptr + offs, y)


LINES = """v_mov_b32 $0, $1  // a remark
v_not_b32 $0, $0 /* v_mov_b32 $0, 0 */ ; another
    v_lshlrev_b32 $0, 1, $0"""
LOOP = """v_mov_b32 $0, 0
s_mov_b32 s30, 5
again_${:uid}:
v_sub_u32 $0, $0, $1
s_sub_u32 s30, s30, 1
s_cmp_lg_u32 s30, 0
s_cbranch_scc1 again_${:uid}"""


@pytest.mark.parametrize("text, expected", [(LINES, lambda x: ~x << 1), (LOOP, lambda x: -5 * x)])
def test_every_line_of_inline_assembly_counts(text, expected):
    """Those that begin at the margin too, with remarks and labels of their author's."""
    x, out = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    simulate(assembly_kernel, (1,), (x, out, text), profile=False, num_warps=1)
    assert torch.equal(out, expected(x))


def test_a_directive_in_inline_assembly_is_refused_by_name():
    x = torch.zeros(64, dtype=torch.int32)
    with pytest.raises(UnknownInstruction, match=r"`.rept 3`"):
        simulate(assembly_kernel, (1,), (x, x, ".rept 3\nv_not_b32 $0, $1\n.endr"), profile=False, num_warps=1)
