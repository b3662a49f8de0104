"""Python's operators on blocks mean in the interpreter what they mean to the compiler."""

import contextlib

import pytest
import torch
import triton
import triton.language as L
import triton.language as tl
from triton.language import device_print, exp2, load, store
from triton.runtime.jit import JITFunction

from gfxlab.engine import dual_mode, hooks
from gfxlab.simulator import using


@triton.jit
def and_kernel(x_ptr, y_ptr, lo, hi, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, x, mask=(x > lo) and (x < hi))


@triton.jit
def or_not_kernel(x_ptr, y_ptr, lo, hi, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    inside = not ((x < lo) or (x > hi))
    tl.store(y_ptr + offs, tl.where(inside, x, 0.0))


@triton.jit
def min_max_kernel(x_ptr, y_ptr, lo, hi, N: tl.constexpr):
    offs = tl.arange(0, N)
    y = max(min(tl.load(x_ptr + offs), hi), lo)
    tl.store(y_ptr + offs, y, mask=offs < min(N, 16))


@triton.jit
def scalar_conditions_kernel(x_ptr, y_ptr, n, flag, N: tl.constexpr, ON: tl.constexpr):
    offs = tl.arange(0, N)
    if ON and n > 3 and not (flag == 2):  # noqa: SIM201
        tl.store(y_ptr + offs, tl.load(x_ptr + offs))
    if n == 0 or (not ON):
        tl.store(y_ptr + offs, -1.0)


@triton.jit
def branch_on_block_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    if x > 0:
        tl.store(y_ptr + offs, x)


pytestmark = pytest.mark.filterwarnings("ignore:Logical operators:UserWarning", "ignore:builtin m:UserWarning")


@pytest.fixture(autouse=True)
def interpreted():
    dual_mode.enable()


def run(kernel, *args, **kwargs):
    x = torch.linspace(-2, 2, 32)
    y = torch.zeros(32)
    kernel[(1,)](x, y, *args, N=32, **kwargs)
    spec = dual_mode.specialise(kernel, (x, y, *args), {"N": 32, **kwargs})
    if not dual_mode.env_interpret():
        dual_mode.compile(kernel, spec)  # what is interpreted here is also what compiles
    return x, y


def test_and_is_taken_lane_by_lane():
    x, y = run(and_kernel, -1.0, 0.5)
    assert torch.equal(y, torch.where((x > -1) & (x < 0.5), x, 0.0))


def test_or_and_not_are_taken_lane_by_lane():
    x, y = run(or_not_kernel, -1.0, 0.5)
    assert torch.equal(y, torch.where((x >= -1) & (x <= 0.5), x, 0.0))


def test_min_and_max_are_taken_lane_by_lane():
    x, y = run(min_max_kernel, -1.0, 0.5)
    assert torch.equal(y[:16], x.clamp(-1, 0.5)[:16]) and not y[16:].any()


@pytest.mark.parametrize(
    ("n", "flag", "on", "wanted"),
    [(4, 0, True, "x"), (4, 2, True, "0"), (2, 0, True, "0"), (4, 0, False, "-1"), (0, 0, True, "-1")],
)
def test_conditions_on_scalars_branch_as_ever(n, flag, on, wanted):
    x, y = run(scalar_conditions_kernel, n, flag, ON=on)
    assert torch.equal(y, {"x": x, "0": torch.zeros(32), "-1": -torch.ones(32)}[wanted])


def test_a_block_has_no_truth_value():
    with pytest.raises(ValueError, match="a block of 32 values was used as one condition"):
        branch_on_block_kernel[(1,)](torch.ones(32), torch.zeros(32), N=32)


@triton.jit
def scalar_other_kernel(x_ptr, y_ptr):
    pid = tl.program_id(0)
    tl.store(y_ptr + pid, tl.load(x_ptr + pid - 1, mask=pid > 0, other=0.0))


def test_a_scalar_load_keeps_an_other_of_zero():
    y = torch.full((3,), 7.0)
    scalar_other_kernel[(3,)](torch.tensor([1.0, 2.0, 3.0]), y)
    assert y.tolist() == [0.0, 1.0, 2.0]


# ---- names of the language -------------------------------------------------------------------------------------------


@triton.jit
def methods_kernel(x_ptr, y_ptr, BLOCK: L.constexpr):
    x = load(x_ptr + L.arange(0, BLOCK))
    store(y_ptr + 0, x.sum())
    store(y_ptr + 1, x.max(0))
    store(y_ptr + 2, x.min(axis=0))
    store(y_ptr + 3, x.abs().max(0))
    store(y_ptr + 4, x.sigmoid().sum(0))
    store(y_ptr + 5, x.softmax().max(0))
    store(y_ptr + 6, x.cumsum(0).max(0))
    store(y_ptr + 7, x.argmax(0))
    store(y_ptr + 8, x.flip(0).cumprod(0).sum(0))
    store(y_ptr + 9, x.exp().log().sum(0))
    store(y_ptr + 10, exp2(x).reshape(BLOCK // 2, 2).sum(1).ravel().min(0))
    print("the sum", x.sum())
    device_print("and", x)


def values(x):
    exact = x.double()
    softmax, products = exact.softmax(0), exact.flip(0).cumprod(0)
    whole = [exact.sum(), exact.max(), exact.min(), exact.abs().max(), exact.sigmoid().sum(), softmax.max()]
    whole += [exact.cumsum(0).max(), exact.argmax().double(), products.sum(), exact.sum()]
    return torch.stack([*whole, exact.exp2().reshape(-1, 2).sum(1).min()]).float()


@pytest.mark.parametrize("simulated", [False, True], ids=["interpreted", "simulated"])
def test_methods_names_and_prints_work_as_they_do_compiled(simulated):
    dual_mode.enable()
    x, y = torch.linspace(-2, 1.5, 16), torch.zeros(11)
    with using("gfx942") if simulated else contextlib.nullcontext():
        methods_kernel[(1,)](x, y, BLOCK=16, num_warps=1)
    torch.testing.assert_close(y, values(x), atol=1e-5, rtol=1e-5)


def test_every_method_of_a_block_that_is_a_kernel_of_tritons_is_bound():
    kinds = {name for name, member in vars(tl.tensor).items() if isinstance(member, JITFunction)}
    assert kinds <= set(hooks._METHODS) and {"sum", "max", "softmax"} <= kinds
    assert set(hooks._METHODS) - kinds <= set(vars(tl.math)), "before Triton 3.9 these need help, too"


@triton.jit
def loops_kernel(y_ptr, n, far, BLOCK: tl.constexpr):
    total = tl.zeros((), tl.int64)
    for row in range(tl.program_id(0), n, 2):
        total += row.to(tl.int64) * (1 << 40)
    tl.store(y_ptr, total)
    for i in tl.range(0, n, step=3, num_stages=2):
        tl.store(y_ptr + 1 + i, (i * 1000000000).to(tl.int64))
    for i in range(far, far + 2):
        tl.store(y_ptr + 5 + (i - far), i + 1)
    for i in tl.static_range(2):
        tl.store(y_ptr + 7 + i, tl.full((), BLOCK * i, tl.int64))


@pytest.mark.parametrize("simulated", [False, True], ids=["interpreted", "simulated"])
def test_the_variable_of_a_loop_is_a_scalar_that_wraps(simulated):
    dual_mode.enable()
    y, far = torch.zeros(9, dtype=torch.int64), 1 << 40
    with using("gfx942") if simulated else contextlib.nullcontext():
        loops_kernel[(1,)](y, 4, far, BLOCK=8)
    assert y.tolist() == [2 << 40, 0, 0, 0, 3_000_000_000 - (1 << 32), far + 1, far + 2, 0, 8]
