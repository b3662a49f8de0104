"""Arguments that are no plain tensors and numbers: tuples, named ones, descriptors, tensors under another type."""

from typing import NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gfxlab.engine import dual_mode
from gfxlab.simulator import IllegalAccess, simulate

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")
ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


def one_of_five(function):
    """Quick on one target; `make test-full` takes the others."""
    return pytest.mark.one_in(5)(
        pytest.mark.parametrize("arch", ["gfx942", *[a for a in ARCHS if a != "gfx942"]])(function)
    )


class Pair(NamedTuple):
    left: object
    right: object


@triton.jit
def apart(pair, factor):
    return tl.load(pair.left) * factor[0], tl.load(pair.right) + factor[1][0]


@triton.jit
def tuples_kernel(pair, numbers, y_ptr, N: tl.constexpr, WHICH: tl.constexpr):
    offs = tl.arange(0, N)
    both = Pair(pair.left + offs, pair.right + offs)
    left, right = apart(both, numbers)
    tl.store(y_ptr + offs, left + right * WHICH[1])


@one_of_five
def test_named_tuples_of_pointers_numbers_and_constants(arch):
    a, b = torch.arange(64, dtype=torch.int32), torch.arange(64, dtype=torch.int32) * 7
    y = torch.zeros(64, dtype=torch.int32)
    run = simulate(tuples_kernel, (1,), (Pair(a, b), (3, (5, 1)), y, 64, (2, 11)), arch=arch, num_warps=1)
    assert torch.equal(y, a * 3 + (b + 5) * 11) and run.wrong == ()


def adding():
    @triton.jit
    def changed(x):
        return x + 1

    return changed


def squaring():
    @triton.jit
    def changed(x):
        return x * x

    return changed


@triton.jit
def function_kernel(x_ptr, y_ptr, FN: tl.constexpr, closure, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, closure.left(FN(tl.load(x_ptr + offs))) - closure.right)


@one_of_five
def test_functions_as_constants(arch):
    """Two of one name are two functions."""
    x, y = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    add, square = adding(), squaring()
    for first, second, wanted in ((add, square, (x + 1) ** 2), (square, add, x * x + 1), (add, adding(), x + 2)):
        simulate(function_kernel, (1,), (x, y, first, Pair(second, 7), 64), arch=arch, num_warps=1)
        assert torch.equal(y, wanted - 7)


@triton.jit
def past_the_end_kernel(pointers, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(pointers[1] + offs, tl.load(pointers[0] + offs))


@one_of_five
def test_a_fault_names_the_tensor_of_a_tuple(arch):
    with pytest.raises(IllegalAccess, match=r"stores element 60 of .*pointers.*past the end of its 60 elements"):
        simulate(past_the_end_kernel, (1,), ((torch.zeros(64), torch.zeros(60)), 64), arch=arch)


@triton.jit
def descriptors_kernel(descriptors, sums, M: tl.constexpr, N: tl.constexpr):
    first = tl.program_id(0) * M
    tile = descriptors[0].load([first, 3])
    descriptors[1].store([first, 1], tile * 2)
    sums.atomic_add([first, 0], tile)


@one_of_five
def test_descriptors_in_a_tuple_and_alone(arch):
    """What is loaded outside is 0, what is stored there is left out, and a sum goes through a descriptor too."""
    x = torch.arange(10 * 24, dtype=torch.float32).reshape(10, 24)
    y, s = torch.full((9, 20), -1.0), torch.ones(10, 16)
    blocks = [4, 16]
    described = tuple(TensorDescriptor.from_tensor(one, blocks) for one in (x, y))
    run = simulate(descriptors_kernel, (3,), (described, TensorDescriptor.from_tensor(s, blocks), 4, 16), arch=arch)
    tile = torch.zeros(12, 16)
    tile[:10] = x[:, 3:19]
    expected = torch.full((9, 20), -1.0)
    expected[:, 1:17] = 2 * tile[:9]
    assert torch.equal(y, expected) and torch.equal(s, 1 + tile[:10]) and run.wrong == ()


@triton.jit
def made_inside_kernel(x_ptr, y_ptr, rows, columns, M: tl.constexpr, N: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [M, N])
    y = tl.make_tensor_descriptor(y_ptr, [columns, rows], [rows, 1], [N, M])
    y.store([0, 0], tl.trans(x.load([0, 0])))


@one_of_five
def test_a_descriptor_that_the_kernel_makes(arch):
    x, y = torch.arange(7 * 12, dtype=torch.float16).reshape(7, 12), torch.full((12, 7), -1.0, dtype=torch.float16)
    run = simulate(made_inside_kernel, (1,), (x, y, 7, 12), arch=arch, M=8, N=16)
    assert torch.equal(y, x.T) and run.wrong == ()


@triton.jit
def widened_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs).to(tl.float32))


@one_of_five
def test_a_tensor_under_another_type(arch):
    """As libraries do with 8-bit numbers that PyTorch knows under another name."""
    codes = torch.arange(128, dtype=torch.uint8)
    for kind, as_torch in ((tl.float8e5, torch.float8_e5m2), (tl.int8, torch.int8), (tl.uint8, torch.uint8)):
        y, wanted = torch.zeros(128), codes.view(as_torch).float()
        run = simulate(widened_kernel, (1,), (triton.reinterpret(codes, kind), y, 128), arch=arch, num_warps=2)
        ordinary = wanted.isfinite()  # where the target has no such conversion, Triton's own knows finite numbers only
        assert torch.equal(y[ordinary], wanted[ordinary]) and run.wrong == ()
