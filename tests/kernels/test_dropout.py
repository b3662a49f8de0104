"""Dropout + residual: the mask bit by bit, its rate, gradients, p = 0 and 1, strides, refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES, TOLERANCE, assert_close, far_apart

import course_kernels
from course_kernels import launch, reference

INF, NAN = float("inf"), float("nan")
SHAPES = [(1,), (3,), (31, 500), (1, 98432), (2, launch.sizes().tile), (3, 1, 576)]
SEEDS = [0, 1, 2**31 - 1, 2**31, 2**32, 2**32 + 5, 2**63 - 1]
few_examples = settings(
    max_examples=6, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def randn(shape, dtype, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def dropout_add(*args, **kwargs):
    with course_kernels.use_backend("triton"):
        return course_kernels.dropout_add(*args, **kwargs)


def kept(shape, p, seed, device):
    """Which elements the kernel keeps, read from what it does to ones."""
    ones = torch.ones(shape, device=device)
    return dropout_add(ones, torch.zeros_like(ones), p, seed) != 0


def check(x, residual, p, seed):
    before = x.clone(), residual.clone()
    y = dropout_add(x, residual, p, seed)
    assert y.shape == x.shape and y.dtype == x.dtype and y.is_contiguous()
    want = reference.dropout_add(x.double(), residual.double(), p, seed)
    assert_close(y, want, TOLERANCE[x.dtype])
    dropped = ~reference.dropout_keeps(x, p, seed)
    assert torch.equal(y[dropped], residual[dropped])
    assert torch.equal(x, before[0]) and torch.equal(residual, before[1]), "inputs were modified"


# ---- values and the mask -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, dtype, device):
    check(randn(shape, dtype, device), randn(shape, dtype, device, seed=1), 0.3, 17)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mask_is_philoxs_for_every_seed(seed, device):
    """The reference draws the same numbers with PyTorch's integers."""
    mask = kept((31, 100), 0.5, seed, device)
    assert torch.equal(mask, reference.dropout_keeps(mask, 0.5, seed))


def test_an_element_whose_number_is_p_is_kept(device):
    numbers = reference.uniform(reference.philox(17, torch.arange(2)).flatten())
    assert kept((1, 8), numbers[5].item(), 17, device).flatten().tolist() == (numbers >= numbers[5]).tolist()


def test_philox_known_answers():
    """From the test vectors of Random123, the authors' own library."""
    words = reference.philox(0, torch.zeros(1, dtype=torch.int64))[0]
    assert [f"{word:08x}" for word in words.tolist()] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


def test_the_counter_does_not_end_at_32_bits():
    counters = torch.tensor([5, 2**32 + 5])
    assert not torch.equal(*reference.philox(3, counters))


def test_seeds_that_differ_in_any_bit_drop_other_elements(device):
    masks = [kept((1000,), 0.5, seed, device) for seed in SEEDS]
    for i, mask in enumerate(masks):
        for other in masks[:i]:
            assert 400 < (mask != other).sum() < 600


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_keep_rate(p, device):
    n = 100_000
    rate = kept((n,), p, 2026, device).double().mean().item()
    assert abs(rate - (1 - p)) <= 4 * (p * (1 - p) / n) ** 0.5


def test_rows_programs_and_words_have_masks_of_their_own(device):
    """An offset that starts again in each row, program or word of the generator would repeat."""
    mask = kept((8, launch.sizes().tile), 0.5, 7, device)
    for i, row in enumerate(mask):
        for other in mask[:i]:
            assert (row != other).float().mean() > 0.4
    words = mask.flatten().view(-1, 4).T
    for i, word in enumerate(words):
        for other in words[:i]:
            assert (word != other).float().mean() > 0.4


def test_the_mask_depends_on_the_logical_index_only(device):
    """Neither on the shape's division into rows, nor on how many elements follow, nor on the dtype."""
    mask = kept((24, 100), 0.5, 7, device)
    assert torch.equal(kept((2400,), 0.5, 7, device), mask.flatten())
    assert torch.equal(kept((2, 12, 100), 0.5, 7, device), mask.view(2, 12, 100))
    assert torch.equal(kept((1000,), 0.5, 7, device), mask.flatten()[:1000])
    ones = torch.ones(24, 100, device=device, dtype=torch.bfloat16)
    assert torch.equal(dropout_add(ones, torch.zeros_like(ones), 0.5, 7) != 0, mask)


@few_examples
@given(st.integers(1, 9), st.integers(1, 3000), st.floats(0, 1), st.sampled_from(DTYPES), st.integers(0, 2**63 - 1))
def test_any_shape_p_and_seed_agree_with_the_reference(device, rows, cols, p, dtype, seed):
    check(randn((rows, cols), dtype, device), randn((rows, cols), dtype, device, seed=1), p, seed)


@few_examples
@given(st.floats(0, 1), st.floats(0, 1))
def test_a_larger_p_drops_more_of_the_same(device, p, q):
    p, q = sorted((p, q))
    assert not (kept((2000,), q, 5, device) & ~kept((2000,), p, 5, device)).any()


def test_both_backends_drop_the_same(device):
    x, residual = randn((9, 70), torch.float32, device), randn((9, 70), torch.float32, device, seed=1)
    with course_kernels.use_backend("torch"):
        want = course_kernels.dropout_add(x, residual, 0.4, 9)
    assert_close(dropout_add(x, residual, 0.4, 9), want, 1e-6)


def test_what_is_kept_is_not_rounded_before_the_residual_is_added(device):
    """Where the two nearly cancel, digits that were dropped early show."""
    x, noise = randn((4, 500), torch.bfloat16, device), randn((4, 500), torch.bfloat16, device, seed=1)
    residual = (noise / 64 - x / 0.7).bfloat16()
    want = reference.dropout_add(x.double(), residual.double(), 0.3, 5)
    assert ((dropout_add(x, residual, 0.3, 5).double() - want).abs() <= 1.01 * 2.0**-8 * want.abs() + 1e-6).all()


# ---- p = 0, p = 1, evaluation, infinities --------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0, 0.0])
def test_p_0_adds_everything(p, dtype, device):
    x, residual = randn((9, 300), dtype, device), randn((9, 300), dtype, device, seed=1)
    assert torch.equal(dropout_add(x, residual, p, 3), x + residual)


@pytest.mark.parametrize("p", [1, 1.0])
@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_p_1_leaves_the_residual(p, backend, dtype, device):
    x, residual = randn((9, 300), dtype, device).requires_grad_(), randn((9, 300), dtype, device, seed=1)
    with course_kernels.use_backend(backend):
        y = course_kernels.dropout_add(x, residual, p, 3)
    assert torch.equal(y, residual)
    y.sum().backward()
    assert torch.count_nonzero(x.grad) == 0


@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_evaluation_drops_nothing(backend, dtype, device):
    x, residual = randn((9, 300), dtype, device), randn((9, 300), dtype, device, seed=1)
    with course_kernels.use_backend(backend):
        y = course_kernels.dropout_add(x, residual, 0.9, 3, training=False)
    assert torch.equal(y, x + residual)


@pytest.mark.parametrize("value", [INF, -INF, NAN])
@pytest.mark.parametrize("p", [0.5, 1.0])
def test_an_infinity_that_is_dropped_leaves_the_residual(value, p, device):
    """x * mask would be inf * 0 = NaN."""
    x, residual = torch.full((500,), value, device=device), randn((500,), torch.float32, device)
    y = dropout_add(x, residual, p, 3)
    mask = reference.dropout_keeps(x, p, 3)
    assert torch.equal(y[~mask], residual[~mask])
    assert not y[mask].isfinite().any()


@pytest.mark.parametrize("shape", [(0,), (0, 6), (3, 0)], ids=str)
def test_empty_tensors_give_empty_tensors(shape, device):
    x, residual = (torch.empty(shape, device=device, requires_grad=True) for _ in range(2))
    y = dropout_add(x, residual, 0.5, 1)
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == shape


# ---- gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(31, 500), (2, 3, 40), (7,)], ids=str)
def test_gradients(shape, dtype, device):
    x, residual, arriving = (randn(shape, dtype, device, seed=i) for i in range(3))
    y = dropout_add(x.requires_grad_(), residual.requires_grad_(), 0.3, 11)
    dx, dresidual = torch.autograd.grad(y, (x, residual), arriving)
    mask = reference.dropout_keeps(x, 0.3, 11)
    assert dx.dtype == dtype
    assert_close(dx, torch.where(mask, arriving.double() / 0.7, 0.0), TOLERANCE[dtype])
    assert torch.equal(dresidual, arriving)


def test_backward_drops_what_forward_dropped(device):
    x = torch.ones(5, 2000, device=device, requires_grad=True)
    y = dropout_add(x, torch.zeros_like(x), 0.5, 123)
    y.sum().backward()  # a gradient of ones that arrives with stride 0
    assert torch.equal(x.grad, y.detach())


def test_only_the_residual_wants_a_gradient(device):
    x, residual = randn((3, 6), torch.float32, device), randn((3, 6), torch.float32, device).requires_grad_()
    dropout_add(x, residual, 0.5, 1).sum().backward()
    assert (residual.grad == 1).all() and x.grad is None


def test_second_derivatives_are_refused(device):
    x = randn((2, 4), torch.float32, device).requires_grad_()
    y = dropout_add(x, torch.zeros_like(x), 0.1, 1)
    (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        gradient.sum().backward()


# ---- strides -------------------------------------------------------------------------------------------------------

VIEWS = {
    "columns of a wider matrix": lambda x: x[:, 8:108],
    "every other row": lambda x: x[::2, :100],
    "one row expanded": lambda x: x[:1, :100].expand(5, 100),
    "one column": lambda x: x[:, 7:8],
}


@pytest.mark.parametrize("strided", ["x", "residual", "both"])
@pytest.mark.parametrize("view", VIEWS)
def test_strides_do_not_matter(strided, view, device):
    x, residual = (VIEWS[view](randn((6, 120), torch.float32, device, seed=i)) for i in range(2))
    if strided == "x":
        residual = residual.contiguous()
    if strided == "residual":
        x = x.contiguous()
    check(x, residual, 0.4, 5)
    assert torch.equal(dropout_add(x, residual, 0.4, 5), dropout_add(x.contiguous(), residual.contiguous(), 0.4, 5))


def test_rows_beyond_two_to_the_31_elements(device):
    x = far_apart(randn((3, 16), torch.float16, device), 0)
    check(x, x, 0.5, 5)


# ---- refusals, each before any launch ------------------------------------------------------------------------------

REFUSALS = {
    "float64": (TypeError, "x must be float32", lambda x, r, p, s: (x.double(), r.double(), p, s)),
    "number": (TypeError, "residual must be a torch.Tensor, got float", lambda x, r, p, s: (x, 1.0, p, s)),
    "scalar": (ValueError, "at least one dimension", lambda x, r, p, s: (x.sum(), x.sum(), p, s)),
    "shapes": (ValueError, "one shape", lambda x, r, p, s: (x, r[0], p, s)),
    "dtypes": (TypeError, "one dtype", lambda x, r, p, s: (x, r.half(), p, s)),
    "devices": (ValueError, "residual is on meta", lambda x, r, p, s: (x, r.to("meta"), p, s)),
    "transposed": (ValueError, "residual needs a last dimension", lambda x, r, p, s: (x[:, :4], r[:, :4].t(), p, s)),
    "p above 1": (ValueError, "0 <= p <= 1, got 1.5", lambda x, r, p, s: (x, r, 1.5, s)),
    "p below 0": (ValueError, "0 <= p <= 1, got -0.1", lambda x, r, p, s: (x, r, -0.1, s)),
    "p NaN": (ValueError, "0 <= p <= 1, got nan", lambda x, r, p, s: (x, r, NAN, s)),
    "p text": (TypeError, "p must be a number, got str", lambda x, r, p, s: (x, r, "0.5", s)),
    "seed below 0": (ValueError, r"below 2\*\*63, got -1", lambda x, r, p, s: (x, r, p, -1)),
    "seed above 63 bits": (ValueError, r"below 2\*\*63, got 9223372036854775808", lambda x, r, p, s: (x, r, p, 2**63)),
    "seed float": (TypeError, "seed must be an int, got float", lambda x, r, p, s: (x, r, p, 1.0)),
    "seed bool": (TypeError, "seed must be an int, got bool", lambda x, r, p, s: (x, r, p, True)),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", REFUSALS)
def test_bad_arguments_are_named(case, backend, device, no_launch):
    error, message, spoil = REFUSALS[case]
    x, residual = randn((4, 6), torch.float32, device), randn((4, 6), torch.float32, device)
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.dropout_add(*spoil(x, residual, 0.5, 1))
