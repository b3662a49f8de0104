"""Three small exercises with their solutions, for the tests of the check."""

import torch

from course_lab.authoring.exercise import Case, Exercise, Suspect

HINTS = ("What is asked?", "Where does it go?", "y = ...")


def vector(n, dtype=torch.float32):
    return lambda generator: (torch.randn(n, generator=generator).to(dtype),)


def matrix(m, n, dtype=torch.float32, strided=False):
    return lambda generator: (torch.randn(m, n + 13 * strided, generator=generator).to(dtype)[:, :n],)


DOUBLE = Exercise(
    number="91.1",
    title="Double",
    stars=1,
    minutes=5,
    entry="double",
    reference=lambda x: 2 * x,
    cases=(
        Case("1024 elements, a multiple of the block", vector(1024), 1e-5, 1e-5),
        Case("1000 elements, not a multiple", vector(1000), 1e-5, 1e-5),
        Case("bfloat16", vector(500, torch.bfloat16), 1e-2, 1e-2),
    ),
    hints=HINTS,
    suspects=(Suspect("squared", "This is the square.", lambda x: x * x),),
)

DOUBLE_STUB = """\
def double(x):
    # your code here (roughly 3 lines)
"""

DOUBLE_SOLUTION = """\
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, x * 2, mask=mask)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
"""

ROW_SUM = Exercise(
    number="91.2",
    title="Scale rows by their sum of squares",
    stars=2,
    minutes=5,
    entry="normalise",
    reference=lambda x: (x.double() / x.double().square().sum(-1, keepdim=True)).to(x.dtype),
    cases=(
        Case("power of two", matrix(4, 64), 1e-5, 1e-5),
        Case("odd width", matrix(5, 100), 1e-5, 1e-5),
        Case("a slice of a wider matrix", matrix(5, 100, strided=True), 1e-5, 1e-5),
        Case("float16", matrix(5, 300, torch.float16), 1e-4, 1e-3),
    ),
    hints=HINTS,
)

ROW_SUM_SOLUTION = """\
@triton.jit
def normalise_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(x * x, axis=0)
    tl.store(y_ptr + row * stride_ym + cols, (x / total).to(y_ptr.dtype.element_ty), mask=mask)


def normalise(x):
    y = torch.empty_like(x)
    M, N = x.shape
    normalise_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y
"""

# Right too: in blocks, one after the other.
ROW_SUM_WALKED = """\
@triton.jit
def my_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
        squares += x * x
    total = tl.sum(squares, axis=0)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * stride_ym + cols, (x / total).to(y_ptr.dtype.element_ty), mask=cols < N)


def normalise(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    my_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, BLOCK=16)
    return y
"""

LARGEST = Exercise(
    number="91.6",
    title="The largest magnitude of each row",
    stars=1,
    minutes=5,
    entry="largest",
    reference=lambda x: x.abs().amax(-1),
    cases=(Case("power of two", matrix(4, 64), 0.0, 0.0), Case("odd width", matrix(5, 100), 0.0, 0.0)),
    hints=HINTS,
)

LARGEST_SOLUTION = """\
@triton.jit
def largest_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
    tl.store(y_ptr + row, tl.max(tl.abs(x), axis=0))


def largest(x):
    M, N = x.shape
    y = torch.empty(M, dtype=x.dtype)
    largest_kernel[(M,)](x, y, N, BLOCK=triton.next_power_of_2(N))
    return y
"""

COPY = Exercise(
    number="91.3",
    title="Copy a matrix",
    stars=1,
    minutes=5,
    entry="copy",
    reference=lambda x: x.clone(),
    cases=(
        Case("32 × 32", matrix(32, 32), 0.0, 0.0),
        Case("40 × 72", matrix(40, 72), 0.0, 0.0),
    ),
    hints=HINTS,
    max_launches=1,
)

COPY_SOLUTION = """\
@triton.jit
def copy_kernel(x_ptr, y_ptr, M, N, stride_xm, stride_xn, stride_ym, stride_yn, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask)
    tl.store(y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :] * stride_yn, x, mask=mask)


def copy(x):
    y = torch.empty_like(x)
    M, N = x.shape
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    copy_kernel[grid](x, y, M, N, x.stride(0), x.stride(1), y.stride(0), y.stride(1), BLOCK=16)
    return y
"""


def double_in_place(x):
    x.mul_(2)


IN_PLACE = Exercise(
    number="91.4",
    title="Double in place",
    stars=1,
    minutes=5,
    entry="double_",
    reference=double_in_place,
    cases=(Case("100 elements", vector(100), 1e-5, 1e-5),),
    hints=HINTS,
    inplace=(0,),
)

IN_PLACE_SOLUTION = """\
@triton.jit
def double_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(x_ptr + offs, x * 2, mask=offs < n)


def double_(x):
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, x.numel(), BLOCK=64)
"""
SOLUTIONS = {
    DOUBLE: DOUBLE_SOLUTION,
    ROW_SUM: ROW_SUM_SOLUTION,
    LARGEST: LARGEST_SOLUTION,
    COPY: COPY_SOLUTION,
    IN_PLACE: IN_PLACE_SOLUTION,
}
