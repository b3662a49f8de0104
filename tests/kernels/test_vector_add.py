"""Vector addition: values, gradients, refusals, and sizes beyond 2**31."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES

import course_kernels
from course_kernels import launch


def add(x, y):
    with course_kernels.use_backend("triton"):
        return course_kernels.vector_add(x, y)


@pytest.mark.parametrize(
    "shape",
    [(1,), (98432,), (launch.sizes().tile,), (launch.sizes().tile + 1,), (31, 500), (2, 16, 128), ()],
    ids=str,
)
def test_sum_is_exact(shape, dtype, device):
    """One addition, rounded once: the same bits as PyTorch's."""
    x, y = (100 * torch.randn(shape, device=device).to(dtype) for _ in range(2))
    z = add(x, y)
    assert z.dtype == dtype and z.shape == x.shape
    assert torch.equal(z, x + y)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, as the interpreter meets inf - inf
def test_infinities_and_nan(dtype, device):
    inf, nan, largest = float("inf"), float("nan"), torch.finfo(dtype).max
    x = torch.tensor([inf, inf, nan, largest, -0.0], device=device, dtype=dtype)
    y = torch.tensor([1.0, -inf, 1.0, largest, -0.0], device=device, dtype=dtype)
    torch.testing.assert_close(add(x, y), x + y, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(0,), (3, 0)], ids=str)
def test_empty_tensors_give_empty_tensors(shape, device):
    assert add(torch.empty(shape, device=device), torch.empty(shape, device=device)).shape == shape


def test_gradient(dtype, device):
    x, y = (torch.randn(3, 5, device=device).to(dtype).requires_grad_() for _ in range(2))
    arriving = torch.randn(3, 5, device=device).to(dtype)
    add(x, y).backward(arriving)
    assert torch.equal(x.grad, arriving) and torch.equal(y.grad, arriving)


def test_inputs_are_not_modified(device):
    x, y = torch.randn(2, 5000, device=device)
    before = x.clone(), y.clone()
    add(x, y)
    assert torch.equal(x, before[0]) and torch.equal(y, before[1])


@settings(max_examples=8, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3 * launch.sizes().tile), st.sampled_from(DTYPES))
def test_any_size_and_any_order(device, size, dtype):
    x, y = torch.randn(2, size, device=device).to(dtype)
    assert torch.equal(add(x, y), x + y) and torch.equal(add(y, x), x + y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="half a million programs: too many to interpret")
def test_more_than_two_to_the_31_elements():
    x = torch.ones(2**31 + 4096, dtype=torch.float16, device="cuda")
    assert (add(x, x)[-4096:] == 2).all()


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "spoil"),
    [
        (TypeError, "x must be float32", lambda x, y: (x.double(), y.double())),
        (TypeError, "y must be a torch.Tensor, got float", lambda x, y: (x, 1.0)),
        (TypeError, "one dtype", lambda x, y: (x, y.half())),
        (ValueError, r"one shape, got \(4, 6\) and \(6,\)", lambda x, y: (x, y[0])),
        (ValueError, "y is on meta", lambda x, y: (x, y.to("meta"))),
        (ValueError, "x must be contiguous", lambda x, y: (x.t(), y.t())),
    ],
    ids=["float64", "number", "dtypes", "shapes", "devices", "strides"],
)
def test_bad_arguments_are_named(error, message, spoil, backend, device, no_launch):
    x, y = torch.randn(2, 4, 6, device=device)
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.vector_add(*spoil(x, y))
