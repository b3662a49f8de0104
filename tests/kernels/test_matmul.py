"""Matrix multiplication: values, edges, strides, activations, the order of the tiles, refusals."""

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import AMD_COMPUTE_UNITS, DTYPES, assert_close, short

import course_kernels
from course_kernels import launch, reference
from course_kernels._tile_order import grouped_tile, xcd_remap
from course_kernels.activations import KINDS

ONE_ROUNDING = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 8e-3}
SHAPES = [
    (1, 1, 1),
    (3, 5, 2),
    (33, 65, 129),
    (16, 16, 16),
    (1, 576, 49),  # SmolLM2: one token
    (17, 1, 70),
    (70, 300, 1),
    (65, 576, 192),  # its key projection
]
few_examples = settings(
    max_examples=8, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def randn(shape, dtype, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def operands(M, K, N, dtype, device, seed=0):
    return randn((M, K), dtype, device, seed), randn((K, N), dtype, device, seed + 1)


def matmul(a, b, **kwargs):
    with course_kernels.use_backend("triton"):
        return course_kernels.matmul(a, b, **kwargs)


def check(a, b, *, out_dtype=None, activation=None):
    before = a.clone(), b.clone()
    c = matmul(a, b, out_dtype=out_dtype, activation=activation)
    assert c.shape == (a.shape[0], b.shape[1]) and c.dtype == (out_dtype or a.dtype) and c.is_contiguous()
    want = reference.matmul(a, b, torch.float64, activation)
    # one rounding to the dtype of c, and the float32 additions: less than a TF32 or a half-precision sum would need
    unit = 8e-6 if a.is_cuda else 2e-6  # a GPU's matrix units cut off where they add: 5e-6 seen on an H200
    torch.testing.assert_close(c.double(), want, rtol=ONE_ROUNDING[c.dtype], atol=unit * a.shape[1] ** 0.5 + 1e-7)
    assert torch.equal(a, before[0]) and torch.equal(b, before[1]), "an operand was modified"


@pytest.fixture
def many_tiles():
    """A GPU that wants more programs than there are: the smallest tiles, in several bands and on all dies."""
    with launch.sizes_as(dot_tiles=((16, 16, 64),)):
        yield


# ---- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, dtype, device):
    check(*operands(*shape, dtype, device))


@pytest.mark.parametrize("shape", [(400, 40, 50), (33, 65, 129)], ids=str)
def test_many_tiles(shape, dtype, device, many_tiles):
    """25 rows of tiles: three bands of 8 and one of 1; and 100 or 27 programs, no multiples of 8 dies."""
    check(*operands(*shape, dtype, device))


@pytest.mark.parametrize("M", [1, 3, 16])
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_few_rows_are_summed_in_parts(M, activation, dtype, device):
    """700 terms: two parts of 256 and one of 188, none of which is a multiple of 64; 40 columns of one tile."""
    a, b = operands(M, 700, 40, dtype, device)
    (_, parts), _ = launch.matmul_tiles(a, M, 40, 700)
    assert parts == 3
    check(a, b, activation=activation)
    check(a, b.t().contiguous().t(), activation=activation, out_dtype=torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("M", [1, 16])
def test_a_step_of_a_decoder(M, dtype, device):
    """Llama-3-8B: one row of its 4096 x 4096 output projection."""
    a, b = operands(M, 4096, 4096, dtype, device)
    check(a, b.t().contiguous().t())


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)], ids=short)
def test_a_square(dtype, device):
    check(*operands(512, 512, 512, dtype, device))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(64, 4096, 128), (128, 2048, 512), (300, 1000, 700)], ids=str)
def test_deep_sums(shape, dtype, device):
    check(*operands(*shape, dtype, device))


@few_examples
@given(
    st.integers(1, 70),
    st.integers(1, 140),
    st.integers(1, 70),
    st.sampled_from(DTYPES),
    st.sampled_from([None, *KINDS]),
)
def test_any_shape(device, M, K, N, dtype, activation):
    check(*operands(M, K, N, dtype, device, seed=K), activation=activation)


@few_examples
@given(st.integers(1, 40), st.integers(1, 90), st.integers(1, 40))
def test_whole_numbers_are_exact_and_the_identity_changes_nothing(device, M, K, N):
    a, b = (t.round() for t in operands(M, K, N, torch.float32, device))
    assert torch.equal(matmul(a, b), (a.double() @ b.double()).float())
    assert torch.equal(matmul(a, torch.eye(K, device=device)), a)


@pytest.mark.parametrize("shape", [(0, 3, 4), (4, 3, 0), (0, 0, 0)], ids=str)
def test_empty_results(shape, device):
    c = matmul(*operands(*shape, torch.float16, device), out_dtype=torch.float32)
    assert c.shape == (shape[0], shape[2]) and c.dtype == torch.float32


def test_no_terms_sum_to_zero(device):
    assert torch.equal(matmul(*operands(3, 0, 4, torch.float32, device)), torch.zeros(3, 4, device=device))


# ---- dtypes and the epilogue ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("out_dtype", DTYPES, ids=short)
def test_the_result_may_have_another_dtype(out_dtype, dtype, device):
    check(*operands(20, 70, 33, dtype, device), out_dtype=out_dtype)


@pytest.mark.parametrize("activation", KINDS)
def test_the_activation_sees_the_unrounded_sum(activation, dtype, device):
    check(*operands(20, 70, 33, dtype, device), activation=activation)


def test_half_precision_sums_are_kept_in_float32(device):
    """In float16 the sum would stick at 2048, where the next number is 2050, and could not pass 65504."""
    a, b = torch.ones((16, 4096), device=device).half(), torch.ones((4096, 16), device=device).half()
    assert (matmul(a, b, out_dtype=torch.float32) == 4096).all()
    large = matmul(300 * a, b, out_dtype=torch.float32)
    assert (large == 300 * 4096).all() and matmul(300 * a, b).isinf().all()


def test_float32_keeps_all_its_digits(device):
    """1 + 2**-20 is 1 in TF32, and in bfloat16."""
    a = torch.full((16, 16), 1 + 2**-20, device=device)
    eye = torch.eye(16, device=device)
    assert torch.equal(matmul(a, eye), a)
    assert_close(matmul(a, eye, allow_tf32=True), a, 1e-3)


@pytest.mark.parametrize("arch", [*AMD_COMPUTE_UNITS, "sm_90"])
def test_tf32_is_used_only_where_it_is_allowed_and_known(arch):
    x = torch.empty(0)
    with launch.as_on(launch.Gpu(arch, 100)):
        assert launch.dot_precision(x, False) == "ieee"
        assert launch.dot_precision(x, True) == ("tf32" if arch in ("gfx942", "sm_90") else "ieee")


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy, as the interpreter meets inf * 0
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_in_its_row(value, device):
    a, b = operands(20, 40, 20, torch.float32, device)
    clean = matmul(a, b)
    a[3, 39] = value
    c = matmul(a, b)
    others = torch.arange(20, device=device) != 3
    assert not c[3].isfinite().any() and torch.equal(c[others], clean[others])


# ---- strides -------------------------------------------------------------------------------------------------------

VIEWS = {
    "transposed": lambda t: t.t().contiguous().t(),
    "every other": lambda t: t.repeat_interleave(2, 0).repeat_interleave(2, 1)[::2, ::2],
    "backwards in memory": lambda t: torch.stack([t, t], dim=-1)[..., 1],
    "expanded row": lambda t: t[:1].expand(t.shape),
    "expanded column": lambda t: t[:, :1].expand(t.shape),
}


@pytest.mark.parametrize("view_b", VIEWS)
@pytest.mark.parametrize("view_a", VIEWS)
def test_any_strides(view_a, view_b, device):
    a, b = operands(18, 37, 35, torch.float32, device)
    check(VIEWS[view_a](a), VIEWS[view_b](b))


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("shape", [(5, 7, 3), (33, 65, 129)], ids=str)
def test_nothing_outside_the_view_is_used(shape, transpose_a, transpose_b, dtype, device):
    """Around both operands lies NaN: a load without its mask reads it, and 0 * NaN is NaN."""

    def framed(t, transpose):
        t = t.t() if transpose else t
        frame = t.new_full((t.shape[0] + 140, t.shape[1] + 140), float("nan"))
        view = frame[3 : 3 + t.shape[0], 2 : 2 + t.shape[1]].copy_(t)
        return view.t() if transpose else view

    a, b = operands(*shape, dtype, device)
    check(framed(a, transpose_a), framed(b, transpose_b))


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize(
    ("shape", "stride"),
    [((65, 3), (2**25, 1)), ((3, 65), (1, 2**25)), ((3, 3), (1, 2**30))],
    ids=["rows", "a step of 64 terms", "terms of a step"],
)
def test_operands_beyond_two_to_the_31_elements(operand, shape, stride, device):
    """The last element is at 2**31 or beyond: in int32 that would be negative."""
    far = torch.empty(2**31 + 16, dtype=torch.float16, device=device).as_strided(shape, stride)
    far.copy_(randn(shape, torch.float16, device))
    near = randn((shape[1], 5), torch.float16, device, seed=1)
    if operand == "a":
        check(far, near)
    else:
        check(near.t(), far.t())


# ---- the order of the tiles ----------------------------------------------------------------------------------------


@triton.jit
def remap_kernel(out_ptr, smallest, BLOCK: tl.constexpr, XCDS: tl.constexpr):
    """Row p of out: where xcd_remap sends each program of a grid of p + smallest."""
    programs = tl.program_id(0) + smallest
    pid = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + pid, xcd_remap(pid, programs, XCDS), mask=pid < programs)


@triton.jit
def grouped_kernel(out_ptr, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Count the visits of each tile, and note which program came."""
    m, n = grouped_tile(tl.program_id(0), tiles_m, tiles_n, GROUP_M)
    tl.store(out_ptr + m * tiles_n + n, tl.program_id(0))


@pytest.mark.parametrize("xcds", [1, 8])
def test_the_remap_is_a_bijection_for_every_grid_of_up_to_700_programs(xcds, device):
    out = torch.full((700, 1024), -1, dtype=torch.int32, device=device)
    remap_kernel[(700,)](out, 1, BLOCK=1024, XCDS=xcds)
    for programs in range(1, 701):
        assert torch.equal(out[programs - 1, :programs].sort().values.cpu(), torch.arange(programs, dtype=torch.int32))


@few_examples
@given(st.integers(1, 2**16), st.sampled_from([1, 2, 3, 8]))
def test_the_remap_is_a_bijection_for_any_grid(device, programs, xcds):
    out = torch.full((2**16,), -1, dtype=torch.int32, device=device)
    remap_kernel[(1,)](out, programs, BLOCK=2**16, XCDS=xcds)
    assert torch.equal(out[:programs].sort().values.cpu(), torch.arange(programs, dtype=torch.int32))


@pytest.mark.parametrize("programs", [8, 13, 304, 700])
def test_every_die_gets_neighbouring_tiles(programs, device):
    out = torch.full((1024,), -1, dtype=torch.int32, device=device)
    remap_kernel[(1,)](out, programs, BLOCK=1024, XCDS=8)
    for die in range(8):
        tiles = out[die:programs:8]
        assert (tiles.diff() == 1).all()


@pytest.mark.parametrize("tiles", [(1, 1), (1, 9), (9, 1), (8, 3), (17, 5), (3, 7)], ids=str)
def test_the_grouped_order_is_a_bijection(tiles, device):
    out = torch.full(tiles, -1, dtype=torch.int32, device=device)
    grouped_kernel[(out.numel(),)](out, *tiles, GROUP_M=8)
    assert torch.equal(out.flatten().sort().values.cpu(), torch.arange(out.numel(), dtype=torch.int32))
    assert out[: min(8, tiles[0]), 0].tolist() == list(range(min(8, tiles[0])))  # down the band first


# ---- launch parameters ---------------------------------------------------------------------------------------------

LDS_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840, "gfx1100": 65536, "gfx1201": 65536, "sm_90": 232448}


@pytest.mark.parametrize("arch", LDS_BYTES)
@settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 20000), st.integers(1, 20000), st.integers(1, 20000), st.sampled_from(DTYPES))
def test_tiles_are_legal_and_cover_the_result(arch, M, N, K, dtype):
    with launch.as_on(launch.Gpu(arch, 100)) as gpu:
        (programs, parts), meta = launch.matmul_tiles(torch.empty(0, dtype=dtype), M, N, K)
    m, n, k = (meta[f"BLOCK_{axis}"] for axis in "MNK")
    few = 64 if arch == "sm_90" else 16
    assert all(size >= 16 and size & (size - 1) == 0 for size in (m, n, k))
    assert programs == -(-M // m) * -(-N // n)
    assert 1 <= parts <= 32 and (parts - 1) * 256 < K and (parts == 1 or few >= M)
    assert meta["num_warps"] * gpu.wave <= 1024 and m * n / (meta["num_warps"] * gpu.wave) <= 128
    copies = 1 if arch in ("gfx90a", "gfx942", "gfx1100", "gfx1201") else meta["num_stages"]  # next tile in registers
    assert (m + n) * k * dtype.itemsize * copies <= LDS_BYTES[arch]


def test_a_large_result_has_large_tiles_and_a_small_one_still_fills_the_gpu():
    x = torch.empty(0, dtype=torch.bfloat16)
    with launch.as_on(launch.Gpu("gfx942", 304)):
        large, small = (launch.dot_tiles(x, n, n, n) for n in (8192, 1024))
    assert (large.meta["BLOCK_M"], large.meta["BLOCK_N"]) == (256, 128) and large.grid == (2048,)
    assert small.grid[0] >= 304


@pytest.mark.parametrize(("arch", "units"), [*AMD_COMPUTE_UNITS.items(), ("sm_90", 132)])
def test_few_rows_of_a_4096_x_4096_weight_fill_the_gpu(arch, units):
    x, few = torch.empty(0, dtype=torch.bfloat16), 64 if arch == "sm_90" else 16
    with launch.as_on(launch.Gpu(arch, units)):
        of_rows = {rows: launch.matmul_tiles(x, rows, 4096, 4096) for rows in (1, 16, few, few + 1)}
    for (programs, parts), meta in (of_rows[1], of_rows[16]):
        assert meta["BLOCK_M"] == 16 and programs * parts >= (1 if arch == "sm_90" else 3) * units
    assert of_rows[few].grid[1] > 1
    assert of_rows[few + 1].grid[1] == 1


@given(st.integers(1, 2**20), st.integers(1, 32))
def test_the_parts_of_every_result_are_added_up(size, parts):
    (programs,), meta = launch.sum_of_parts(torch.empty(size, device="meta"), parts)
    assert (programs - 1) * meta["BLOCK_N"] < size <= programs * meta["BLOCK_N"] and meta["BLOCK_M"] >= parts


# ---- refusals, each before any launch ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "spoil", "kwargs"),
    [
        (TypeError, "a must be float32", lambda a, b: (a.double(), b), {}),
        (TypeError, "b must be float32", lambda a, b: (a, b.int()), {}),
        (TypeError, "a must be a torch.Tensor, got list", lambda a, b: ([[1.0]], b), {}),
        (TypeError, "a and b must have one dtype", lambda a, b: (a, b.half()), {}),
        (TypeError, "out_dtype must be float32", lambda a, b: (a, b), {"out_dtype": torch.float64}),
        (ValueError, r"a must have 2 dimensions, \(M, K\)", lambda a, b: (a[0], b), {}),
        (ValueError, r"b must have 2 dimensions, \(K, N\)", lambda a, b: (a, b[None]), {}),
        (ValueError, "a has 6 columns but b has 5 rows", lambda a, b: (a, b[:5]), {}),
        (ValueError, "a requires grad", lambda a, b: (a.requires_grad_(), b), {}),
        (ValueError, "b requires grad", lambda a, b: (a, b.requires_grad_()), {}),
        (ValueError, "b is on meta but a is on", lambda a, b: (a, b.to("meta")), {}),
        (
            ValueError,
            "activation must be None or one of silu, .*; got 'swish'",
            lambda a, b: (a, b),
            {"activation": "swish"},
        ),
    ],
)
def test_bad_arguments_are_named(error, message, spoil, kwargs, backend, device, no_launch):
    a, b = spoil(*operands(4, 6, 5, torch.float32, device))
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.matmul(a, b, **kwargs)
