"""Top-k: values and indices exact, ties, infinities, NaN, long rows, strides, refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES, far_apart

import course_kernels
from course_kernels import launch, reference

INF, NAN = float("inf"), float("nan")
few_examples = settings(
    max_examples=8, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def randn(shape, dtype, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def topk(x, k, largest=True):
    with course_kernels.use_backend("triton"):
        return course_kernels.topk(x, k, largest=largest)


def check(x, k, largest=True):
    before = x.clone()
    values, indices = topk(x, k, largest)
    assert values.shape == indices.shape == (*x.shape[:-1], k)
    assert values.dtype == x.dtype and indices.dtype == torch.int64
    assert_same(values, x.gather(-1, indices))
    assert_same(values, torch.topk(x, k, dim=-1, largest=largest).values)
    wanted = reference.topk(x.cpu(), k, largest)[1].to(
        x.device
    )  # on the CPU: torch.sort on CUDA puts a negative NaN last
    assert torch.equal(indices, wanted), "of equal elements the one with the lowest index comes first"
    assert_same(x, before)


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.fixture(params=[(64, 64), (1, 64), (0, 0)], ids=["rounds", "network", "sorted"])
def rounds(request):
    """By rounds of a maximum, by a network (of two or more, as in use), by sorting; rows over 64 or 128 are cut."""
    max_rounds, max_chosen = request.param
    with launch.sizes_as(max_rounds=max_rounds, max_chosen=max_chosen, tile=64):
        yield


# ---- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 8, 16])
@pytest.mark.parametrize("rows", [1, 3])
def test_short_rows(rows, k, dtype, device):
    check(randn((rows, 16), dtype, device), k)


@pytest.mark.parametrize(("cols", "k"), [(1000, 8), (1024, 2), (1025, 64), (1025, 1), (2048, 8), (2049, 8)])
def test_longer_rows(cols, k, dtype, device):
    check(randn((3, cols), dtype, device), k)


def test_a_vocabulary(device):
    """Llama 3 has 128256 words: 63 chunks, then what these leave."""
    check(randn((1, 128256), torch.float32, device), 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "cols", "k"), [(16, 1024, 64), (1, 128256, 64), (16, 128256, 8), (1, 128256, 128256), (3, 49152, 50)]
)
def test_large(rows, cols, k, device):
    check(randn((rows, cols), torch.float32, device), k)


@pytest.mark.parametrize("shape", [(65,), (2, 3, 65), (1, 2, 1, 3, 6)], ids=str)
def test_any_leading_dimensions(shape, device):
    check(randn(shape, torch.float32, device), 5)


def test_several_rows_in_a_program(dtype, device, small_gpu):
    check(randn((37, 9), dtype, device), 4)


@pytest.mark.parametrize("k", [65, 200, 300])
def test_a_large_k_sorts(k, dtype, device):
    """300 elements: three sorted chunks, the last of which has none to merge with at first."""
    check(randn((2, 300), dtype, device), k)


@few_examples
@given(st.integers(1, 4), st.integers(1, 330), st.sampled_from(DTYPES), st.integers(0, 2**31), st.data())
def test_any_row_with_many_ties(device, rounds, rows, cols, dtype, seed, data):
    k = data.draw(st.integers(1, min(cols, 20)), "k")
    check((2 * randn((rows, cols), dtype, device, seed)).round(), k, data.draw(st.booleans(), "largest"))


@pytest.mark.parametrize("shape", [(0, 6), (2, 0, 6)], ids=str)
def test_no_rows(shape, device):
    values, indices = topk(torch.empty(shape, device=device), 2)
    assert values.shape == indices.shape == (*shape[:-1], 2)


@pytest.mark.parametrize("shape", [(3, 6), (3, 0)], ids=str)
def test_k_of_zero_is_empty(shape, device):
    values, indices = topk(torch.empty(shape, device=device).half(), 0)
    assert values.shape == indices.shape == (3, 0)
    assert values.dtype == torch.float16 and indices.dtype == torch.int64


# ---- adversarial rows ----------------------------------------------------------------------------------------------


def test_all_equal_takes_the_first(dtype, device, rounds):
    x = torch.full((2, 150), -3.0, device=device).to(dtype)
    check(x, 7)
    assert topk(x, 7)[1].tolist() == [list(range(7))] * 2


def test_zeros_of_both_signs_are_equal(dtype, device, rounds):
    x = torch.tensor([[-0.0, 0.0, -1.0, -0.0, 0.0]], device=device).to(dtype)
    assert topk(x, 4)[1].tolist() == [[0, 1, 3, 4]]


@pytest.mark.parametrize("place", [0, 7, 149])
def test_one_infinity(place, dtype, device, rounds):
    """Selecting by sum(x * mask) makes the row NaN: inf * 0."""
    x = randn((2, 150), dtype, device)
    x[0, place] = INF
    check(x, 3)
    assert topk(x, 3)[1][0, 0] == place


def test_fewer_finite_elements_than_k(dtype, device, rounds):
    """A taken element that is overwritten with the smallest finite number wins against -inf, again and again."""
    x = torch.full((2, 150), -INF, device=device).to(dtype)
    x[0, 2] = x[1, 140] = 1
    check(x, 5)
    assert topk(x, 3)[1].tolist() == [[2, 0, 1], [140, 0, 1]]


def test_nan_comes_first_whatever_its_sign(dtype, device, rounds):
    x = randn((2, 150), dtype, device)
    x[0, 3], x[0, 140], x[0, 80], x[1, 5] = NAN, -torch.tensor(NAN), INF, -INF
    check(x, 4)
    assert topk(x, 3)[1][0].tolist() == [3, 140, 80]


def test_subnormals_and_extremes_are_told_apart(dtype, device, rounds):
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    x = torch.tensor([[-smallest, info.min, smallest, info.max, 0.0, -INF, 2 * smallest]], device=device).to(dtype)
    check(x, 7)
    assert topk(x, 7)[1].tolist() == [[3, 6, 2, 4, 0, 1, 5]]


# ---- the smallest ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cols", "k"), [(16, 1), (150, 7), (300, 200), (2049, 8)])
def test_the_smallest(cols, k, dtype, device):
    check(randn((2, cols), dtype, device), k, largest=False)


def test_of_the_smallest_nan_comes_last_and_ties_keep_their_order(dtype, device, rounds):
    x = torch.tensor([[NAN, INF, -0.0, 0.0, 5.0, -INF, -NAN, -INF, INF, 0.0]], device=device).to(dtype)
    check(x, 10, largest=False)
    assert topk(x, 10, largest=False)[1].tolist() == [[5, 7, 2, 3, 9, 4, 1, 8, 0, 6]]


@pytest.mark.parametrize("place", [0, 149])
def test_fewer_other_elements_than_k_of_the_smallest(place, device, rounds):
    x = torch.full((2, 150), NAN, device=device)
    x[0, place] = INF
    check(x, 5, largest=False)
    assert topk(x, 1, largest=False)[1].tolist() == [[place], [0]]


# ---- strides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, 8:158], lambda x: x[::2, :150], lambda x: x[:1].expand(3, -1), lambda x: x[:, 7:8]],
    ids=["columns of a wider matrix", "every other row", "one row expanded", "one column"],
)
def test_rows_at_a_stride_are_read_in_place(view, device, rounds):
    x = view(randn((4, 170), torch.float32, device))
    check(x, min(6, x.shape[1]))


def test_rows_beyond_two_to_the_31_elements(device, rounds):
    x = far_apart(randn((3, 160), torch.float16, device), 0)
    check(x, 5)


# ---- refusals, each before any launch ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "spoil", "k"),
    [
        (TypeError, "x must be float32", lambda x: x.double(), 1),
        (TypeError, "x must be float32", lambda x: x.int(), 1),
        (TypeError, "x must be a torch.Tensor, got list", lambda x: [1.0], 1),
        (TypeError, "k must be an int, got float 1.0", lambda x: x, 1.0),
        (TypeError, "k must be an int, got bool True", lambda x: x, True),
        (ValueError, "k must be from 0 to the width of x, 6; got 7", lambda x: x, 7),
        (ValueError, "k must be from 0 to the width of x, 6; got -1", lambda x: x, -1),
        (ValueError, "at least one dimension", lambda x: x.new_zeros(()), 1),
        (ValueError, "stride 1", lambda x: x.t(), 1),
        (ValueError, "one stride from row to row", lambda x: x.new_zeros(2, 3, 6)[:, :2], 1),
        (ValueError, "x requires grad", lambda x: x.requires_grad_(), 1),
    ],
)
def test_bad_arguments_are_named(error, message, spoil, k, backend, device, no_launch):
    x = spoil(randn((4, 6), torch.float32, device))
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.topk(x, k)
