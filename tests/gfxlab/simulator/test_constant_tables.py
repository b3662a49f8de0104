"""Kernels that read tables which stand beside their code."""

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from gfxlab.engine import dual_mode
from gfxlab.simulator import simulate

compiles = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")


@triton.jit
def bessel_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, libdevice.j1(tl.load(x_ptr + offs)))


@compiles
@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_a_place_within_a_table(arch):
    """Which piece of the table of coefficients is read depends on the argument."""
    x, y = torch.linspace(0, 30, 128), torch.zeros(128)
    simulate(bessel_kernel, (1,), (x, y), N=128, arch=arch)
    torch.testing.assert_close(y, torch.special.bessel_j1(x), atol=1e-5, rtol=1e-5)
