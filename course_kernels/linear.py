"""A linear layer without bias: matrix times vector where there is one token, matrix times matrix where there are more.

    y[m, n] = sum_k x[m, k] * weight[n, k]

| tensor | shape  | dtype                                  |
|--------|--------|----------------------------------------|
| x      | (M, K) | float32, float16 or bfloat16           |
| weight | (N, K) | that of x; contiguous, as layers keep it |
| y      | (M, N) | that of x, contiguous                  |

One token uses each weight once: N * K * itemsize bytes are read for 2 * N * K operations, so nothing but memory counts
and no matrix unit helps.  Each program takes a few rows of the weight, keeps a sum for each of its elements, and adds
up along the rows once, after the last step.  `matmul` would pad the one row to 16, and write its parts to add them up
in a second launch.  Several tokens are `matmul(x, weight.T)`.
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import remembered, torch_op
from .backend import uses_triton
from .matmul import matmul


@triton.jit
def matrix_vector_kernel(x_ptr, weight_ptr, y_ptr, stride_xk, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """One program, BLOCK_N rows of the weight, times the only row of x."""
    offs_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    mask_n = offs_n < N
    products = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)[None, :]
        mask_k = offs_k < K
        x = tl.load(x_ptr + offs_k * stride_xk, mask=mask_k, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + offs_n * K + offs_k, mask=mask_n & mask_k, other=0.0).to(tl.float32)
        products += x * weight
    y = tl.sum(products, axis=1, keep_dims=True)
    tl.store(y_ptr + offs_n, y.to(y_ptr.dtype.element_ty), mask=mask_n)


@torch_op(lambda x, weight: x.new_empty((1, weight.shape[0])))
def matrix_vector_forward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x @ weight.T. x: (1, K); weight: (N, K), contiguous."""
    N, K = weight.shape
    y = torch.empty((1, N), dtype=x.dtype, device=x.device)
    grid, meta = launch.weight_rows(weight)
    launch.run(matrix_vector_kernel, grid, x, weight, y, x.stride(1), N, K, **meta)
    return y


@remembered
def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x @ weight.T, summed in float32 and rounded once.

    Args:
        x: (M, K); float32, float16 or bfloat16; any strides. No gradient flows to it.
        weight: (N, K), contiguous; dtype and device of x. No gradient flows to it.

    Returns:
        (M, N), contiguous, in the dtype of x; zeros where K is 0.

    Raises:
        TypeError: another dtype, or two different ones.
        ValueError: not two matrices of equally long rows, a weight that is not contiguous, tensors on different
            devices, or one that requires grad.
    """
    checks.floating(x=x, weight=weight)
    checks.not_differentiable(x=x, weight=weight)
    checks.rank(2, "(M, K)", x=x)
    checks.rank(2, "(N, K)", weight=weight)
    if x.shape[1] != weight.shape[1]:
        raise ValueError(f"x has {x.shape[1]} columns but weight has {weight.shape[1]}; they must be equal")
    checks.same_dtype(x=x, weight=weight)
    checks.same_device(x=x, weight=weight)
    checks.contiguous(weight=weight)
    if len(x) != 1:
        return matmul(x, weight.t())
    if weight.numel() == 0 or not uses_triton(x):
        return reference.linear(x, weight)
    return matrix_vector_forward(x, weight)
