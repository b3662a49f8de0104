"""Calls with a layout of arguments that has come before: the same results without checks, and no refusal hidden.

On the GPU, or on one that is pretended: Triton binds, compiles and launches as ever, and the simulator executes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

import course_kernels as ck
from course_kernels import _remembered, launch
from gfxlab.engine import dual_mode
from gfxlab.pretended import pretend

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")

PLANNED = _remembered.CALLS_BEFORE + 1  # calls after which a layout has a plan


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The GPU, launched on by Triton itself, or a pretended MI300X."""
    monkeypatch.delenv("COURSE_KERNELS_CHECKS", raising=False)
    with dual_mode.launches_by_triton() if torch.cuda.is_available() else pretend("gfx942"):
        yield


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were launched, but for those of plans."""
    names, run = [], launch.run

    def recording(kernel, *args, **meta):
        names.append(kernel.fn.__name__)
        return run(kernel, *args, **meta)

    monkeypatch.setattr(launch, "run", recording)
    return names


def floats(*shape, seed=0, dtype=torch.bfloat16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to("cuda", dtype)


def tables(seed):
    return floats(16, 8, seed=seed, dtype=torch.float32), floats(16, 8, seed=seed + 1, dtype=torch.float32)


def places(seed, *shape):
    return torch.randint(0, 15, shape, generator=torch.Generator().manual_seed(seed)).to("cuda")


# What is called, with numbers drawn anew for each seed; caches are returned with the results.
CASES = {
    "vector_add": lambda s: ck.vector_add(floats(40, seed=s), floats(40, seed=s + 1)),
    "one tensor twice": lambda s: ck.vector_add(x := floats(40, seed=s), x),
    "softmax": lambda s: ck.softmax(floats(2, 3, 40, seed=s)),
    "rms_norm": lambda s: ck.rms_norm(floats(2, 3, 40, seed=s), floats(40, seed=s)),
    "rms_norm by names": lambda s: ck.rms_norm(x=floats(3, 40, seed=s), weight=floats(40, seed=s), eps=0.5),
    "add_rms_norm": lambda s: ck.add_rms_norm(floats(3, 40, seed=s), floats(3, 40, seed=s + 1), floats(40, seed=s)),
    "layer_norm": lambda s: ck.layer_norm(*(floats(*n, seed=s) for n in ((3, 40), (40,), (40,)))),
    "layer_norm with statistics": lambda s: ck.layer_norm(
        *(floats(*n, seed=s) for n in ((2, 3, 40), (40,), (40,))), return_statistics=True
    ),
    "activation": lambda s: ck.activation(floats(2, 3, 40, seed=s), "gelu"),
    "silu_and_mul": lambda s: ck.silu_and_mul(floats(2, 3, 80, seed=s)),
    "act_and_mul into out": lambda s: (y := floats(3, 40), ck.act_and_mul(floats(3, 80, seed=s), "relu", out=y)),
    "dropout_add": lambda s: ck.dropout_add(floats(3, 40, seed=s), floats(3, 40), 0.5, 1001 + 2 * s),
    "quant_fp8_per_token": lambda s: ck.quant_fp8_per_token(floats(3, 40, seed=s), dtype=ck.fp8_dtype()),
    "rope": lambda s: ck.rope(floats(2, 3, 2, 16, seed=s), *tables(s), layout="bshd"),
    "rope at positions": lambda s: ck.rope(
        floats(3, 2, 2, 16, seed=s), *tables(s), positions=places(s, 3), offsets=places(s, 3) // 15
    ),
    "rope in place": lambda s: ck.rope(floats(3, 2, 2, 16, seed=s), *tables(s), inplace=True),
    "split_qkv_rope": lambda s: ck.split_qkv_rope(floats(2, 64, seed=s), *tables(s), places(s, 2), 2, 1, 16),
    "concat_qk": lambda s: ck.concat_qk(*(floats(2, h, d, seed=s) for h in (2, 1) for d in (16, 8))),
    "kv_cache_update": lambda s: (
        k := floats(2, 4, 1, 16),
        v := floats(2, 4, 1, 16),
        ck.kv_cache_update(floats(2, 1, 2, 16, seed=s), *[floats(2, 1, 1, 16, seed=s)] * 2, k, v, places(s, 2, 1) // 4),
    ),
    "paged_kv_cache_update": lambda s: (
        k := floats(3, 8, 1, 16),
        v := floats(3, 8, 1, 16),
        *ck.paged_kv_cache_update(
            floats(1, 2, 16, seed=s), *[floats(1, 1, 16, seed=s)] * 2, k, v, places(s, 1), places(s, 1), *tables(s)
        ),
    ),
    "paged_kv_cache_update of fp8": lambda s: (
        k := torch.zeros(3, 8, 1, 16, dtype=ck.fp8_dtype(), device="cuda"),
        v := torch.zeros(3, 8, 1, 16, dtype=ck.fp8_dtype(), device="cuda"),
        *ck.paged_kv_cache_update(
            *[floats(1, h, 16, seed=s) for h in (2, 1, 1)], k, v, places(s, 1), places(s, 1), *tables(s),
            k_scale=0.5, v_scale=2.0,
        ),
    ),  # fmt: skip
    "flash_attention": lambda s: ck.flash_attention(*(floats(1, 2, 16, 16, seed=s + i) for i in range(3)), causal=True),
    "paged_decode_attention": lambda s: ck.paged_decode_attention(
        floats(1, 2, 16, seed=s), floats(4, 16, 1, 16, seed=s), floats(4, 16, 1, 16, seed=s + 1),
        torch.tensor([[2, s % 4]], device="cuda"), torch.tensor([20 + s], device="cuda"),
    ),  # fmt: skip
    "matmul of one row": lambda s: ck.matmul(floats(1, 512, seed=s), floats(512, 32, seed=s)),
    "linear of one row": lambda s: ck.linear(floats(1, 512, seed=s), floats(32, 512, seed=s)),
    "conv2d": lambda s: ck.conv2d(floats(1, 3, 5, 5, seed=s), floats(4, 3, 3, 3, seed=s)),
    "topk": lambda s: ck.topk(floats(2, 40, seed=s), 3),
}  # fmt: skip


def flat(result) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [x for part in result for x in flat(part)]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8)


@pytest.mark.parametrize("case", CASES)
def test_a_plan_does_what_the_call_does(case, launched):
    for seed in range(PLANNED):
        CASES[case](seed)
    assert launched
    launched.clear()
    planned = CASES[case](7)
    assert not launched, "no plan was carried out"
    with launch.sizes_as():  # sizes are asked for: nothing is remembered
        expected = CASES[case](7)
    assert launched
    assert isinstance(planned, tuple) == isinstance(expected, tuple)
    for x, y in zip(flat(planned), flat(expected), strict=True):
        assert x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype
        assert torch.equal(bits(x), bits(y))


def remembered_norm():
    """x and weight of a layout that has a plan."""
    x, weight = floats(3, 40), floats(40)
    for _ in range(PLANNED):
        ck.rms_norm(x, weight)
    return x, weight


OTHER_LAYOUTS = {  # what the plan's x and weight become; the kernel is right about each
    "off by one element": lambda x, w: (torch.cat([x.flatten(), x[0]])[1:121].view(3, 40), w),
    "rows at a stride": lambda x, w: (x.repeat(1, 2)[:, :40], w),
    "another dtype": lambda x, w: (x, w.float()),
    "more rows": lambda x, w: (x.repeat(2, 1), w),
    "x begins where weight does": lambda x, w: (x, x[0]),
}


@pytest.mark.parametrize("change", OTHER_LAYOUTS)
def test_another_layout_does_not_take_the_plan(change, launched):
    x, weight = OTHER_LAYOUTS[change](*remembered_norm())
    launched.clear()
    y = ck.rms_norm(x, weight)
    assert launched == ["rms_norm_kernel"]
    torch.testing.assert_close(y, ck.reference.rms_norm(x, weight), atol=8e-3, rtol=8e-3)


def plan_for(function, *numbers):
    """Call the function with a tensor and these numbers, so that their layout has a plan."""
    x = floats(40)
    for number in numbers:
        function(x, number)


def test_a_plan_is_for_numbers_of_one_kind():
    """Triton compiles anew for 1, for multiples of 16, for a sign, for more bits."""
    seen = []

    @partial(_remembered.remembered, number="number")
    def twice(x, number):
        seen.append(number)
        return ck.vector_add(x, x)

    x, calls = floats(40), range(PLANNED)
    plan_for(twice, *(1001 + 2 * i for i in calls))
    seen.clear()
    twice(x, 4001)
    assert not seen, "no plan was carried out"
    for other in (4000, -4001, 2**31 + 1):
        twice(x, other)
        assert seen.pop() == other
    plan_for(twice, *(1600 + 16 * i for i in calls))
    plan_for(twice, *(2**40 + 1 + 2 * i for i in calls))
    seen.clear()
    for other in (1, 2**63 + 1):
        twice(x, other)
        assert seen.pop() == other


def test_a_plan_is_for_tensors_in_the_same_place_of_what_is_written():
    seen = []

    @partial(_remembered.remembered, writes=("y",))
    def twice(x, y):
        seen.append(y)
        return ck.vector_add(x, x)

    both = floats(128)
    for _ in range(PLANNED):
        twice(both[:40], floats(40))
    seen.clear()
    twice(both[:40], floats(40))
    assert not seen, "no plan was carried out"
    twice(both[:40], both[64:104])
    assert seen


def test_a_plan_is_for_bytes_in_the_same_place_of_what_is_written():
    """One byte into it, and elsewhere at an address of the same alignment."""
    seen = []

    @partial(_remembered.remembered, writes=("y",))
    def twice(x, read, y):
        seen.append(read)
        return ck.vector_add(x, x)

    x, both, other = floats(40), *torch.zeros(2, 64, dtype=torch.uint8, device="cuda")
    other = other.clone()
    for _ in range(PLANNED):
        twice(x, other[1:9], both[:16])
    seen.clear()
    twice(x, other[1:9], both[:16])
    assert not seen, "no plan was carried out"
    twice(x, both[1:9], both[:16])
    assert seen


@triton.jit
def add_number_kernel(x_ptr, y_ptr, size, NUMBER: tl.constexpr = 2, BLOCK: tl.constexpr = 64):
    """y = x + NUMBER, in one program."""
    offs = tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < size) + NUMBER, mask=offs < size)


def two_more(x):
    y = torch.empty_like(x)
    launch.run(add_number_kernel, (1,), x, y, x.numel())
    return y


RETURNED = {  # of x (3, 40), by launches in which a mistake about the shape of what is made shows
    "the end": lambda x: ck.vector_add(x.view(-1), x.view(-1))[8:],
    "a row": lambda x: ck.vector_add(x, x)[1],
    "no row": lambda x: ck.vector_add(x[:1], x[:1])[:0],
    "a part of what is made second": lambda x: ck.vector_add(y := ck.vector_add(x, x), y)[1:],
    "two parts": lambda x: ck.vector_add(x, x)[2:].split(20, dim=1),
    "a sum with what is full": lambda x: ck.vector_add(x, torch.full((3, 40), 2.0, dtype=x.dtype, device=x.device)),
    "defaults of a kernel": lambda x: two_more(x[0]),
}


@pytest.mark.parametrize("case", RETURNED)
def test_a_plan_returns_what_the_function_does(case):
    seen = []

    @_remembered.remembered
    def function(x):
        seen.append(x)
        return RETURNED[case](x)

    for seed in range(PLANNED + 1):
        x = floats(3, 40, seed=seed)
        for got, want in zip(flat(function(x)), flat(RETURNED[case](x)), strict=True):
            assert got.shape == want.shape and torch.equal(got, want)
    assert len(seen) == PLANNED, "no plan was carried out"


def test_a_tuple_of_one_stays_a_tuple():
    function = _remembered.remembered(lambda x: (ck.vector_add(x, x),))
    for seed in range(PLANNED + 1):
        x = floats(40, seed=seed)
        (y,) = function(x)
        assert torch.equal(y, x + x)


def test_a_plan_is_for_tensors_of_which_the_same_begin_at_one_place():
    function = _remembered.remembered(lambda x, y, z: ck.vector_add(y, z))
    x, y = floats(40), floats(40, seed=1)
    for _ in range(PLANNED):
        function(x, x, y)
    assert torch.equal(function(x, y, y), y + y)


def test_a_plan_counts_only_what_it_writes():
    """Of tensors that are alike."""
    function = _remembered.remembered(lambda x, y, z: ck.act_and_mul(x, "silu", out=z))
    x, y, z = floats(3, 80), floats(3, 40), floats(3, 40)
    for _ in range(PLANNED + 1):
        before = [tensor._version for tensor in (x, y, z)]
        function(x, y, z)
        assert [tensor._version - version for tensor, version in zip((x, y, z), before)] == [0, 0, 1]


def test_a_call_whose_first_argument_is_none_has_a_plan(launched):
    k, slots, caches = floats(2, 1, 16), places(0, 2), [floats(2, 8, 1, 16, seed=seed) for seed in (0, 1)]
    for _ in range(PLANNED):
        ck.paged_kv_cache_update(None, k, k, *caches, slots)
    launched.clear()
    ck.paged_kv_cache_update(None, k, k, *caches, slots)
    assert not launched


@pytest.mark.skipif(
    not torch.version.hip and torch.cuda.is_available(), reason="only AMD's compiler makes a difference"
)
def test_a_part_of_a_tensor_too_large_for_a_plan_does_not_take_it(launched, monkeypatch):
    """AMD's compiler addresses it in another way."""
    monkeypatch.setattr(_remembered, "STORAGE", 1000)
    remembered_norm()
    launched.clear()
    ck.rms_norm(floats(30, 40)[:3], floats(40))
    assert launched


REFUSED = {
    "no tensor": (TypeError, "must be a torch.Tensor", lambda x, w: (None, w)),
    "a list": (TypeError, "must be a torch.Tensor", lambda x, w: ([1.0], w)),
    "no weight": (TypeError, "must be a torch.Tensor", lambda x, w: (x, None)),
    "float64": (TypeError, "must be float32", lambda x, w: (x.double(), w)),
    "integers": (TypeError, "must be float32", lambda x, w: (x, w.int())),
    "a short weight": (ValueError, "must have shape", lambda x, w: (x, w[:39])),
    "a strided weight": (ValueError, "must be contiguous", lambda x, w: (x, w.repeat(2)[::2])),
    "a transposed x": (ValueError, "stride 1", lambda x, w: (x.t().contiguous().t(), w)),
    "elsewhere": (ValueError, "meta", lambda x, w: (x, w.to("meta"))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_stays_refused(case):
    error, message, spoil = REFUSED[case]
    x, weight = remembered_norm()
    for _ in range(PLANNED + 1):
        with pytest.raises(error, match=message):
            ck.rms_norm(*spoil(x, weight))
    ck.rms_norm(x, weight)


def _autograd_began() -> bool:
    """Whether an earlier test of this process has walked back already, so that autograd knows no pretended GPU."""
    one = torch.ones(1, device="cuda", requires_grad=True)
    try:
        (2 * one).backward()
    except RuntimeError as error:
        return "device_ready_queues_" in str(error)
    return False


def test_a_gradient_is_given_or_refused():
    x, weight = remembered_norm()
    leaf = weight.float().to(weight.dtype).requires_grad_()
    if torch.cuda.is_available() and torch.version.hip and _autograd_began():
        pytest.skip("PyTorch counts the devices that have gradients once, and that was before a GPU was pretended")
    for _ in range(PLANNED + 1):
        (gradient,) = torch.autograd.grad(ck.rms_norm(x, leaf).sum(), leaf)
        assert gradient.shape == leaf.shape
    with torch.no_grad():
        for _ in range(PLANNED + 1):
            assert not ck.rms_norm(x, leaf).requires_grad
            ck.softmax(x.requires_grad_())
    with pytest.raises(ValueError, match="requires grad"):
        ck.softmax(x)


def test_values_are_checked_when_that_is_asked_for_later(monkeypatch):
    k, v, cache = floats(1, 1, 16), floats(1, 1, 16), floats(3, 8, 1, 16)
    for _ in range(PLANNED):
        ck.paged_kv_cache_update(None, k, v, cache, cache.clone(), torch.tensor([1], device="cuda"))
    monkeypatch.setenv("COURSE_KERNELS_CHECKS", "1")
    for _ in range(PLANNED + 1):
        with pytest.raises(ValueError, match="slot_mapping"):
            ck.paged_kv_cache_update(None, k, v, cache, cache.clone(), torch.tensor([99], device="cuda"))


def test_nothing_is_remembered_where_something_else_decides(launched, monkeypatch):
    x, weight = remembered_norm()
    monkeypatch.setattr(ck.reference, "rms_norm", lambda *_: "the reference")
    with ck.use_backend("torch"):
        assert ck.rms_norm(x, weight) == "the reference"
    for context in (launch.sizes_as(max_row=8), launch.as_on(launch.Gpu("gfx942", 2))):
        launched.clear()
        with context:
            ck.rms_norm(x, weight)
        assert launched


def test_who_replaces_tritons_launch_sees_all_launches(monkeypatch):
    x, weight = remembered_norm()
    seen, run = [], JITFunction.run
    monkeypatch.setattr(JITFunction, "run", lambda kernel, *args, **kwargs: seen.append(run(kernel, *args, **kwargs)))
    for _ in range(3):
        ck.rms_norm(x, weight)
    assert len(seen) == 3


def test_a_call_that_copies_is_not_remembered(launched):
    function = _remembered.remembered(lambda x: ck.softmax(x.contiguous()))
    for seed in range(PLANNED + 1):
        launched.clear()
        function(floats(40, 3, seed=seed).t())
        assert launched == ["softmax_kernel"]


def test_a_call_that_looks_at_a_value_is_not_remembered():
    function = _remembered.remembered(lambda x: ck.softmax(x) if x[0, 0] > 0 else None)
    for value in (1.0, 1.0, 1.0, 1.0, -1.0):
        assert (function(torch.full((3, 40), value, device="cuda")) is None) == (value < 0)


def test_a_part_of_an_argument_is_not_taken_for_another_argument():
    """The second tensor begins where the function's own part of the first does; next time it does not."""
    function = _remembered.remembered(lambda x, y: ck.vector_add(x[1], x[1]))
    for _ in range(PLANNED):
        function(x := floats(2, 40), x[1])
    x, y = floats(2, 40, seed=3), floats(40, seed=4)
    assert torch.equal(function(x, y), x[1] + x[1])


@pytest.mark.parametrize("seed", [1, 16, 2**40, 2**62 + 1, 1003])
def test_a_plan_is_for_seeds_that_triton_compiles_alike(seed):
    x, residual = torch.ones(3, 40, device="cuda"), torch.zeros(3, 40, device="cuda")
    for number in (1, 3, 5, 7, 1001, 1003, 1005, 2**40 + 1, 2**40 + 3, 2**40 + 5, 2**40 + 7, 2**40 + 9):
        assert torch.equal(ck.dropout_add(x, residual, 0.5, number), ck.reference.dropout_add(x, residual, 0.5, number))
    assert torch.equal(ck.dropout_add(x, residual, 0.5, seed), ck.reference.dropout_add(x, residual, 0.5, seed))
    for wrong, error in ((-1, ValueError), (2**63, ValueError), (True, TypeError), (1001.0, TypeError)):
        with pytest.raises(error, match="seed"):
            ck.dropout_add(x, residual, 0.5, wrong)


def test_seeds_that_are_known_do_not_hide_that_one_is_refused():
    """True and 0 in the places of seed and training, where 1001 and True stood."""
    x, residual = torch.ones(3, 40, device="cuda"), torch.zeros(3, 40, device="cuda")
    for number in range(1001, 1001 + 2 * PLANNED, 2):
        ck.dropout_add(x, residual, 0.5, number, True)
    with pytest.raises(TypeError, match="seed"):
        ck.dropout_add(x, residual, 0.5, True, 0)


def test_a_new_layout_does_not_drive_out_others(launched):
    x, weight = remembered_norm()
    ck.rms_norm(floats(4, 40), weight)
    launched.clear()
    ck.rms_norm(x, weight)
    assert not launched


def test_only_so_many_layouts_are_remembered(launched, monkeypatch):
    monkeypatch.setattr(_remembered, "LAYOUTS", 2)
    x, weight = remembered_norm()
    for rows in (4, 5, 6):
        ck.rms_norm(floats(rows, 40), weight)
    launched.clear()
    ck.rms_norm(x, weight)
    assert launched


def test_a_plan_counts_what_it_writes():
    x, y = floats(3, 80), floats(3, 40)
    caches, k, slots = [floats(2, 4, 1, 16, seed=seed) for seed in (0, 1)], floats(2, 1, 16), places(0, 2) // 2
    for tensors, call in (
        ([y], lambda: ck.act_and_mul(x, "silu", out=y)),
        (caches, lambda: ck.paged_kv_cache_update(None, k, k, *caches, slots)),
    ):
        for _ in range(PLANNED + 2):
            before = [tensor._version for tensor in tensors]
            call()
            assert all(tensor._version > version for tensor, version in zip(tensors, before))


def test_a_plan_is_not_taken_where_memory_is_shared():
    x, buffer = floats(3, 80), floats(4, 80)
    for _ in range(PLANNED + 1):
        ck.act_and_mul(x, "silu", out=buffer[:3, 8:48])
    with pytest.raises(ValueError, match="out is written, and x shares memory with it"):
        ck.act_and_mul(buffer[:3], "silu", out=buffer[:3, 8:48])


@pytest.mark.parametrize("transform", (torch.func.functionalize, torch.vmap), ids=lambda function: function.__name__)
def test_no_plan_is_taken_inside_a_transformation_of_functions(transform):
    """PyTorch 2.11 gives the tensors of `functionalize` an address, which is none of a GPU's."""
    x, weight = floats(4, 4, 8), floats(8)
    for part in (x, x[0]):
        for _ in range(PLANNED + 1):
            ck.rms_norm(part, weight)
    with pytest.raises(RuntimeError, match="rms_norm_kernel cannot be launched inside torch.vmap or another"):
        transform(lambda part: ck.rms_norm(part, weight))(x)
