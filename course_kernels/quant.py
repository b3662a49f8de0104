"""Quantisation to 8-bit floating point with scales found on the way, for each row ("token") or each group of a row.

    amax = max(|x[i]|, 1e-10),    scale = amax / M,    q[i] = round(clamp(x[i] / scale, -M, M)),    x[i] = q[i] * scale

with i over a row or over `group_size` neighbours in it, and M the largest number of the fp8 type:

| dtype                   | M   | smallest normal | machines                                         |
|-------------------------|-----|-----------------|--------------------------------------------------|
| `torch.float8_e4m3fnuz` | 240 | 2**-7           | gfx942 (MI300X, MI325X)                          |
| `torch.float8_e4m3fn`   | 448 | 2**-6           | gfx950 (MI355X), gfx12 (RX 9070), sm_89 and later |

One byte means different numbers in the two: 0x38 is 0.5 and 1.0.  `act_mul_fp8_quant` quantises f(gate) * factor of a
gated activation without writing it first.

| function              | bytes an element of q, x in 16 bits | unfused                                        |
|-----------------------|-------------------------------------|------------------------------------------------|
| quant                 | 2 + 1                               | 2 + 2 + 1: once for amax, once for q           |
| activation and quant  | 4 + 1                               | 4 + 2 for the activation, then 2 + 2 + 1       |

x: (..., cols), float32, float16 or bfloat16.  Computed in float32, rounded once, to nearest even.

OCP 8-bit Floating Point Specification, 2023; Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022
(fnuz).  Scales for groups of 128 follow DeepSeek-V3's report, 2024.
"""

import torch
import triton
import triton.language as tl

from . import checks, launch, reference
from ._call import remembered, torch_op
from .activations import activate, check_gated_width, check_kind
from .backend import uses_triton

FP8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


@triton.jit
def scaled_for_cache(x, scale, FP8_MAX: tl.constexpr):
    """x / scale, as far as fp8 reaches, for a cache of it; for another (FP8_MAX is None) x itself."""
    if FP8_MAX is not None:
        x = tl.clamp(x.to(tl.float32) * (1.0 / scale), -FP8_MAX, FP8_MAX, propagate_nan=tl.PropagateNan.ALL)
    return x


@triton.jit
def _magnitude(x):
    """|x| as an integer that orders numbers as they are, then inf, then NaN: a maximum of floats would lose a NaN."""
    return tl.abs(x).to(tl.int32, bitcast=True)


@triton.jit
def _scales(magnitude, FP8_MAX: tl.constexpr):
    """The scale, and what to multiply by instead of dividing by it; the floor keeps a row of zeros from 0 / 0."""
    amax = tl.maximum(magnitude.to(tl.float32, bitcast=True), 1e-10, propagate_nan=tl.PropagateNan.ALL)
    return amax / FP8_MAX, FP8_MAX / amax


@triton.jit
def _store_fp8(q_ptr, x, mask, FP8_MAX: tl.constexpr):
    """Clamp first: what the conversion makes of a number out of range differs from machine to machine."""
    q = tl.clamp(x, -FP8_MAX, FP8_MAX, propagate_nan=tl.PropagateNan.ALL)
    tl.store(q_ptr, q.to(q_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _quantise(x, q_ptr, scale_ptr, mask, mask_m, FP8_MAX: tl.constexpr):
    """Store q and the scale of each row of a tile."""
    scale, inverse = _scales(tl.max(_magnitude(x), axis=1, keep_dims=True), FP8_MAX)
    _store_fp8(q_ptr, x * inverse, mask, FP8_MAX)
    tl.store(scale_ptr, scale, mask=mask_m)


@triton.jit
def _group(rows, cols, group_size, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows (int64), columns and mask of this program's tile, a group of BLOCK_M rows, and where its scales lie."""
    pid = tl.program_id(0)
    groups = tl.cdiv(cols, group_size)
    offs_m = (pid // groups).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    lanes = tl.arange(0, BLOCK_N)[None, :]
    offs_n = pid % groups * group_size + lanes
    mask = (offs_m < rows) & (lanes < group_size) & (offs_n < cols)  # the last group may be narrower
    return offs_m, offs_n, mask, offs_m * groups + pid % groups


@triton.jit
def quant_fp8_kernel(
    x_ptr, q_ptr, scale_ptr, stride_xm, rows, cols, group_size,
    FP8_MAX: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one group of BLOCK_M rows."""
    offs_m, offs_n, mask, offs_scale = _group(rows, cols, group_size, BLOCK_M, BLOCK_N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
    _quantise(x, q_ptr + offs_m * cols + offs_n, scale_ptr + offs_scale, mask, offs_m < rows, FP8_MAX)


@triton.jit
def act_mul_fp8_quant_kernel(
    x_ptr, q_ptr, scale_ptr, stride_xm, rows, cols, group_size,
    KIND: tl.constexpr, FP8_MAX: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one group of BLOCK_M rows of the product: the gate lies `cols` elements before its factor."""
    offs_m, offs_n, mask, offs_scale = _group(rows, cols, group_size, BLOCK_M, BLOCK_N)
    gate_ptr = x_ptr + offs_m * stride_xm + offs_n
    gate = tl.load(gate_ptr, mask=mask, other=0.0).to(tl.float32)
    factor = tl.load(gate_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = activate(gate, KIND) * factor
    _quantise(y, q_ptr + offs_m * cols + offs_n, scale_ptr + offs_scale, mask, offs_m < rows, FP8_MAX)


@triton.jit
def quant_fp8_long_kernel(
    x_ptr, q_ptr, scale_ptr, stride_xm, cols,
    FP8_MAX: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program, one row of any width with one scale: first its maximum, then the result."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    q_ptr += row * cols

    magnitude = tl.zeros((BLOCK_N,), tl.int32)
    for start in range(0, cols, BLOCK_N):  # "evict_last": stay cached for the second walk
        offs_n = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + offs_n, mask=offs_n < cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        magnitude = tl.maximum(magnitude, _magnitude(x))
    scale, inverse = _scales(tl.max(magnitude, axis=0), FP8_MAX)
    tl.store(scale_ptr + row, scale)

    for start in range(0, cols, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_n < cols
        x = tl.load(x_ptr + offs_n, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        _store_fp8(q_ptr + offs_n, x * inverse, mask, FP8_MAX)


@torch_op(lambda x, group_size, dtype: _outputs(x, x.shape[1], group_size, dtype))
def quant_fp8_forward(x: torch.Tensor, group_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """q (rows, cols) and scale (rows, groups). x: (rows, cols); group_size: at most launch.sizes().max_row, or cols."""
    q, scale = _outputs(x, x.shape[1], group_size, dtype)
    if min(group_size, x.shape[1]) <= launch.sizes().max_row:
        grid, meta = launch.row_groups(x, group_size)
        sizes = *x.shape, group_size, torch.finfo(dtype).max
        launch.run(quant_fp8_kernel, grid, x, q, scale, x.stride(0), *sizes, **meta)
    else:
        grid, meta = launch.long_rows(x)
        launch.run(quant_fp8_long_kernel, grid, x, q, scale, x.stride(0), x.shape[1], torch.finfo(dtype).max, **meta)
    return q, scale


@torch_op(lambda x, kind, group_size, dtype: _outputs(x, x.shape[1] // 2, group_size, dtype))
def act_mul_fp8_quant_forward(
    x: torch.Tensor, kind: str, group_size: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """q (rows, cols) and scale (rows, groups). x: (rows, 2 * cols); group_size: at most launch.sizes().max_row."""
    rows, cols = x.shape[0], x.shape[1] // 2
    q, scale = _outputs(x, cols, group_size, dtype)
    grid, meta = launch.row_groups(x[:, :cols], group_size)
    sizes = rows, cols, group_size, kind, torch.finfo(dtype).max
    launch.run(act_mul_fp8_quant_kernel, grid, x, q, scale, x.stride(0), *sizes, **meta)
    return q, scale


def _outputs(x: torch.Tensor, cols: int, group_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    rows, groups = x.shape[0], -(-cols // group_size)
    q = torch.empty((rows, cols), dtype=dtype, device=x.device)
    return q, torch.empty((rows, groups), dtype=torch.float32, device=x.device)


def fp8_dtype(arch: str | None = None) -> torch.dtype:
    """The 8-bit floating-point type that an architecture computes with.

    Args:
        arch: "gfx942", "gfx950", "gfx1201", "sm_90", ...; None is the current GPU's.

    Returns:
        torch.float8_e4m3fnuz on gfx940 to gfx942, else torch.float8_e4m3fn; that too for None without a GPU.

    Raises:
        TypeError: the architecture is no string.
        ValueError: the architecture has none.
    """
    if arch is not None and not isinstance(arch, str):
        name = f"gfx{arch}" if isinstance(arch, int) else "gfx942"
        raise TypeError(f'arch must be a string, got {arch!r}; write fp8_dtype("{name}")')
    if arch is None:
        if not torch.cuda.is_available():
            return torch.float8_e4m3fn
        arch = launch.gpu_of(torch.empty(0, device="cuda")).arch
    name = arch.split(":")[0]
    if name in ("gfx940", "gfx941", "gfx942"):
        return torch.float8_e4m3fnuz
    capability = name.removeprefix("sm_").rstrip("af")
    if name == "gfx950" or launch.rdna(name) == 4 or (capability.isdecimal() and int(capability) >= 89):
        return torch.float8_e4m3fn
    raise ValueError(f"{arch} has no fp8 arithmetic; gfx942, gfx950, gfx12 and NVIDIA's sm_89 and later have")


def checked_dtype(x: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The fp8 type of the GPU that holds x; on a CPU the caller's, by default `fp8_dtype()`."""
    if dtype not in (None, *FP8):
        raise TypeError(f"dtype must be torch.float8_e4m3fn or torch.float8_e4m3fnuz, got {dtype}")
    if not x.is_cuda:
        return dtype or fp8_dtype()
    arch = launch.gpu_of(x).arch
    native = fp8_dtype(arch)
    if dtype not in (None, native):
        raise ValueError(f"{arch} computes with {native}, not with {dtype}; leave dtype away")
    return native


def runs_kernel(x: torch.Tensor, dtype: torch.dtype) -> bool:
    """As `uses_triton`, but the reference stands in for fnuz where Triton 3.6 or 3.7 interprets: those lack it."""
    if not uses_triton(x):
        return False
    if x.is_cuda or dtype != torch.float8_e4m3fnuz or [*map(int, triton.__version__.split(".")[:2])] >= [3, 8]:
        return True
    return not torch.compiler.is_compiling() and launch.simulated_gpu() is not None


def _checked_group_size(group_size: int) -> int:
    group_size = checks.whole_number(group_size=group_size)
    if not 1 <= group_size <= launch.sizes().max_row:
        raise ValueError(f"group_size must be 1 to {launch.sizes().max_row}, got {group_size}")
    return group_size


@remembered
def quant_fp8_per_token(x: torch.Tensor, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each row with a scale of its own: x is close to q.float() * scale[..., None].

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
        dtype: torch.float8_e4m3fn or torch.float8_e4m3fnuz; by default `fp8_dtype()`.

    Returns:
        (q, scale): q has the shape of x and the fp8 dtype; scale x.shape[:-1], float32. A row of zeros gives zeros and
        a finite scale. inf or NaN in a row makes its scale inf or NaN, and leaves other rows alone. No gradient.

    Raises:
        TypeError: another dtype of x, or no fp8 dtype.
        ValueError: x is a scalar, requires grad, or has strides other than the above; or the GPU lacks the fp8 dtype.
    """
    checks.floating(x=x)
    checks.row_vectors(x)
    checks.not_differentiable(x=x)
    x_rows = checks.rows_of(x=x)
    dtype = checked_dtype(x, dtype)
    if x.numel() == 0 or not runs_kernel(x, dtype):
        return reference.quant_fp8_per_token(x, dtype)
    q, scale = quant_fp8_forward(x_rows, x.shape[-1], dtype)
    return checks.in_shape_of(x, q), scale.view(x.shape[:-1])


@remembered
def quant_fp8_per_group(
    x: torch.Tensor, group_size: int = 128, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each `group_size` neighbours of a row with a scale of their own: one outlier spoils its group only.

    Args:
        x: (..., cols); float32, float16 or bfloat16; unit stride along the row, one stride from row to row.
        group_size: 1 to 8192; the last group of a row is narrower where cols is no multiple.
        dtype: torch.float8_e4m3fn or torch.float8_e4m3fnuz; by default `fp8_dtype()`.

    Returns:
        (q, scale): q has the shape of x and the fp8 dtype; scale x.shape[:-1] + (ceil(cols / group_size),), float32.
        Zeros, inf and NaN as in `quant_fp8_per_token`, group by group. No gradient.

    Raises:
        TypeError: another dtype of x, no fp8 dtype, or a group_size that is no int.
        ValueError: group_size out of range; x is a scalar, requires grad, or has strides other than the above; or the
            GPU lacks the fp8 dtype.
    """
    checks.floating(x=x)
    checks.row_vectors(x)
    checks.not_differentiable(x=x)
    group_size = _checked_group_size(group_size)
    x_rows = checks.rows_of(x=x)
    dtype = checked_dtype(x, dtype)
    if x.numel() == 0 or not runs_kernel(x, dtype):
        return reference.quant_fp8_per_group(x, group_size, dtype)
    q, scale = quant_fp8_forward(x_rows, group_size, dtype)
    return checks.in_shape_of(x, q), scale.view(*x.shape[:-1], -1)


@remembered
def act_mul_fp8_quant(
    x: torch.Tensor, kind: str, group_size: int = 128, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """`quant_fp8_per_group(act_and_mul(x, kind))` in one kernel, without rounding the product to the dtype of x.

    Args:
        x: (..., 2 * d), gate first; float32, float16 or bfloat16; unit stride along the row, one from row to row.
        kind: "silu", "gelu", "gelu_tanh" or "relu".
        group_size: 1 to 8192; the last group of a row is narrower where d is no multiple.
        dtype: torch.float8_e4m3fn or torch.float8_e4m3fnuz; by default `fp8_dtype()`.

    Returns:
        (q, scale): q (..., d) in the fp8 dtype; scale (..., ceil(d / group_size)), float32. No gradient.

    Raises:
        TypeError: another dtype of x, no fp8 dtype, or a group_size that is no int.
        ValueError: an unknown kind, an odd width, group_size out of range; x is a scalar, requires grad, or has strides
            other than the above; or the GPU lacks the fp8 dtype.
    """
    check_kind(kind)
    checks.floating(x=x)
    checks.row_vectors(x)
    checks.not_differentiable(x=x)
    check_gated_width(x)
    group_size = _checked_group_size(group_size)
    x_rows = checks.rows_of(x=x)
    dtype = checked_dtype(x, dtype)
    if x.numel() == 0 or not runs_kernel(x, dtype):
        return reference.act_mul_fp8_quant(x, kind, group_size, dtype)
    q, scale = act_mul_fp8_quant_forward(x_rows, kind, group_size, dtype)
    return q.view(*x.shape[:-1], -1), scale.view(*x.shape[:-1], -1)
