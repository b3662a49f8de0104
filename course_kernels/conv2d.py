"""Two-dimensional convolution as an implicit matrix multiplication.

    y[n, f, p, q] = bias[f] + sum_{c, r, s} x[n, c, p * stride_h - padding_h + r * dilation_h,
                                                    q * stride_w - padding_w + s * dilation_w] * weight[f, c, r, s]

with 0 for pixels outside the image.  (As everywhere in deep learning, this is a correlation: nothing is flipped.)

| tensor | shape        | dtype                                                              |
|--------|--------------|--------------------------------------------------------------------|
| x      | (N, C, H, W) | float32, float16 or bfloat16; any strides                          |
| weight | (F, C, R, S) | that of x; any strides                                             |
| bias   | (F,)         | that of x; contiguous                                              |
| y      | (N, F, P, Q) | that of x; channels last where x is                                |

The rows of the product are the N * P * Q output pixels, its columns the F filters, and its terms the C channels under
each of the R * S taps: every tap is a matrix multiplication by a shifted image.  Nothing is unfolded: im2col would
write and read N * P * Q * C * R * S elements.  Channels last in x and weight, the terms of a tap are adjacent and load
16 bytes at a time.  Sums are kept in float32 and rounded once, the bias included.

Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._remembered import remembered
from ._tile_order import grouped_tile, xcd_remap
from ._torch_op import torch_op
from .backend import uses_triton

MAX_PIXELS = 2**31 - 256  # of the result: they are numbered in int32, in which the last tile must end as well


@triton.jit
def conv2d_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr,
    stride_xn, stride_xc, stride_xh, stride_xw, stride_wf, stride_wc, stride_wr, stride_ws,
    stride_yn, stride_yf, stride_yp, stride_yq,
    pixels, C, H, W, F, P, Q,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr, PADDING_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, XCDS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M output pixels of BLOCK_N filters. WHOLE: C is a multiple of BLOCK_K, so none is masked."""
    tile = xcd_remap(tl.program_id(0), tl.num_programs(0), XCDS)
    pid_m, pid_n = grouped_tile(tile, tl.cdiv(pixels, BLOCK_M), tl.cdiv(F, BLOCK_N), GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_f = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask_m, mask_f = offs_m < pixels, offs_f < F
    n, p, q = (offs_m // (P * Q)).to(tl.int64), offs_m // Q % P, offs_m % Q
    h, w = p * STRIDE_H - PADDING_H, q * STRIDE_W - PADDING_W  # where the first tap lies; the others lie beside it
    offs_c = tl.arange(0, BLOCK_K).to(tl.int64)
    x_ptrs = x_ptr + (n * stride_xn + h.to(tl.int64) * stride_xh + w.to(tl.int64) * stride_xw)
    x_ptrs += offs_c[None, :] * stride_xc
    weight_ptrs = weight_ptr + offs_f * stride_wf + offs_c[:, None] * stride_wc
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    blocks_c = tl.cdiv(C, BLOCK_K)
    for step in range(R * S * blocks_c):  # one loop over taps and channels: Triton pipelines innermost loops only
        r, s, start_c = step // blocks_c // S, step // blocks_c % S, step % blocks_c * BLOCK_K
        tap_h, tap_w = h + r * DILATION_H, w + s * DILATION_W
        mask_x, mask_w = mask_m & (tap_h >= 0) & (tap_h < H) & (tap_w >= 0) & (tap_w < W), mask_f
        if not WHOLE:
            mask_x, mask_w = mask_x & (offs_c[None, :] < C - start_c), mask_w & (offs_c[:, None] < C - start_c)
        r, s, c = r.to(tl.int64), s.to(tl.int64), start_c.to(tl.int64)
        to_tap = r * DILATION_H * stride_xh + s * DILATION_W * stride_xw + c * stride_xc
        x = tl.load(x_ptrs + to_tap, mask=mask_x, other=0.0)
        weight = tl.load(weight_ptrs + (r * stride_wr + s * stride_ws + c * stride_wc), mask=mask_w, other=0.0)
        acc = tl.dot(x, weight, acc, input_precision=PRECISION)

    if bias_ptr is not None:
        acc += tl.load(bias_ptr + offs_f, mask=mask_f, other=0.0).to(tl.float32)
    y_ptrs = y_ptr + (n * stride_yn + p.to(tl.int64) * stride_yp + q.to(tl.int64) * stride_yq) + offs_f * stride_yf
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=mask_m & mask_f)


def _output(x, weight, _bias, stride, padding, dilation) -> torch.Tensor:
    """Room for y."""
    size = len(x), len(weight), *_output_size(x, weight, stride, padding, dilation)
    channels_last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty(size, dtype=x.dtype, device=x.device, memory_format=layout)


@torch_op(_output)
def conv2d_forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """x (N, C, H, W) with weight (F, C, R, S)."""
    (N, C, H, W), (F, _, R, S) = x.shape, weight.shape
    y = _output(x, weight, bias, stride, padding, dilation)
    P, Q = y.shape[2:]
    grid, meta = launch.conv_tiles(x, N * P * Q, F, C, R * S)
    tensors, strides = (x, weight, bias, y), (*x.stride(), *weight.stride(), *y.stride())
    constants = R, S, *stride, *padding, *dilation, launch.dot_precision(x, allow_tf32=False)
    whole = C % meta["BLOCK_K"] == 0
    launch.run(conv2d_kernel, grid, *tensors, *strides, N * P * Q, C, H, W, F, P, Q, *constants, WHOLE=whole, **meta)
    return y


def _output_size(x, weight, stride, padding, dilation) -> tuple[int, int]:
    """Height and width of the result."""
    height, width = (
        (size + 2 * pad - spread * (taps - 1) - 1) // step + 1
        for size, taps, step, pad, spread in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    )
    return height, width


def _pair(name: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    """One number for height and width, or one for each.

    Raises:
        TypeError: neither an int nor a pair of ints.
        ValueError: a number below the least.
    """
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    try:
        height, width = (checks.whole_number(size=size) for size in pair)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an int or a pair of ints, got {value!r}") from None
    if min(height, width) < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return height, width


@remembered
def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> torch.Tensor:
    """Two-dimensional convolution with one group, summed in float32; float32 operands keep all their digits.

    Args:
        x: (N, C, H, W); float32, float16 or bfloat16; any strides, fastest channels last. No gradient flows to it.
        weight: (F, C, R, S); dtype and device of x; any strides, fastest channels last. No gradient flows to it.
        bias: (F,), contiguous, dtype and device of x; or None. No gradient flows to it.
        stride: pixels from one output to the next; an int, or (height, width).
        padding: zeros on each side of the image.
        dilation: pixels from one tap to the next.

    Returns:
        (N, F, P, Q), dtype of x, P = (H + 2 * padding - dilation * (R - 1) - 1) // stride + 1, Q alike; channels last
        where x is, else contiguous.

    Raises:
        TypeError: another dtype, two different ones, or a parameter that is neither an int nor a pair of ints.
        ValueError: shapes that do not fit or are empty (only N may be 0), a filter larger than the padded image, a
            stride or dilation below 1, a padding below 0, N * P * Q above 2^31 - 256, tensors on different devices, or
            one that requires grad.
    """
    tensors = {"x": x, "weight": weight} | ({} if bias is None else {"bias": bias})
    checks.floating(**tensors)
    checks.not_differentiable(**tensors)
    for name, tensor in tensors.items():
        if tensor.dtype != x.dtype:
            raise TypeError(f"{name} must have the dtype of x, {x.dtype}, got {tensor.dtype}; convert one with .to()")
    checks.rank(4, "(N, C, H, W)", x=x)
    checks.rank(4, "(F, C, R, S)", weight=weight)
    if x.shape[1] != weight.shape[1]:
        raise ValueError(f"x has {x.shape[1]} channels but weight has {weight.shape[1]}; they must be equal")
    if bias is not None:
        checks.shape((weight.shape[0],), bias=bias)
        checks.contiguous(bias=bias)
    stride, dilation = _pair("stride", stride, 1), _pair("dilation", dilation, 1)
    padding = _pair("padding", padding, 0)
    if min(*x.shape[1:], *weight.shape) < 1:
        raise ValueError(f"only x's first size may be 0, got x {tuple(x.shape)} and weight {tuple(weight.shape)}")
    P, Q = _output_size(x, weight, stride, padding, dilation)
    if min(P, Q) < 1:
        raise ValueError(
            f"a filter of {tuple(weight.shape[2:])} taps at dilation {dilation} does not fit an image of "
            f"{tuple(x.shape[2:])} with padding {padding}"
        )
    if len(x) * P * Q > MAX_PIXELS:
        raise ValueError(f"y would have {len(x) * P * Q} pixels, but at most {MAX_PIXELS} are counted; split the batch")
    if x.numel() == 0 or not uses_triton(x):
        return reference.conv2d(x, weight, bias, stride, padding, dilation)
    return conv2d_forward(x, weight, bias, stride, padding, dilation)
