"""libdevice's functions in the interpreter: what AMD's device library computes, however a kernel names them."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.hip import libdevice as of_amd
from triton.language.extra.libdevice import rsqrt

from gfxlab.engine import dual_mode
from gfxlab.simulator import using


@pytest.fixture(autouse=True)
def interpreted():
    dual_mode.enable()


@triton.jit
def functions(x_ptr, n_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x, n = tl.load(x_ptr + offs), tl.load(n_ptr + offs)
    tl.store(out_ptr + offs, libdevice.asin(x))
    tl.store(out_ptr + BLOCK + offs, of_amd.erf(x))
    tl.store(out_ptr + 2 * BLOCK + offs, rsqrt(x))
    tl.store(out_ptr + 3 * BLOCK + offs, tl.extra.libdevice.pow(x, 2.5))
    tl.store(out_ptr + 4 * BLOCK + offs, libdevice.round(4 * x - 2))
    tl.store(out_ptr + 5 * BLOCK + offs, libdevice.isnan(libdevice.log(x - 0.5)).to(tl.float32))
    tl.store(out_ptr + 6 * BLOCK + offs, libdevice.ldexp(x, n))
    tl.store(out_ptr + 7 * BLOCK + offs, libdevice.signbit(x - 0.5).to(tl.float32))
    tl.store(out_ptr + 8 * BLOCK + offs, libdevice.cyl_bessel_i0(x))
    tl.store(out_ptr + 9 * BLOCK + offs, libdevice.fma(x, x, -x))


@triton.jit
def leading(n_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, libdevice.clz(tl.load(n_ptr + offs)))


def test_they_compute_what_the_machine_code_computes():
    x = torch.cat([torch.tensor([0.125, 0.375, 0.625, 0.875]), torch.rand(28, generator=torch.manual_seed(0))])
    n = torch.arange(-16, 16, dtype=torch.int32)
    interpreted, machine = torch.zeros(10, 32), torch.zeros(10, 32)
    functions[(1,)](x, n, interpreted, BLOCK=32)
    with using("gfx942"):
        functions[(1,)](x, n, machine, BLOCK=32)
    torch.testing.assert_close(interpreted, machine, rtol=4e-7, atol=1e-7)
    torch.testing.assert_close(interpreted[0], torch.asin(x))
    assert interpreted[4, :4].tolist() == [-2.0, -1.0, 1.0, 2.0]  # halves away from zero
    assert interpreted[7, :4].tolist() == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.skipif(not hasattr(of_amd, "clz"), reason="AMD's libdevice has clz from Triton 3.8 on")
def test_leading_zeros():
    n, out = torch.tensor([0, 1, -1, 1 << 20], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    leading[(1,)](n, out, BLOCK=4)
    assert out.tolist() == [32, 31, 0, 11]


@triton.jit
def not_amd_s(x_ptr):
    tl.store(x_ptr, libdevice.cbrt(tl.load(x_ptr)))


def test_what_amd_does_not_have_is_refused_as_the_compiler_refuses_it():
    with pytest.raises(AttributeError, match="no attribute 'cbrt'"):
        not_amd_s[(1,)](torch.ones(1))


@triton.jit
def exponents(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, libdevice.ilogb(tl.load(x_ptr + offs)))


def test_exponents_at_the_ends():
    x, out = torch.tensor([0.0, np.nan, np.inf, 0.75]), torch.zeros(4, dtype=torch.int32)
    exponents[(1,)](x, out, BLOCK=4)
    assert out.tolist() == [-(2**31), 2**31 - 1, 2**31 - 1, -1]
