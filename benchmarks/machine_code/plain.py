"""Kernels as tutorials and blogs print them: one program a row, the whole row in one block, `num_warps` left alone.

What anybody writes first, and what ours must beat.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _vector_add(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y."""
    z = torch.empty_like(x)
    _vector_add[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
    return z


@triton.jit
def _rms_norm(x_ptr, weight_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offs < cols
    x = tl.load(x_ptr + row * cols + offs, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x) / cols + eps) * weight
    tl.store(y_ptr + row * cols + offs, y.to(tl.bfloat16), mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """RMSNorm of each row."""
    y = torch.empty_like(x)
    _rms_norm[(len(x),)](x, weight, y, x.shape[1], 1e-6, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _layer_norm(x_ptr, weight_ptr, bias_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offs < cols
    x = tl.load(x_ptr + row * cols + offs, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x) / cols
    centred = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred) / cols + eps)
    weight = tl.load(weight_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + offs, (centred * rstd * weight + bias).to(tl.bfloat16), mask=mask)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """LayerNorm of each row."""
    y = torch.empty_like(x)
    _layer_norm[(len(x),)](x, weight, bias, y, x.shape[1], 1e-5, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offs < cols
    x = tl.load(x_ptr + row * cols + offs, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x))
    tl.store(y_ptr + row * cols + offs, (e / tl.sum(e)).to(tl.bfloat16), mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row."""
    y = torch.empty_like(x)
    _softmax[(len(x),)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def _silu_and_mul(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offs < cols
    gate = tl.load(x_ptr + row * 2 * cols + offs, mask=mask).to(tl.float32)
    factor = tl.load(x_ptr + row * 2 * cols + cols + offs, mask=mask).to(tl.float32)
    tl.store(y_ptr + row * cols + offs, (gate * tl.sigmoid(gate) * factor).to(tl.bfloat16), mask=mask)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """SwiGLU: silu of the first half of each row times the second."""
    y = x.new_empty(len(x), x.shape[1] // 2)
    _silu_and_mul[(len(x),)](x, y, y.shape[1], BLOCK=triton.next_power_of_2(y.shape[1]))
    return y


@triton.jit
def _rope(x_ptr, cos_ptr, sin_ptr, y_ptr, heads, HALF: tl.constexpr):
    token, head, offs = tl.program_id(0), tl.program_id(1), tl.arange(0, HALF)
    start = (token * heads + head) * 2 * HALF
    cos, sin = tl.load(cos_ptr + token * HALF + offs), tl.load(sin_ptr + token * HALF + offs)
    a = tl.load(x_ptr + start + offs).to(tl.float32)
    b = tl.load(x_ptr + start + HALF + offs).to(tl.float32)
    tl.store(y_ptr + start + offs, (a * cos - b * sin).to(tl.bfloat16))
    tl.store(y_ptr + start + HALF + offs, (b * cos + a * sin).to(tl.bfloat16))


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE of x (1, S, heads, D), the halves of a head as pairs."""
    y = torch.empty_like(x)
    _rope[(x.shape[1], x.shape[2])](x, cos, sin, y, x.shape[2], HALF=x.shape[3] // 2)
    return y


@triton.jit
def _matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    offs_k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + offs_m * K + (k + offs_k)[None, :])
        b = tl.load(b_ptr + (k + offs_k)[:, None] * N + offs_n)
        sums = tl.dot(a, b, sums)
    tl.store(c_ptr + offs_m * N + offs_n, sums.to(tl.bfloat16))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b, for sizes that are multiples of 64."""
    c = a.new_empty(len(a), b.shape[1])
    _matmul[(len(a) // 64, b.shape[1] // 64)](a, b, c, len(a), b.shape[1], a.shape[1], BM=64, BN=64, BK=64)
    return c


@triton.jit
def _attention(q_ptr, k_ptr, v_ptr, o_ptr, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    head = tl.program_id(1) * S * D
    offs_m, offs_d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(q_ptr + head + offs_m[:, None] * D + offs_d[None, :])
    high, total, o = (
        tl.full((BM,), -float("inf"), tl.float32),
        tl.zeros((BM,), tl.float32),
        tl.zeros((BM, D), tl.float32),
    )
    for start in range(0, S, BN):
        offs_n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + head + offs_n[None, :] * D + offs_d[:, None])
        s = tl.dot(q, k) * (scale * 1.44269504)
        higher = tl.maximum(high, tl.max(s, 1))
        p, shrink = tl.exp2(s - higher[:, None]), tl.exp2(high - higher)
        v = tl.load(v_ptr + head + offs_n[:, None] * D + offs_d[None, :])
        o = tl.dot(p.to(v.dtype), v, o * shrink[:, None])
        total, high = total * shrink + tl.sum(p, 1), higher
    tl.store(o_ptr + head + offs_m[:, None] * D + offs_d[None, :], (o / total[:, None]).to(tl.bfloat16))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention without a mask, for sequences of multiples of 128."""
    o = torch.empty_like(q)
    batch, heads, length, width = q.shape
    _attention[(length // 128, batch * heads)](q, k, v, o, length, width**-0.5, D=width, BM=128, BN=64)
    return o
