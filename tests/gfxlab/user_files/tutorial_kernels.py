"""A file as somebody without the course has it: kernels in the style of Triton's tutorials, with the calls.

It imports nothing of the course and leaves the device to its arguments.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_row_stride, out_row_stride, n_rows, n_cols, BLOCK: tl.constexpr):
    first, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(first, n_rows, step):
        cols = tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(in_ptr + row * in_row_stride + cols, mask=mask, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_row_stride + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


def softmax(x):
    rows, cols = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(cols)
    softmax_kernel[(min(rows, 8), 1, 1)](y, x, x.stride(0), y.stride(0), rows, cols, BLOCK=block, num_warps=8)
    return y


def _tiles():
    for block_m, block_n, warps in ((64, 64, 4), (128, 64, 8)):
        yield triton.Config({"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 32}, num_warps=warps, num_stages=2)


@triton.autotune(configs=list(_tiles()), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid_m = tl.program_id(0) // tl.cdiv(N, BLOCK_N)
    pid_n = tl.program_id(0) % tl.cdiv(N, BLOCK_N)
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    rows, cols = pid_m * BLOCK_M + tl.arange(0, BLOCK_M), pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + stride_cm * rows[:, None] + stride_cn * cols[None, :], acc.to(tl.float16), mask=mask)


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=torch.float16, device=a.device)
    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1))
    matmul_kernel[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)](
        a, b, c, m, n, k, *strides
    )
    return c


@triton.jit
def layer_norm_kernel(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X, Y = X + row * stride, Y + row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.where(cols < N, tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32) - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        w, b = tl.load(W + cols, mask=mask, other=0.0), tl.load(B + cols, mask=mask, other=0.0)
        tl.store(Y + cols, ((x - mean) * rstd * w + b).to(Y.dtype.element_ty), mask=mask)


def layer_norm(x, weight, bias, eps):
    rows, cols = x.shape
    y, mean, rstd = torch.empty_like(x), torch.empty(rows), torch.empty(rows)
    layer_norm_kernel[(rows,)](x, y, weight, bias, mean, rstd, x.stride(0), cols, eps, BLOCK=512, num_warps=4)
    return y


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(23, 781)
    assert torch.allclose(softmax(x), torch.softmax(x, axis=1), atol=1e-6)
    a, b = torch.randn(96, 80, dtype=torch.float16), torch.randn(80, 128, dtype=torch.float16)
    assert torch.allclose(matmul(a, b), (a.float() @ b.float()).half(), atol=2e-2, rtol=1e-2)
    x, weight, bias = torch.randn(5, 1151), torch.rand(1151), torch.rand(1151)
    expected = torch.nn.functional.layer_norm(x, (1151,), weight, bias, 1e-5)
    assert torch.allclose(layer_norm(x, weight, bias, 1e-5), expected, atol=1e-5)
    print("softmax, matmul and layer norm agree with PyTorch")
