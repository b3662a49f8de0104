"""Every kernel, compiled for five AMD architectures as the launcher would: no spill, wide loads on aligned rows."""

import importlib
import itertools
import re
from collections.abc import Iterable

import pytest
import torch
from amd_table import MATRIX, fact
from kernel_testing import AMD_COMPUTE_UNITS, DTYPES, short

from course_kernels import launch
from gfxlab.engine import dual_mode

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")

rms_norm, layer_norm, vector_add = (
    importlib.import_module(f"course_kernels.{family}") for family in ("rms_norm", "layer_norm", "vector_add")
)
matmul, linear, topk, conv2d = (
    importlib.import_module(f"course_kernels.{f}") for f in ("matmul", "linear", "topk", "conv2d")
)
attention, paged_attention = (
    importlib.import_module(f"course_kernels.{family}") for family in ("attention", "paged_attention")
)
rope, qkv, kv_cache, mla = (
    importlib.import_module(f"course_kernels.{family}") for family in ("rope", "qkv", "kv_cache", "mla")
)
softmax, activations, dropout, quant = (
    importlib.import_module(f"course_kernels.{family}") for family in ("softmax", "activations", "dropout", "quant")
)
NARROW = re.compile(r"(?:global|buffer)_(?:load|store)_(?:dwordx2|b64|dwordx3|b96)\b")
SINGLE = re.compile(r"(?:global|buffer)_(?:load|store)_(?:dword|b32|ushort|u16|short|b16|d16\w*)\b")
WIDE = re.compile(r"(?:global|buffer)_load_(?:dwordx4|b128)")


HAVE_FP8 = ("gfx942", "gfx950", "gfx1201")


def dealt_out(
    names: tuple[str, ...], cases: list[tuple], *, one_in: int, archs: Iterable[str] = AMD_COMPUTE_UNITS
) -> pytest.MarkDecorator:
    """Every case on every architecture: one in so many in `make test`, others on each, the rest in `make test-full`."""
    params = [
        pytest.param(
            arch, *case, id="-".join([arch, *map(_word, case)]), marks=[pytest.mark.slow] * (turn % one_in > 0)
        )
        for place, arch in enumerate(archs)
        for turn, case in enumerate(cases, start=place)
    ]
    return pytest.mark.parametrize(("recorded", *names), params, indirect=["recorded"])


def _word(value) -> str:
    return short(value) if isinstance(value, torch.dtype) else str(value)


def launch_all(rows: int, cols: int, dtype: torch.dtype, *, fused: bool) -> None:
    """Launch each kernel of the package on a matrix of this shape, with or without a residual."""
    x, weight = torch.empty(rows, cols, dtype=dtype), torch.empty(cols, dtype=dtype)
    residual = x if fused else None
    vector_add.vector_add_forward(x, x)
    rms_norm.rms_norm_forward(x, residual, weight, 1e-6)
    rms_norm.rms_norm_backward(x, residual, x, weight, 1e-6)
    layer_norm.layer_norm_forward(x, residual, weight, weight, 1e-5)
    layer_norm.layer_norm_backward(x, residual, x, weight, weight, 1e-5)
    _, *statistics = layer_norm.layer_norm_forward(x, None, weight, weight, 1e-5, True)
    layer_norm.layer_norm_backward(x, residual, x, weight, weight, 1e-5, *statistics)
    softmax.softmax_forward(x)
    dropout.dropout_add_forward(x, residual, 0.1, 2**40)


def launch_activations(rows: int, cols: int, dtype: torch.dtype, kind: str) -> None:
    """Launch each activation kernel for a result of this shape."""
    x, gated = torch.empty(rows, cols, dtype=dtype), torch.empty(rows, 2 * cols, dtype=dtype)
    activations.activation_forward(x, kind)
    activations.activation_backward(x, x, kind)
    activations.act_and_mul_forward(gated, x, kind)
    activations.act_and_mul_backward(x, gated, kind)


def launch_quant(rows: int, cols: int, dtype: torch.dtype, fp8: torch.dtype) -> None:
    """Launch each quantisation kernel for a result of this shape."""
    x, gated = torch.empty(rows, cols, dtype=dtype), torch.empty(rows, 2 * cols, dtype=dtype)
    quant.quant_fp8_forward(x, cols, fp8)
    quant.quant_fp8_forward(x, 128, fp8)
    quant.act_mul_fp8_quant_forward(gated, "gelu", 128, fp8)


SHORT_ROW = 256  # columns: a weight this long is less than a vector of 16 bytes a lane


def may_be_narrow(name: str, access: str, cols: int) -> bool:
    """The weight of short rows; sums that are kept in float32 and rounded when they are stored."""
    if "_load_" in access:
        return cols < SHORT_ROW
    return name == "column_sum_kernel" or "backward" in name


def check(recorded, cols):
    """Every recorded launch on rows of this width: no spill, wide loads where rows are aligned."""
    for kernel, compiled in recorded.compiled():
        name, code = kernel.fn.__name__, compiled.asm["amdgcn"]
        assert fact(code, "vgpr_spill_count") == 0 and fact(code, "private_segment_fixed_size") == 0, name
        if cols % 16:
            continue  # every other row begins off a 16-byte boundary: no wide load is possible
        assert WIDE.search(code), name
        if "fp8" not in name:  # stores a byte where it loads two or four
            narrow = {found for found in NARROW.findall(code) if not may_be_narrow(name, found, cols)}
            assert not narrow, f"{name}: {narrow}"
            singles = SINGLE.findall(code)  # a row's first element or its statistics, a column's sum; never a tile
            assert len(singles) <= 5 or cols < SHORT_ROW, f"{name}: {singles}"


@dealt_out(("rows", "cols"), [(4096, 576), (2, 131072)], one_in=2)
def test_no_spill_and_wide_loads(recorded, rows, cols):
    launch_all(rows, cols, torch.bfloat16, fused=True)
    check(recorded, cols)


def test_no_spill_and_wide_loads_in_activations(recorded):
    launch_activations(4096, 576, torch.bfloat16, "gelu")
    check(recorded, 576)


@dealt_out(("rows", "cols"), [(4096, 576), (64, 131072)], one_in=2, archs=HAVE_FP8)
def test_no_spill_and_wide_loads_in_quantisation(recorded, rows, cols):
    launch_quant(rows, cols, torch.bfloat16, quant.fp8_dtype(recorded.arch))
    check(recorded, cols)


@dealt_out(("cols",), [(launch.sizes().max_row,), (16383,), (131072,), (131071,)], one_in=2, archs=["gfx942"])
def test_no_spill_in_float32_at_the_widest_rows(recorded, cols):
    launch_all(2, cols, torch.float32, fused=True)
    launch_quant(2, cols, torch.float32, torch.float8_e4m3fnuz)
    check(recorded, cols)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("cols", [128, 575, 576, 1000, 4096, 8192, 16383, 16384, 65536, 131071, 131072])
def test_no_spill_and_wide_loads_everywhere(recorded, cols, dtype, fused):
    rows = 8192 if cols < 2048 else 8
    launch_all(rows, cols, dtype, fused=fused)
    for kind in activations.KINDS if fused else ():
        launch_activations(rows, cols, dtype, kind)
    if fused and recorded.arch in ("gfx942", "gfx950", "gfx1201"):
        launch_quant(max(rows, 512), cols, dtype, quant.fp8_dtype(recorded.arch))
    check(recorded, cols)


# ---- kernels of heads -----------------------------------------------------------------------------------------------

NARROW_LOAD = re.compile(r"(?:global|buffer)_load_(?:u?short|[ui]16|d16|[us]?byte|[ui]8)\w*")
NARROW_STORE = re.compile(r"(?:global|buffer)_store_(?!dwordx4|b128)\w+")


def launch_heads(tokens: int, q_heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, style: str) -> None:
    """Launch each kernel that moves heads, for a model's layer with such heads."""
    x = torch.empty(tokens, q_heads + 2 * kv_heads, head_dim, dtype=dtype)
    positions, cos = torch.empty(tokens, dtype=torch.int64), torch.empty(tokens, head_dim // 2)
    rope.rope_forward(x, x, cos, cos, positions[None], None, None, style, "thd", head_dim, False)
    rope.rope_2d_forward(
        x[None], *[torch.empty(64, head_dim // 4)] * 2, *[torch.empty(tokens // 64, head_dim // 4)] * 2
    )
    qkv.split_qkv_rope_forward(x.flatten(1), cos, cos, positions, q_heads, kv_heads, head_dim, style)
    parts = [torch.empty(tokens, heads, width, dtype=dtype) for heads in (q_heads, 1) for width in (512, head_dim)]
    qkv.concat_qk_forward(*parts, None, None, None, style)
    qkv.concat_qk_forward(*parts, positions, cos, cos, style)


def check_heads(recorded, *, wide=True, stores=True):
    """Every recorded launch: no spill, and heads come and go in whole vectors; tables and positions may be narrower."""
    for kernel, compiled in recorded.compiled():
        name, code = kernel.fn.__name__, compiled.asm["amdgcn"]
        assert fact(code, "vgpr_spill_count") == 0 and fact(code, "private_segment_fixed_size") == 0, name
        if wide:
            assert WIDE.search(code) and not NARROW_LOAD.search(code), f"{name}: {NARROW_LOAD.findall(code)}"
            assert not (stores and NARROW_STORE.search(code)), f"{name}: {NARROW_STORE.findall(code)}"


SMOLLM2, LLAMA3 = (9, 3, 64), (32, 8, 128)


@dealt_out(("sizes", "style"), [(SMOLLM2, "neox"), (SMOLLM2, "gptj"), (LLAMA3, "gptj"), (LLAMA3, "neox")], one_in=4)
def test_heads_of_a_prompt(recorded, sizes, style):
    launch_heads(4096, *sizes, torch.bfloat16, style)
    check_heads(recorded)


@dealt_out(("style",), [("neox",), ("gptj",)], one_in=2)
def test_rope_of_a_part_of_a_head_at_positions_that_are_counted(recorded, style):
    """What the launches above leave out: sequences one after another, offsets, elements that stay, the way back."""
    x, cos = torch.empty(4096, 32, 128, dtype=torch.bfloat16), torch.empty(4096, 32)
    starts, offsets = torch.empty(9, dtype=torch.int32), torch.empty(8, 1, dtype=torch.int64).expand(8, 4096)
    rope.rope_forward(x, torch.empty_like(x), cos, cos, None, offsets, starts, style, "thd", 64, True)
    for layout in ("sbhd", "bshd"):
        x4 = x.view(1024, 4, 32, 128) if layout == "sbhd" else x.view(4, 1024, 32, 128)
        rope.rope_forward(x4, x4, cos, cos, None, None, None, style, layout, 64, False, inverse=True)
    check_heads(recorded)


@pytest.mark.parametrize("recorded", ["gfx942"], indirect=True)
def test_heads_of_one_token_a_sequence(recorded):
    launch_heads(64, 32, 8, 128, torch.bfloat16, "neox")
    check_heads(recorded, wide=False)


def launch_cache(tokens: int, q_heads: int, kv_heads: int, head_dim: int, dtype, cache_dtype, layout, style) -> None:
    """Launch the cache kernel for a model's layer: with RoPE and without, contiguous as well if the layout is flash."""
    q, k = (torch.empty(tokens, heads, head_dim, dtype=dtype) for heads in (q_heads, kv_heads))
    positions, cos = torch.empty(tokens, dtype=torch.int64), torch.empty(tokens, head_dim // 2)
    x = 16 // cache_dtype.itemsize
    packed = (99, kv_heads, head_dim // x, 16, x), (99, kv_heads, head_dim, 16)
    shapes = packed if layout == "packed" else [(99, 16, kv_heads, head_dim)] * 2
    k_cache, v_cache = (torch.empty(shape, dtype=cache_dtype) for shape in shapes)
    scales = [torch.empty(1) if cache_dtype.itemsize == 1 else None] * 2
    forward, caches = kv_cache.kv_cache_forward, (k_cache, v_cache)
    forward(q, k, k, q, k, *caches, positions, positions, cos, cos, *scales, layout, style)
    forward(None, k, k, None, None, *caches, positions, None, None, None, *scales, layout, style)
    if layout == "flash" and cache_dtype == dtype:
        q, k, positions, caches = q[None], k[None], positions[None], [c.flatten(0, 1)[None] for c in caches]
        forward(q, k, k, q, None, *caches, None, positions, cos, cos, None, None, layout, style)


@dealt_out(
    ("sizes", "layout"), [(SMOLLM2, "flash"), (SMOLLM2, "packed"), (LLAMA3, "packed"), (LLAMA3, "flash")], one_in=4
)
def test_cache_of_a_prompt(recorded, sizes, layout):
    """In the packed layout neighbours of a value lie apart, so they are stored one by one."""
    launch_cache(4096, *sizes, torch.bfloat16, torch.bfloat16, layout, "neox")
    check_heads(recorded, stores=layout == "flash")


@dealt_out(("layout",), [("flash",), ("packed",)], one_in=2, archs=HAVE_FP8)
def test_cache_of_fp8(recorded, layout):
    launch_cache(4096, 32, 8, 128, torch.bfloat16, quant.fp8_dtype(recorded.arch), layout, "neox")
    check_heads(recorded, stores=False)


@dealt_out(("style",), [("gptj",), ("neox",)], one_in=2)
def test_angles_computed_in_the_kernel(recorded, style):
    x = torch.empty(2, 4096, 32, 128, dtype=torch.bfloat16)
    for inv_freq in (torch.empty(64), torch.empty(64, dtype=torch.float64)):
        rope.rope_forward(x, torch.empty_like(x), inv_freq, None, None, None, None, style, "bshd", 128, False)
    check_heads(recorded)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["neox", "gptj"])
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("layout", ["flash", "packed"])
def test_cache_everywhere(recorded, layout, dtype, style):
    for tokens, sizes in ((4096, (40, 8, 128)), (64, (32, 8, 128)), (1, (16, 16, 256))):
        launch_cache(tokens, *sizes, dtype, dtype, layout, style)
    check_heads(recorded, wide=False)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["neox", "gptj"])
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("sizes", [(40, 8, 128), (12, 12, 80), (16, 16, 256)], ids=str)
def test_heads_everywhere(recorded, sizes, dtype, style):
    launch_heads(4096, *sizes, dtype, style)
    check_heads(recorded, wide=sizes[-1] != 80)


# ---- kernels of the matrix units -----------------------------------------------------------------------------------

LDS_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840, "gfx1100": 65536, "gfx1201": 65536}


def check_dots(recorded, dtype, *, aligned=True, only_tiles=True):
    """Every recorded launch: no spill, LDS in its limit, matrix instructions, wide loads where rows are aligned.

    Programs that have more to do than to multiply `only_tiles` may load a little by single elements.
    """
    for _, compiled in recorded.compiled():
        code = compiled.asm["amdgcn"]
        assert fact(code, "vgpr_spill_count") == 0 and fact(code, "private_segment_fixed_size") == 0
        assert compiled.metadata.shared <= LDS_BYTES[recorded.arch]
        half = dtype != torch.float32
        if "tt.dot" in compiled.asm["ttir"] and (half or recorded.arch.startswith("gfx9")):
            assert MATRIX.search(code), "no matrix instruction"
        if aligned and (half or recorded.arch != "gfx950"):  # there float32 goes to LDS directly, 4 bytes a lane
            assert WIDE.search(code)
            single = re.search(r"(?:global|buffer)_load_(?:u?short|[ui]16|d16)", code)
            assert not (only_tiles and single), "an element at a time"


@dealt_out(
    ("shape", "dtype", "transposed"),
    [
        ((8192, 8192, 8192), torch.bfloat16, False),
        ((1, 4096, 4096), torch.bfloat16, True),
        ((16, 4096, 4096), torch.float16, False),
        ((1, 576, 1536), torch.float32, True),
        ((2048, 2048, 2048), torch.float32, False),
    ],
    one_in=3,
)
def test_matmul(recorded, shape, dtype, transposed):
    M, K, N = shape
    a = torch.empty((M, K), dtype=dtype)
    b = torch.empty((N, K), dtype=dtype).t() if transposed else torch.empty((K, N), dtype=dtype)
    matmul.matmul_forward(a, b, dtype, "silu", False)
    check_dots(recorded, dtype, aligned=K % 16 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("size", [16, 33, 64, 576, 1023, 4096, 4097, 8192])
def test_matmul_everywhere(recorded, size, dtype):
    a = torch.empty((size, size), dtype=dtype)
    for left in (a, a.t()):
        for right in (a, a.t()):
            matmul.matmul_forward(left, right, dtype, "gelu", False)
    check_dots(recorded, dtype, aligned=size % 16 == 0)


@dealt_out(
    ("rows", "depth", "dtype"),
    [(*size, dtype) for size in ((960, 576), (49152, 576), (576, 1536)) for dtype in DTYPES],
    one_in=4,
)
def test_matrix_vector(recorded, rows, depth, dtype):
    linear.matrix_vector_forward(torch.empty(1, depth, dtype=dtype), torch.empty(rows, depth, dtype=dtype))
    check_dots(recorded, dtype, only_tiles=False)  # a program stores one element a row


def launch_attention(head_dim: int, dtype: torch.dtype, *, causal: bool, backward: bool, tokens: int = 4000) -> None:
    """Launch the attention kernels for a prompt, with 8 heads of keys for 32 of queries."""
    q, k = (torch.empty(1, heads, tokens, head_dim, dtype=dtype) for heads in (32, 8))
    lse = torch.empty(q.shape[:3])
    if backward:
        attention.flash_attention_backward(q, q, k, k, q, lse, causal, 0.1)
    else:
        attention.flash_attention_forward(q, k, k, causal, 0.1)


@dealt_out(
    ("head_dim", "dtype", "backward"),
    list(itertools.product((64, 128, 256), (torch.float32, torch.bfloat16), (False, True))),
    one_in=5,
)
def test_attention(recorded, head_dim, dtype, backward):
    """Every head fits: where registers would not hold a whole one, it is cut."""
    launch_attention(head_dim, dtype, causal=True, backward=backward)
    check_dots(recorded, dtype)


def launch_mla(tokens: int, rows: int, dtype: torch.dtype, style: str, cache_dtype: torch.dtype | None = None) -> None:
    """Launch the MLA kernel for a layer of DeepSeek-V3 on one of eight GPUs: tokens that decode, and a prompt's."""
    q, k = (torch.empty(count, heads, 576, dtype=dtype) for count, heads in ((tokens, 16), (rows, 1)))
    w_uk, cos = torch.empty(16, 512, 128, dtype=dtype), torch.empty(4096, 32)
    slots = torch.empty(rows, dtype=torch.int64)
    parts = q[..., :128], w_uk, q[..., 512:], k[..., :512], k[..., 512:]
    cache, scale = torch.empty(9999, 1, 576, dtype=cache_dtype or dtype), torch.empty(1) if cache_dtype else None
    mla.mla_forward(*parts, cache, slots, slots[:tokens], cos, cos, style, scale)


@dealt_out(("tokens", "rows"), [(32, 32), (256, 4096)], one_in=2)  # decoding; with a prompt
def test_mla(recorded, tokens, rows):
    """A program that caches one row has fewer pairs to turn than threads."""
    launch_mla(tokens, rows, torch.bfloat16, "gptj")
    check_dots(recorded, torch.bfloat16, only_tiles=False)


@pytest.mark.parametrize("recorded", HAVE_FP8, indirect=True)
def test_mla_with_a_cache_of_fp8(recorded):
    launch_mla(256, 4096, torch.bfloat16, "neox", quant.fp8_dtype(recorded.arch))
    check_dots(recorded, torch.bfloat16, only_tiles=False)


@pytest.mark.slow
@pytest.mark.parametrize("style", ["neox", "gptj"])
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
def test_mla_everywhere(recorded, dtype, style):
    for tokens, rows in ((0, 64), (1, 1), (128, 128), (2048, 4096)):
        launch_mla(tokens, rows, dtype, style)
    check_dots(recorded, dtype, only_tiles=False)


@pytest.mark.slow
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("head_dim", [16, 40, 64, 80, 128, 160, 256])
def test_attention_everywhere(recorded, head_dim, dtype, backward):
    for causal in (False, True):
        launch_attention(head_dim, dtype, causal=causal, backward=backward, tokens=4001)
    few = backward and head_dim == 16  # 64 x 16 halves are 4 for each of 256 threads: 8 bytes
    check_dots(recorded, dtype, aligned=head_dim % 16 == 0 and not few)


def launch_decode(
    heads: int, head_dim: int, dtype: torch.dtype, cache_dtype: torch.dtype | None = None, layout: str = "flash"
) -> None:
    """Launch the paged attention kernels for one long sequence of a model with 8 heads in its cache."""
    q, x = torch.empty(1, heads, head_dim, dtype=dtype), 16 // (cache_dtype or dtype).itemsize
    flash, packed = ((64, 16, 8, head_dim),) * 2, ((64, 8, head_dim // x, 16, x), (64, 8, head_dim, 16))
    caches = [torch.empty(shape, dtype=cache_dtype or dtype) for shape in (packed if layout == "packed" else flash)]
    table, lengths = torch.empty(1, 1000, dtype=torch.int32), torch.empty(1, dtype=torch.int32)
    scale = torch.empty(8) if cache_dtype else None
    paged_attention.paged_decode_forward(q, *caches, table, lengths, 0.1, scale, scale, layout=layout)


def test_paged_attention_of_llama(recorded):
    launch_decode(32, 128, torch.bfloat16)
    check_dots(recorded, torch.bfloat16)
    assert len(recorded.launches) == 2  # the second merges


def test_paged_attention_to_packed_pages(recorded):
    launch_decode(32, 128, torch.bfloat16, layout="packed")
    check_dots(recorded, torch.bfloat16)


@dealt_out(("layout",), [("packed",), ("flash",)], one_in=2, archs=HAVE_FP8)
def test_paged_attention_to_fp8(recorded, layout):
    launch_decode(32, 128, torch.bfloat16, quant.fp8_dtype(recorded.arch), layout)
    check_dots(recorded, torch.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("heads", [8, 32, 512])
@pytest.mark.parametrize("layout", ["flash", "packed"])
def test_paged_attention_everywhere(recorded, layout, heads, head_dim, dtype):
    if dtype == torch.float32 and not recorded.arch.startswith("gfx9") and (heads > 128 or head_dim > 64):
        pytest.skip("no tile fits into registers")
    launch_decode(heads, head_dim, dtype, layout=layout)
    if recorded.arch in ("gfx942", "gfx950", "gfx1201"):
        launch_decode(heads, head_dim, dtype, quant.fp8_dtype(recorded.arch), layout)
    check_dots(recorded, dtype)


# ---- top-k ---------------------------------------------------------------------------------------------------------


@dealt_out(  # many rows, a vocabulary, so many that they are sorted
    ("rows", "cols", "k", "dtype"),
    [(8192, 576, 8, torch.bfloat16), (16, 128256, 64, torch.float32), (2, 128256, 5000, torch.bfloat16)],
    one_in=3,
)
def test_topk(recorded, rows, cols, k, dtype):
    topk.topk_forward(torch.empty((rows, cols), dtype=dtype), k)
    for kernel, compiled in recorded.compiled():
        code = compiled.asm["amdgcn"]
        assert fact(code, "vgpr_spill_count") == 0 and fact(code, "private_segment_fixed_size") == 0
        if kernel is topk.select_kernel or kernel is topk.merge_kernel:
            assert WIDE.search(code), kernel.fn.__name__
        assert "fptosi" not in compiled.asm["ttir"], "a lane without a key holds no floating-point number"


# ---- convolution ---------------------------------------------------------------------------------------------------


@dealt_out(
    ("channels", "taps", "dtype", "layout"),
    [
        (64, 3, torch.bfloat16, torch.channels_last),
        (256, 1, torch.float32, torch.channels_last),
        (3, 7, torch.float16, torch.contiguous_format),
    ],
    one_in=3,
)
def test_conv2d(recorded, channels, taps, dtype, layout):
    """The layers of a ResNet-50."""
    x = torch.empty((32, channels, 56, 56), dtype=dtype).contiguous(memory_format=layout)
    weight = torch.empty((64, channels, taps, taps), dtype=dtype).contiguous(memory_format=layout)
    aligned = layout == torch.channels_last
    bias = None if aligned else torch.empty(64, dtype=dtype)  # each lane of a gfx11 tile needs another element of it
    conv2d.conv2d_forward(x, weight, bias, (1, 1), (taps // 2, taps // 2), (1, 1))
    check_dots(recorded, dtype, aligned=aligned)
