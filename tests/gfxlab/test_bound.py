"""A launch is bound once: who asks for its arguments, its grid or what the GPU is given asks `gfxlab.bound`."""

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gfxlab.bound import bind
from gfxlab.engine import dual_mode
from gfxlab.simulator import simulate

compiles = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")


@triton.jit
def scaled_kernel(x_ptr, y_ptr, scale: tl.bfloat16, n=8, BLOCK: tl.constexpr = 16):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    tl.store(y_ptr + offs, x * scale, mask=offs < n)


def test_each_parameter_has_its_argument_and_the_grid_is_asked_with_them():
    x = torch.ones(8)
    launch = bind(scaled_kernel, (x, x), {"scale": 2.0, "num_warps": 2}, lambda args: (args["n"] // args["BLOCK"] + 1,))
    assert launch.args == {"x_ptr": x, "y_ptr": x, "scale": 2.0, "n": 8, "BLOCK": 16}
    assert (launch.name, launch.meta, launch.grid) == ("scaled_kernel", {"num_warps": 2}, (1, 1, 1))
    assert bind(scaled_kernel, (x, x, 1.0), {}, 7).grid == (7, 1, 1)


def test_arguments_that_are_not_the_kernels_are_named():
    with pytest.raises(TypeError, match=r"scaled_kernel\(x_ptr, y_ptr, scale, n, BLOCK\): missing .*'scale'"):
        bind(scaled_kernel, (torch.ones(8), torch.ones(8)), {})


@compiles
def test_a_number_arrives_as_the_type_that_the_kernel_declares():
    x, y = torch.ones(8), torch.zeros(8)
    simulate(scaled_kernel, (1,), (x, y, 1 + 2**-8 + 2**-20))  # to nearest bfloat16, not cut off
    assert y.tolist() == [1.0078125] * 8
    simulate(scaled_kernel, (1,), (x, y, 3))  # an int for a float
    assert y.tolist() == [3.0] * 8


@triton.jit
def warps_kernel(out_ptr, num_warps: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, 256), num_warps)


@compiles
def test_num_warps_as_a_parameter_is_the_option_too():
    run = simulate(warps_kernel, (1,), (torch.zeros(256, dtype=torch.int32),), num_warps=1)
    assert run.compiled.num_warps == 1


@triton.jit
def tuple_kernel(pointers, sizes, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < sizes[1][0]
    tl.store(pointers[1] + offs, tl.load(pointers[0] + offs, mask=mask, other=0.0) * sizes[0], mask=mask)


@compiles
def test_tuples_are_taken_apart():
    x, y = torch.arange(20.0), torch.zeros(20)
    simulate(tuple_kernel, (1,), ((x, y), (3, (17, 1))), BLOCK=32)
    assert torch.equal(y, torch.where(torch.arange(20) < 17, 3 * x, 0))


@triton.jit
def described_kernel(source, y_ptr, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(y_ptr + rows * N + columns, source.load([2, 4]))


@compiles
def test_a_tensor_descriptor_brings_base_shape_and_strides():
    x, y = torch.arange(48.0).reshape(6, 8), torch.full((8, 8), -1.0)
    simulate(described_kernel, (1,), (TensorDescriptor.from_tensor(x, [8, 8]), y), M=8, N=8)
    expected = torch.zeros(8, 8)
    expected[:4, :4] = x[2:, 4:]
    assert torch.equal(y, expected)


@compiles
def test_a_tensor_under_another_type():
    x, y = torch.arange(0, 64, dtype=torch.int8), torch.zeros(64)
    simulate(scaled_kernel, (1,), (triton.reinterpret(x, tl.float8e5), y, 1.0), n=64, BLOCK=64)
    assert torch.equal(y, x.view(torch.float8_e5m2).float())
