"""The linear layer: one token (matrix times vector) and several, edges, strides, refusals."""

import pytest
import torch
from kernel_testing import randn, run, short

from course_kernels import launch, reference
from gfxlab import trace

TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 8e-3}
SHAPES = [(1, 576, 960), (1, 1, 1), (1, 577, 45), (1, 130, 1100), (3, 64, 40), (20, 70, 33)]  # tokens, depth, rows


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape, dtype, device):
    tokens, depth, rows = shape
    x, weight = randn((tokens, depth), dtype, device), randn((rows, depth), dtype, device, seed=1)
    before = x.clone(), weight.clone()
    y = run("linear", x, weight)
    assert y.shape == (tokens, rows) and y.dtype == dtype and y.is_contiguous()
    expected = reference.linear(x, weight)
    torch.testing.assert_close(y.double(), expected.double(), atol=TOLERANCE[dtype] * depth**0.5, rtol=TOLERANCE[dtype])
    assert torch.equal(x, before[0]) and torch.equal(weight, before[1])


def test_a_row_whose_elements_lie_apart(device):
    x, weight = randn((64, 3), device=device).t()[1:2], randn((40, 64), device=device, seed=1)
    torch.testing.assert_close(run("linear", x, weight), reference.linear(x, weight), atol=1e-4, rtol=1e-4)


def test_one_token_is_one_launch_that_reads_the_weight_once():
    x, weight = randn((1, 576)), randn((100, 576), seed=1)
    with trace() as launches:
        run("linear", x, weight)
    assert len(launches) == 1
    assert launches.ledger()["weight_ptr"].read == weight.nbytes


@pytest.mark.parametrize("most", [4, 32, 512])
def test_any_number_of_rows_a_program(most, device):
    x, weight = randn((1, 100), device=device), randn((1030, 100), device=device, seed=1)
    with launch.sizes_as(weight_rows=most):
        assert launch.weight_rows(weight).meta["BLOCK_N"] <= most
        torch.testing.assert_close(run("linear", x, weight), reference.linear(x, weight), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("tokens", [1, 37])
def test_few_programs_give_the_same_numbers(tokens, device):
    x, weight = randn((tokens, 100), device=device), randn((1030, 100), device=device, seed=1)
    if x.is_cuda:
        pytest.skip("blocks that no GPU could hold")
    with launch.few_programs(), trace() as launches:
        y = run("linear", x, weight)
    assert [one.grid[:2] for one in launches] == [(2, 1)]
    torch.testing.assert_close(y, reference.linear(x, weight), atol=1e-4, rtol=1e-4)


def test_nothing_to_do(device):
    assert run("linear", randn((0, 8), device=device), randn((5, 8), device=device)).shape == (0, 5)
    assert run("linear", randn((1, 8), device=device), randn((0, 8), device=device)).shape == (1, 0)
    assert torch.equal(
        run("linear", randn((1, 0), device=device), randn((5, 0), device=device)).cpu(), torch.zeros(1, 5)
    )


@pytest.mark.parametrize(
    ("x", "weight", "error", "words"),
    [
        (torch.ones(1, 4).double(), torch.ones(3, 4).double(), TypeError, "float64"),
        (torch.ones(1, 4), torch.ones(3, 4).half(), TypeError, "float16"),
        (torch.ones(1, 4), torch.ones(3, 5), ValueError, "4 columns but weight has 5"),
        (torch.ones(4), torch.ones(3, 4), ValueError, "2 dimensions"),
        (torch.ones(1, 4), torch.ones(4, 3).t(), ValueError, "weight must be contiguous"),
        (torch.ones(1, 4, requires_grad=True), torch.ones(3, 4), ValueError, "x requires grad"),
    ],
    ids=lambda value: short(value.dtype) if isinstance(value, torch.Tensor) else None,
)
def test_refusals(x, weight, error, words):
    with pytest.raises(error, match=words):
        run("linear", x, weight)
