"""Vector addition: the first kernel, and the shape of all others.

    z[i] = x[i] + y[i]

A program adds BLOCK elements; the mask is for the last one, because the size is rarely a multiple of BLOCK.  There is
one addition for three elements moved, so the time is that of the memory: 3 * size * itemsize bytes.

x, y: equal shape and dtype, float32, float16 or bfloat16, contiguous.  Returns the same shape and dtype.
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import apply, once_differentiable, remembered, torch_op
from .backend import uses_triton


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, z_ptr, size, BLOCK: tl.constexpr):
    """One program, BLOCK elements."""
    pid = tl.program_id(0).to(tl.int64)  # int64: pid * BLOCK passes 2**31 on large tensors
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < size
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(z_ptr + offs, (x + y).to(z_ptr.dtype.element_ty), mask=mask)


@torch_op(lambda x, y: x.new_empty(x.shape))
def vector_add_forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Allocate the sum and fill it."""
    z = torch.empty_like(x)
    grid, meta = launch.elementwise(x)
    launch.run(vector_add_kernel, grid, x, y, z, x.numel(), **meta)
    return z


class VectorAdd(torch.autograd.Function):
    """A sum hands its gradient to both terms unchanged."""

    @staticmethod
    def forward(ctx, x, y):
        return vector_add_forward(x, y)

    @staticmethod
    @once_differentiable
    def backward(ctx, dz):
        return dz, dz


@remembered
def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, element by element; differentiable.

    Args:
        x: any shape; float32, float16 or bfloat16; contiguous.
        y: shape, dtype and device of x; contiguous.

    Returns:
        The sum, rounded once to the dtype of x.

    Raises:
        TypeError: another dtype, or two different ones.
        ValueError: different shapes or devices, or a tensor that is not contiguous.
    """
    checks.floating(x=x, y=y)
    checks.same_shape_and_dtype(x=x, y=y)
    checks.contiguous(x=x, y=y)
    if x.numel() == 0 or not uses_triton(x):
        return reference.vector_add(x, y)
    return apply(VectorAdd, x, y)
