"""Launch parameters are legal and cover the matrix, on every architecture and for every shape."""

import math
from collections.abc import Iterator

import pytest
import torch
import triton
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import AMD_COMPUTE_UNITS, DTYPES, short

from course_kernels import launch

GPUS = {**AMD_COMPUTE_UNITS, "sm_90": 132}


@pytest.fixture(params=GPUS)
def gpu(request) -> Iterator[launch.Gpu]:
    with launch.as_on(launch.Gpu(request.param, GPUS[request.param])) as gpu:
        yield gpu


def matrix(rows: int, cols: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty((rows, cols), dtype=dtype, device="meta")


def assert_legal(meta: dict[str, int], gpu: launch.Gpu) -> None:
    warps = meta["num_warps"]
    assert warps >= 1 and warps == triton.next_power_of_2(warps)
    assert warps * gpu.wave <= 1024
    assert all(size == triton.next_power_of_2(size) for name, size in meta.items() if name.startswith("BLOCK"))


@settings(deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 10**6), st.integers(1, 2**17), st.sampled_from(DTYPES))
def test_every_matrix_is_covered_by_legal_programs(gpu, rows, cols, dtype):
    x = matrix(rows, cols, dtype)

    (programs,), meta = launch.elementwise(x)
    assert_legal(meta, gpu)
    assert programs == math.ceil(rows * cols / meta["BLOCK"])

    for group_size in (1, 96, 128, launch.sizes().max_row):
        (programs,), meta = launch.row_groups(x, group_size)
        assert_legal(meta, gpu)
        assert meta["BLOCK_N"] >= min(group_size, cols)
        assert programs == math.ceil(rows / meta["BLOCK_M"]) * math.ceil(cols / group_size)

    (programs,), meta = launch.tiles(x)
    assert_legal(meta, gpu)
    assert programs == math.ceil(rows / meta["BLOCK_M"]) * math.ceil(cols / meta["BLOCK_N"])

    if cols <= launch.sizes().max_row:
        (programs,), meta = launch.whole_rows(x)
        assert_legal(meta, gpu)
        assert meta["BLOCK_N"] >= cols and (programs - 1) * meta["BLOCK_M"] < rows <= programs * meta["BLOCK_M"]
        (resident,), resident_meta = launch.resident_rows(x)
        assert_legal(resident_meta, gpu)
        assert resident_meta["BLOCK_N"] >= cols and 1 <= resident <= rows
    else:
        for (programs,), meta in (
            launch.long_rows(x),
            launch.long_rows(x, 2),
            launch.long_rows(x, 2, 2),
            launch.long_sums(x),
        ):
            assert_legal(meta, gpu)
            assert programs == rows and meta["BLOCK_N"] <= cols

    for heads in ((40,), (9, 3, 3), (16, 1)):
        blocks, meta = launch.head_groups(rows, heads, min(cols, 512), x)
        assert_legal(meta, gpu)
        assert blocks == (math.ceil(rows / meta["BLOCK_T"]), sum(math.ceil(kind / meta["BLOCK_H"]) for kind in heads))
        assert launch.copied_heads(meta, x) == triton.next_power_of_2(launch.copied_heads(meta, x))

    for heads, kv_heads in ((16, 1), (5, 3)):
        q = torch.empty((rows, heads, 128), dtype=dtype, device="meta")
        (programs,), meta = launch.latents(q, min(cols, 512), 64, 2 * rows, kv_heads)
        assert_legal(meta, gpu)
        products = math.ceil(rows / meta["BLOCK_M"]) * math.ceil(min(cols, 512) / meta["BLOCK_N"]) * heads
        turns = math.ceil(rows / meta["BLOCK_T"]) * math.ceil(heads / meta["BLOCK_H"])
        assert programs == products + turns + math.ceil(2 * rows / meta["BLOCK_R"]) * kv_heads

    (across, down), meta = launch.column_blocks(x)
    assert_legal(meta, gpu)
    assert across * meta["BLOCK_N"] >= cols and 1 <= down <= rows

    (programs,), meta = launch.column_sums(x)
    assert_legal(meta, gpu)
    assert (programs - 1) * meta["BLOCK_N"] < cols <= programs * meta["BLOCK_N"]


@pytest.mark.parametrize(("width", "num_warps"), [(32, 4), (64, 8), (128, 4), (256, 8)])
def test_on_hopper_two_groups_of_threads_share_the_queries_of_heads_of_64_and_of_the_widest(width, num_warps):
    with launch.as_on(launch.Gpu("sm_90", 132)):
        _, meta = launch.attention_tiles(torch.empty(4, 32, 4096, width, dtype=torch.float16, device="meta"))
    assert meta["num_warps"] == num_warps and meta["BLOCK_M"] == 128


def test_a_wave_is_64_threads_on_instinct_and_32_elsewhere():
    waves = {arch: launch.Gpu(arch, 1).wave for arch in GPUS}
    assert waves == {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32, "sm_90": 32}


@pytest.mark.parametrize(("cols", "block_n"), [(576, 64), (1000, 1024), (1536, 512), (4096, 4096), (3, 4)])
def test_tiles_leave_few_lanes_idle(gpu, cols, block_n):
    _, meta = launch.tiles(matrix(1_000_000, cols))
    tile = launch.sizes().tile * (2 if gpu.is_amd else 1)
    assert meta["BLOCK_N"] == min(block_n, tile) and meta["BLOCK_M"] * meta["BLOCK_N"] == tile


def test_short_rows_are_packed_only_when_there_are_many(gpu):
    few, many = launch.whole_rows(matrix(64, 576)), launch.whole_rows(matrix(100_000, 576))
    assert few.meta["BLOCK_M"] == 1 and many.meta["BLOCK_M"] > 1


@pytest.mark.parametrize("dtype", DTYPES, ids=short)
def test_the_widest_row_that_is_held_fits_into_registers(gpu, dtype):
    """32 elements a thread and tile, five tiles in a backward pass: 160 of the 255 registers that a thread may have."""
    _, meta = launch.whole_rows(matrix(1, launch.sizes().max_row, dtype))
    assert meta["BLOCK_N"] // (meta["num_warps"] * gpu.wave) <= 32


@pytest.mark.parametrize("cols", [256, 576, 1536, 4096, 8192])
@pytest.mark.parametrize("dtype", DTYPES, ids=short)
def test_every_thread_has_a_whole_vector_of_a_row(gpu, cols, dtype):
    """With more threads than a row has 16-byte vectors, the weight would be loaded in smaller pieces."""
    _, meta = launch.whole_rows(matrix(10_000, cols, dtype))
    threads = meta["num_warps"] * gpu.wave
    assert meta["BLOCK_N"] * dtype.itemsize >= 16 * threads or threads == gpu.wave


def test_a_cpu_tensor_is_launched_as_on_mi300x():
    assert launch.gpu_of(torch.empty(1)) == launch.Gpu("gfx942", 304)


# ---- attention -----------------------------------------------------------------------------------------------------

many_examples = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def queries(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@many_examples
@given(st.integers(1, 64), st.integers(1, 128), st.integers(1, 10**5), st.integers(1, 256), st.sampled_from(DTYPES))
def test_attention_covers_every_row_and_every_element_of_a_head(gpu, batch, heads, rows, head_dim, dtype):
    q = queries(batch, heads, rows, head_dim, dtype=dtype)
    for (programs, slices), meta in (launch.attention_tiles(q), launch.attention_backward_tiles(q)):
        assert_legal(meta, gpu)
        assert min(meta[f"BLOCK_{axis}"] for axis in "MND") >= 16, "the matrix units multiply 16 x 16 or more"
        assert programs == batch * heads * math.ceil(rows / meta["BLOCK_M"])
        assert (slices - 1) * meta["BLOCK_D"] < head_dim <= slices * meta["BLOCK_D"]


def test_few_queries_have_a_small_tile(gpu):
    """One token of a decoder: 128 rows of which 127 do not exist would be computed for nothing."""
    for rows, block_m in ((1, 16), (16, 16), (17, 32)):
        (programs, _), meta = launch.attention_tiles(queries(1, 8, rows, 128))
        assert meta["BLOCK_M"] == block_m and programs == 8


def test_heads_are_cut_only_where_they_would_spill(gpu):
    for head_dim, dtype in ((64, torch.float32), (64, torch.bfloat16), (128, torch.float32), (128, torch.bfloat16)):
        (_, slices), _ = launch.attention_tiles(queries(1, 8, 4096, head_dim, dtype=dtype))
        assert slices == 1
    (_, slices), _ = launch.attention_tiles(queries(1, 8, 4096, 256))
    assert slices == (2 if gpu.arch == "gfx1100" else 1)
    (_, slices), _ = launch.attention_backward_tiles(queries(1, 8, 4096, 256))
    assert slices == {"gfx1100": 4, "sm_90": 1}.get(gpu.arch, 2)


@many_examples
@given(
    st.integers(1, 64), st.integers(1, 16), st.integers(1, 128), st.integers(1, 256), st.integers(1, 10**6),
    st.sampled_from(DTYPES),
)  # fmt: skip
def test_paged_decode_covers_every_head_in_parts_that_fill_the_gpu(
    gpu, batch, kv_heads, group, head_dim, tokens, dtype
):
    q = queries(batch, kv_heads * group, head_dim, dtype=dtype)
    (programs, splits), meta = launch.paged_decode(q, kv_heads, tokens)
    assert_legal(meta, gpu)
    assert min(meta[f"BLOCK_{axis}"] for axis in "HND") >= 16 and meta["BLOCK_D"] >= head_dim
    assert programs == batch * kv_heads * math.ceil(group / meta["BLOCK_H"])
    assert 1 <= splits <= 128 and (splits - 1) * 256 < tokens, "a part has 256 keys or more"
    assert programs * splits >= gpu.compute_units or splits == min(math.ceil(tokens / 256), 128)


def test_one_long_sequence_fills_the_gpu(gpu):
    """Llama-3-8B, one sequence of 100000 tokens: 8 heads in the cache, and four programs for each compute unit."""
    (programs, splits), _ = launch.paged_decode(queries(1, 32, 128), 8, 100_000)
    assert programs == 8 and programs * splits >= min(4 * gpu.compute_units, 8 * 128)


def test_many_short_sequences_are_not_split(gpu):
    (programs, splits), _ = launch.paged_decode(queries(256, 32, 128), 8, 4096)
    assert programs == 2048 and splits == 1


# ---- what differs by GPU and by the number of rows ----------------------------------------------------------------


def test_rows_that_have_a_compute_unit_each_get_twice_the_threads():
    with launch.as_on(launch.Gpu("gfx942", 304)):
        few, many = (launch.whole_rows(matrix(rows, 4096, torch.bfloat16)).meta for rows in (304, 305))
    assert few["num_warps"] == 2 * many["num_warps"]


def test_of_a_few_short_rows_each_thread_has_one_vector(gpu):
    _, meta = launch.whole_rows(matrix(1, 1024, torch.bfloat16))
    assert meta["num_warps"] * gpu.wave == 128


def test_nvidia_takes_smaller_tiles_where_programs_are_few():
    def tile(arch, rows):
        with launch.as_on(launch.Gpu(arch, 132)):
            _, meta = launch.tiles(matrix(rows, 4096))
        return meta["BLOCK_M"] * meta["BLOCK_N"], meta["num_warps"]

    assert [tile("sm_90", rows) for rows in (1, 64, 4096)] == [(256, 4), (512, 4), (2048, 8)]
    assert tile("gfx942", 1) == (2048, 4) and tile("gfx942", 4096) == tile("gfx1100", 4096)[:1] + (4,) == (4096, 4)


@pytest.mark.parametrize(
    ("arch", "rows", "cols", "held"),
    [
        ("sm_90", 4096, 5120, False),  # of 8192 lanes
        ("sm_90", 64, 5120, True),
        ("gfx942", 4096, 5120, True),
        ("sm_90", 4096, 6144, True),
        ("sm_90", 4096, 576, True),
        ("sm_90", 4096, 8192, True),
        ("gfx942", 4096, 8193, False),
    ],
)
def test_rows_that_would_leave_a_third_of_the_lanes_idle_are_walked_on_nvidia(arch, rows, cols, held):
    with launch.as_on(launch.Gpu(arch, 132)):
        assert launch.holds_row(matrix(rows, cols)) == held
        if cols == 5120:
            assert launch.long_rows(matrix(rows, cols)).meta["BLOCK_N"] == 1024


@pytest.mark.parametrize(("arch", "longest"), [("gfx942", 8192), ("gfx1100", 8192), ("sm_90", 32768)])
def test_nvidia_holds_longer_rows(arch, longest):
    with launch.as_on(launch.Gpu(arch, 100)):
        assert launch.longest_held(torch.empty(1)) == longest


@pytest.mark.parametrize(("arch", "elements"), [("gfx942", 2048), ("gfx1201", 2048), ("sm_90", 8192)])
def test_nvidia_turns_more_heads_a_program_where_there_are_many(arch, elements):
    x = torch.empty(0, dtype=torch.bfloat16)
    for tokens, expected in ((16384, elements), (64, 2048)):
        with launch.as_on(launch.Gpu(arch, 100)):
            _, meta = launch.head_tiles(tokens, 32, 128, x)
        assert meta["BLOCK_T"] * meta["BLOCK_H"] * 128 == expected


def test_hopper_multiplies_with_one_group_of_threads_and_its_small_tiles_have_more_loads_under_way():
    x = torch.empty(0, dtype=torch.bfloat16)
    with launch.as_on(launch.Gpu("sm_90", 132)):
        large, small = (launch.dot_tiles(x, n, n, n).meta for n in (4096, 1024))
    assert [large[name] for name in ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages")] == [128, 128, 4, 3]
    assert [small[name] for name in ("BLOCK_M", "BLOCK_N", "num_stages")] == [64, 64, 4]


# ---- what a test may ask for ---------------------------------------------------------------------------------------


def test_other_sizes_hold_inside_a_with_block_and_no_longer():
    x, before = matrix(4, 100), launch.sizes()
    with pytest.raises(KeyError), launch.sizes_as(max_row=64), launch.sizes_as(tile=128) as inner:
        assert (inner.max_row, inner.tile) == (64, 128) and launch.sizes() == inner
        assert not launch.holds_row(x) and launch.elementwise(x).meta["BLOCK"] == 128
        raise KeyError
    assert launch.sizes() == before and launch.holds_row(x) and launch.elementwise(x).meta["BLOCK"] == before.tile


def test_few_programs_take_the_largest_blocks_inside_a_with_block_and_no_longer():
    weight, prompt = matrix(3072, 576), matrix(37, 576)

    def programs():
        shapes = launch.weight_rows(weight), launch.matmul_tiles(prompt, 37, 3072, 576), launch.tiles(matrix(37, 1536))
        return [grid[0] for grid, _ in shapes], [grid[1:] for grid, _ in shapes]

    usual = programs()
    with launch.few_programs():
        assert programs() == ([3, 3, 3], [(), (1,), ()])
        assert launch.overridden()
    assert programs() == usual and not launch.overridden()
    assert usual[0][0] == 192


def test_a_size_that_does_not_exist_is_named():
    with pytest.raises(TypeError, match="max_rows"), launch.sizes_as(max_rows=64):
        pass


def test_another_gpu_holds_inside_a_with_block_and_no_longer():
    x = torch.empty(1)
    with pytest.raises(KeyError), launch.as_on(launch.Gpu("sm_90", 132)), launch.as_on(launch.Gpu("gfx1100", 96)):
        assert launch.gpu_of(x).arch == "gfx1100"
        raise KeyError
    assert launch.gpu_of(x) == launch.Gpu("gfx942", 304)


def test_a_launch_has_names():
    x = matrix(3, 100)
    grid, meta = launch.elementwise(x)
    assert launch.elementwise(x) == launch.Launch(grid=(1,), meta={"BLOCK": 2048, "num_warps": 4}) == (grid, meta)


def test_saved_notebooks_still_import_the_longest_row():
    from course_kernels.launch import MAX_ROW

    assert launch.sizes().max_row == MAX_ROW
    with pytest.raises(AttributeError, match="MAX_ROWS"):
        _ = launch.MAX_ROWS
