"""Softmax: values, rows that overflow or have nothing finite, strides, refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES, TOLERANCE, assert_close, far_apart

import course_kernels
from course_kernels import launch, reference

INF = float("inf")
SHAPES = [
    (1, 1),
    (23, 1),
    (1, 128),
    (128, 2),
    (1, 359),
    (19, 781),
    (9, 9, 576),  # SmolLM2: nine heads
    (3, 4096),
    (2, launch.sizes().max_row),  # the widest row that is held, and the next, which is walked
    (2, launch.sizes().max_row + 1),
    (1, 49152),  # SmolLM2's vocabulary
    (1, 89999),
    (2, 131072),
]
few_examples = settings(
    max_examples=6, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def randn(shape, dtype, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def softmax(x):
    with course_kernels.use_backend("triton"):
        return course_kernels.softmax(x)


def check(x):
    before = x.clone()
    y = softmax(x)
    assert y.shape == x.shape and y.dtype == x.dtype
    # probabilities are small: beside the usual tolerance, each is right to its own last digits
    assert_close(y, reference.softmax(x.double()), TOLERANCE[x.dtype])
    torch.testing.assert_close(
        y.double(), reference.softmax(x.double()), rtol=TOLERANCE[x.dtype], atol=1e-7, equal_nan=True
    )
    assert torch.equal(x.nan_to_num(), before.nan_to_num()), "x was modified"


@pytest.fixture(params=[8192, 64], ids=["held", "walked"])
def max_row(request):
    """The same rows held in registers, and walked in a few blocks."""
    with launch.sizes_as(max_row=request.param):
        yield


# ---- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, dtype, device):
    check(3 * randn(shape, dtype, device))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1823, 781), (359, 1), (1000, 128)], ids=str)
def test_values_of_many_rows(shape, dtype, device):
    check(3 * randn(shape, dtype, device))


@pytest.mark.parametrize("shape", [(37, 9), (23, 576)], ids=str)
def test_several_rows_in_a_tile(shape, dtype, device, small_gpu):
    check(randn(shape, dtype, device))


@pytest.mark.parametrize("shape", [(6,), (2, 3, 6), (1, 2, 1, 3, 6)], ids=str)
def test_any_leading_dimensions(shape, device):
    check(randn(shape, torch.float32, device))


@pytest.mark.parametrize("shape", [(0, 6), (2, 0, 6), (3, 0)], ids=str)
def test_empty_tensors_give_empty_tensors(shape, device):
    assert softmax(torch.empty(shape, device=device)).shape == shape


@few_examples
@given(st.integers(1, 9), st.integers(1, 700), st.sampled_from(DTYPES), st.integers(0, 2**31))
def test_any_shape_agrees_and_rows_sum_to_one(device, rows, cols, dtype, seed):
    x = 5 * randn((rows, cols), dtype, device, seed)
    check(x)
    total = softmax(x.float()).double().sum(dim=-1)
    assert_close(total, torch.ones_like(total), 1e-5)


@few_examples
@given(st.integers(1, 300), st.integers(-1000, 1000))
def test_a_shift_and_an_order_change_nothing(device, max_row, cols, shift):
    x = (8 * randn((2, cols), torch.float32, device)).round()  # whole numbers: the shift loses no digit
    assert_close(softmax(x + shift), softmax(x), 1e-6)
    order = torch.randperm(cols, generator=torch.Generator().manual_seed(0)).to(device)
    assert_close(softmax(x[:, order]), softmax(x)[:, order], 1e-6)


def test_two_large_numbers_that_one_lane_meets_are_summed_to_the_last_bit(dtype, device):
    """Of a row that is walked in two turns; the others are so low that they count for nothing."""
    x = torch.full((64, 512), -1e4, dtype=dtype, device=device)
    x[:, [5, 256 + 5]] = randn((64, 2), dtype, device).mul(2)
    with launch.sizes_as(max_row=64):
        assert launch.long_rows(x).meta["BLOCK_N"] == 256
        y = softmax(x)
    exact, large = reference.softmax(x.double()), [5, 256 + 5]
    if dtype == torch.float32:
        assert_close(y, exact, 1e-6)
    else:
        assert float((y != exact.to(dtype))[:, large].double().mean()) <= 0.02


# ---- adversarial rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [-20, 20, -3e4, 3e4])
@pytest.mark.parametrize("cols", [359, 1000, 20000])
def test_rows_far_from_zero(cols, shift, dtype, device):
    """Padding with 0 instead of -inf passes at +20 and fails at -20; without the maximum, exp(1e4) is inf."""
    check(randn((2, cols), dtype, device) + shift)


def test_one_element_far_above_the_others(dtype, device, max_row):
    x = randn((4, 300), dtype, device)
    x[0, 0] = x[1, 70] = x[2, 299] = 1e4
    check(x)


def test_the_last_element_of_a_walked_row_counts(device):
    """It is alone in its block."""
    x = randn((1, launch.sizes().max_row + 1), torch.float32, device)
    x[0, -1] = 20.0
    check(x)


def test_walked_rows_are_rounded_once(device):
    """Sums and factors of bfloat16 have no digits to lose on the way: what is stored is the nearest number."""
    x = randn((8, 3000), torch.bfloat16, device)
    with launch.sizes_as(max_row=64):
        y = softmax(x).double()
    want = reference.softmax(x.double())
    assert ((y - want).abs() <= 1.01 * 2.0**-8 * want).all()


def test_a_maximum_that_rises_in_every_block(device, max_row):
    check(torch.linspace(-80, 80, 1000, device=device).expand(2, -1))
    check(torch.linspace(80, -80, 1000, device=device).expand(2, -1))


@pytest.mark.parametrize("start", [1, 128, 200, 299])
def test_rows_that_start_with_minus_inf(start, dtype, device, max_row):
    """A whole first block of -inf: exp(-inf - -inf) would make the row NaN."""
    x = randn((3, 300), dtype, device)
    x[1, :start] = -INF
    check(x)
    assert not softmax(x).isnan().any()


def test_minus_inf_between_numbers(dtype, device, max_row):
    x = randn((2, 300), dtype, device)
    x[:, 64:256] = -INF
    check(x)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy, as the interpreter meets inf - inf
@pytest.mark.parametrize("value", [INF, float("nan"), "all -inf"])
def test_what_has_no_softmax_gives_nan_as_in_pytorch_and_in_its_row_only(value, device, max_row, small_gpu):
    x = randn((9, 200), torch.float32, device)
    clean = softmax(x)
    if value == "all -inf":
        x[4] = -INF
    else:
        x[4, 130] = value
    y = softmax(x)
    assert y[4].isnan().all() and torch.softmax(x, dim=-1)[4].isnan().all()
    others = torch.arange(9, device=device) != 4
    assert torch.equal(y[others], clean[others])


# ---- strides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, 8:108], lambda x: x[::2, :100], lambda x: x[:1, :100].expand(5, 100), lambda x: x[:, 7:8]],
    ids=["columns of a wider matrix", "every other row", "one row expanded", "one column"],
)
def test_rows_at_a_stride_are_read_in_place(view, device, max_row):
    check(view(randn((6, 120), torch.float32, device)))


@pytest.mark.parametrize("max_row", [8192, 8], ids=["held", "walked"], indirect=True)
def test_rows_beyond_two_to_the_31_elements(device, max_row):
    x = far_apart(randn((3, 16), torch.float16, device), 0)
    check(x)


# ---- refusals, each before any launch ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "spoil"),
    [
        (TypeError, "x must be float32", lambda x: x.double()),
        (TypeError, "x must be float32", lambda x: x.int()),
        (TypeError, "x must be a torch.Tensor, got list", lambda x: [1.0]),
        (ValueError, "at least one dimension", lambda x: x.new_zeros(())),
        (ValueError, "stride 1", lambda x: x.t()),
        (ValueError, "one stride from row to row", lambda x: x.new_zeros(2, 3, 6)[:, :2]),
        (ValueError, r"x requires grad", lambda x: x.requires_grad_()),
    ],
    ids=["float64", "int", "list", "scalar", "transposed", "two strides", "requires grad"],
)
def test_bad_arguments_are_named(error, message, spoil, backend, device, no_launch):
    x = spoil(randn((4, 6), torch.float32, device))
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.softmax(x)


def test_a_tensor_that_requires_grad_is_taken_without_autograd(device):
    x = randn((4, 6), torch.float32, device).requires_grad_()
    with torch.no_grad():
        assert_close(softmax(x), reference.softmax(x), 1e-6)
