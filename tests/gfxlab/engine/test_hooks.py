"""The bounds guard, the poison and the observers see what an interpreted launch does."""

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from gfxlab.engine import dual_mode, hooks


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, MASK_LOAD: tl.constexpr, MASK_STORE: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n) if MASK_LOAD else tl.load(x_ptr + offs)
    if MASK_STORE:
        tl.store(y_ptr + offs, x, mask=offs < n)
    else:
        tl.store(y_ptr + offs, x)


@triton.jit
def rows_kernel(x_ptr, y_ptr, stride_xm, stride_xn, N: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, N)
    x = tl.load(x_ptr + row * stride_xm + offs * stride_xn)
    tl.store(y_ptr + row * N + offs, x)


@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, WITH_OTHER: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0) if WITH_OTHER else tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr, tl.sum(x, axis=0))


@triton.jit
def count_kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.atomic_add(counts_ptr + tl.load(x_ptr + offs, mask=offs < n, other=0), 1, mask=offs < n)


@triton.jit
def swap_kernel(x_ptr, BLOCK: tl.constexpr):
    zeros = tl.full((BLOCK,), 0, tl.int32)
    tl.atomic_cas(x_ptr + tl.arange(0, BLOCK), zeros, zeros + 7)


@triton.jit
def double(x):
    return x + x


@triton.jit
def calls_device_function_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, double(tl.load(x_ptr + offs)) + tl.zeros((N,), tl.float32))


class Recorder:
    def __init__(self):
        self.started, self.finished, self.accesses = [], [], []

    def on_launch(self, launch):
        self.started.append(launch)

    def on_access(self, access):
        self.accesses.append(access)

    def on_finish(self, launch):
        self.finished.append(launch)


@pytest.fixture(autouse=True)
def interpreted():
    dual_mode.enable()


def guarded(n: int, dtype=torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor in the middle of a larger one, and the larger one."""
    around = torch.full((n + 512,), 5, dtype=dtype)
    return around[256 : 256 + n], around


def test_a_forgotten_load_mask_raises_and_names_everything():
    x, y = torch.randn(1000), torch.empty(1000)
    with pytest.raises(
        hooks.OutOfBoundsError, match=r"program 7 of copy_kernel reads element 1000 of x_ptr, past the end of its 1000"
    ):
        copy_kernel[(8,)](x, y, 1000, BLOCK=128, MASK_LOAD=False, MASK_STORE=True)


def test_a_forgotten_store_mask_never_touches_the_neighbour():
    x = torch.randn(1000)
    y, around = guarded(1000)
    with hooks.guard("record") as faults:
        copy_kernel[(8,)](x, y, 1000, BLOCK=128, MASK_LOAD=True, MASK_STORE=False)
    assert [(f.kind, f.program, f.tensor, f.first_element, f.lanes) for f in faults] == [
        ("store", (7, 0, 0), "y_ptr", 1000, 24)
    ]
    assert torch.equal(y, x)
    assert (around[:256] == 5).all() and (around[1256:] == 5).all()


def test_recorded_loads_out_of_bounds_give_poison():
    x, _ = guarded(100)
    y = torch.zeros(128)
    with hooks.guard("record") as faults:
        copy_kernel[(1,)](x, y, 128, BLOCK=128, MASK_LOAD=True, MASK_STORE=True)
    assert len(faults) == 1 and faults[0].lanes == 28
    assert torch.equal(y[:100], x) and y[100:].isnan().all()


def test_negative_addresses_are_before_the_start():
    x, y = torch.randn(64), torch.empty(64)
    with pytest.raises(hooks.OutOfBoundsError, match="element -64 of x_ptr, before the start"):
        rows_kernel[(2,)](x, y, -64, 1, N=64)


def test_gaps_between_strided_rows_are_out_of_bounds():
    x, y = torch.randn(4, 100)[:, :64], torch.empty(4, 64)
    rows_kernel[(4,)](x, y, x.stride(0), 1, N=64)
    assert torch.equal(x, y)
    with pytest.raises(hooks.OutOfBoundsError, match="between the rows of .* use the stride"):
        rows_kernel[(4,)](x, y, 64, 1, N=64)


def test_overlapping_and_transposed_views_are_inside():
    x, y = torch.randn(64, 64), torch.empty(64, 64)
    rows_kernel[(64,)](x.T, y, x.T.stride(0), x.T.stride(1), N=64)
    assert torch.equal(x.T, y)
    expanded = torch.randn(1, 64).expand(4, 64)
    rows_kernel[(4,)](expanded, y[:4], 0, 1, N=64)
    assert torch.equal(y[:4], expanded)


def test_masked_lanes_without_other_are_poison_and_can_be_switched_off():
    x, y = torch.ones(100), torch.zeros(1)
    sum_kernel[(1,)](x, y, 100, BLOCK=128, WITH_OTHER=True)
    assert y.item() == 100
    sum_kernel[(1,)](x, y, 100, BLOCK=128, WITH_OTHER=False)
    assert y.isnan().item()
    with hooks.poison(False):
        sum_kernel[(1,)](x, y, 100, BLOCK=128, WITH_OTHER=False)
    assert y.item() == 100


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.int64])
def test_poison_of_every_type(dtype):
    x, y = torch.ones(100, dtype=dtype), torch.zeros(128, dtype=dtype)
    copy_kernel[(1,)](x, y[:100], 100, BLOCK=128, MASK_LOAD=True, MASK_STORE=True)  # poison stays in masked lanes
    assert torch.equal(x, y[:100])
    with hooks.guard("record"):
        copy_kernel[(1,)](x, y, 128, BLOCK=128, MASK_LOAD=True, MASK_STORE=True)
    tail = y[100:]
    assert tail.isnan().all() if dtype.is_floating_point else (tail == torch.iinfo(dtype).max).all()


def test_atomics_are_guarded():
    counts = torch.zeros(8, dtype=torch.int32)
    with pytest.raises(hooks.OutOfBoundsError, match="updates element 9 of counts_ptr"):
        count_kernel[(1,)](torch.tensor([1, 1, 9, 2]), counts, 4, BLOCK=4)
    with hooks.guard("record") as faults:
        count_kernel[(1,)](torch.tensor([1, 1, 9, 2]), counts, 4, BLOCK=4)
    assert counts.tolist() == [0, 2, 1, 0, 0, 0, 0, 0] and len(faults) == 1


def test_compare_and_swap_out_of_bounds_is_set_aside():
    x, around = guarded(8, torch.int32)
    x.zero_()
    with hooks.guard("record") as faults:
        swap_kernel[(1,)](x, BLOCK=16)
    assert x.tolist() == [7] * 8 and (around[264:] == 5).all() and faults[0].lanes == 8


def test_observer_sees_launch_accesses_and_finish():
    x, y = torch.randn(300), torch.empty(300)
    with hooks.observe(Recorder()) as seen:
        copy_kernel[(3,)](x, y, 300, BLOCK=128, MASK_LOAD=True, MASK_STORE=True, num_warps=2)
    (launch,) = seen.started
    assert seen.finished == seen.started
    assert (launch.name, launch.grid, launch.meta) == ("copy_kernel", (3, 1, 1), {"num_warps": 2})
    assert launch.args["x_ptr"] is x and launch.args["n"] == 300
    assert [(a.kind, a.tensor, a.program[0], int(a.mask.sum())) for a in seen.accesses] == [
        ("load", "x_ptr", 0, 128), ("store", "y_ptr", 0, 128), ("load", "x_ptr", 1, 128), ("store", "y_ptr", 1, 128),
        ("load", "x_ptr", 2, 44), ("store", "y_ptr", 2, 44)]  # fmt: skip
    last = seen.accesses[-1]
    assert last.elements[:44].tolist() == list(range(256, 300)) and (last.elements[44:] == -1).all()
    assert last.filename == __file__
    assert "tl.store(y_ptr + offs, x, mask=offs < n)" in Path(__file__).read_text().splitlines()[last.line - 1]


def test_launches_are_counted_and_device_functions_work():
    before = hooks.launches()
    x, y = torch.randn(32), torch.empty(32)
    calls_device_function_kernel[(1,)](x, y, N=32)
    assert torch.equal(y, 2 * x) and hooks.launches() == before + 1


def test_wrong_policy_is_named():
    with pytest.raises(ValueError, match="'raise' or 'record', got 'ignore'"), hooks.guard("ignore"):
        pass


def test_state_is_clean_after_a_failing_launch():
    x, y = torch.randn(10), torch.empty(10)
    with pytest.raises(hooks.OutOfBoundsError):
        copy_kernel[(1,)](x, y, 16, BLOCK=16, MASK_LOAD=True, MASK_STORE=True)
    copy_kernel[(1,)](x, y, 10, BLOCK=16, MASK_LOAD=True, MASK_STORE=True)
    assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_infinities_take_the_place_of_nan_when_asked_for(dtype):
    x, y = torch.ones(128, dtype=dtype), torch.zeros(128, dtype=dtype)
    with hooks.poison("infinities"):
        copy_kernel[(1,)](x, y, 100, BLOCK=128, MASK_LOAD=True, MASK_STORE=False)
    assert y[:100].tolist() == [1] * 100
    assert y[100:].tolist() == [float("inf"), -float("inf")] * 14


def test_a_block_that_reaches_into_the_next_tensor_is_past_the_end_of_its_own():
    """Most lanes of program 2 that lie in a tensor at all lie in y; the block began in x."""
    memory = torch.zeros(2000)
    x, y = memory[:576], memory[672:1248]
    with hooks.guard("raise"), pytest.raises(IndexError, match="program 2 .*reads element 576 of x_ptr, past the end"):
        copy_kernel[(3,)](x, y, 576, BLOCK=256, MASK_LOAD=False, MASK_STORE=True)
