"""RMSNorm and LayerNorm, alone and fused with the residual addition: values, gradients, adversarial rows, refusals."""

import importlib

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES, GRADIENT_TOLERANCE, TOLERANCE, assert_close, far_apart, short

import course_kernels
from course_kernels import launch, reference

layer_norm = importlib.import_module("course_kernels.layer_norm")  # the package has a function of this name

NORMS = ["rms_norm", "add_rms_norm", "layer_norm", "add_layer_norm"]
DEFAULT_EPS = {"rms_norm": 1e-6, "layer_norm": 1e-5}
pytestmark = pytest.mark.parametrize("norm", NORMS)

SHAPES = [
    (1, 4),
    (2, 10),
    (2, 128),
    (40, 2),
    (23, 1),  # variance 0 in every row
    (1, 359),
    (19, 409),
    (8, 1000),
    (5, 1245),
    (7, 3571),
    (16, 4096),
    (2, launch.sizes().max_row),  # the widest row that is held, and the next, which is walked
    (2, launch.sizes().max_row + 1),
    (2, 16384),
    (1, 31744),
    (1, 65537),
    (1, 131072),
]
LARGE_SHAPES = [(1, 89999), (128, 2), (359, 1), (173, 409), (71, 3571), (873, 1245), (256, 4096), (2100, 576)]


def inputs(norm, x, *, weight_dtype=None):
    """The arguments of a norm of x: x, a residual where it takes one, weight, and a bias where it takes one."""
    generator = torch.Generator().manual_seed(1)

    def vector():
        return torch.randn(x.shape[-1], generator=generator).to(x.device, weight_dtype or x.dtype)

    residual = torch.randn(x.shape, generator=generator).to(x.device, x.dtype)
    weight, bias = vector(), vector()
    return (x, *([residual] if "add" in norm else []), weight, *([bias] if "layer" in norm else []))


def randn(shape, dtype, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def run(norm, args, **kwargs):
    """(y, new_residual or None) of the Triton kernel."""
    with course_kernels.use_backend("triton"):
        result = getattr(course_kernels, norm)(*args, **kwargs)
    return result if "add" in norm else (result, None)


def normalised(norm, args):
    """What is normalised: x, or the rounded sum."""
    return args[0] + args[1] if "add" in norm else args[0]


def expected(norm, stream, args, **kwargs):
    """y in float64, from the stream that is normalised."""
    vectors = args[2:] if "add" in norm else args[1:]
    return getattr(reference, norm.removeprefix("add_"))(stream.double(), *(v.double() for v in vectors), **kwargs)


def check_forward(norm, args, *, tolerance=None, **kwargs):
    before = [t.clone() for t in args]
    y, new_residual = run(norm, args, **kwargs)
    assert y.shape == args[0].shape and y.dtype == args[0].dtype
    if "add" in norm:
        assert torch.equal(new_residual, args[0] + args[1])
    assert_close(y, expected(norm, normalised(norm, args), args, **kwargs), tolerance or TOLERANCE[y.dtype])
    assert all(torch.equal(t, b) or t.isnan().any() for t, b in zip(args, before)), "inputs were modified"


def check_backward(norm, args, *, tolerance=None, **kwargs):
    """Gradients of all inputs, with a random gradient arriving at every output."""
    args = tuple(t.detach().requires_grad_() for t in args)
    outputs = [out for out in run(norm, args, **kwargs) if out is not None]
    arriving = [randn(out.shape, out.dtype, out.device, seed=2 + i) for i, out in enumerate(outputs)]
    gradients = torch.autograd.grad(outputs, args, arriving)

    stream = normalised(norm, args).detach().double().requires_grad_()
    vectors = [t.detach().double().requires_grad_() for t in args[1 + ("add" in norm) :]]
    y = expected(norm, stream, (stream, stream, *vectors) if "add" in norm else (stream, *vectors), **kwargs)
    d_stream, *d_vectors = torch.autograd.grad(y, (stream, *vectors), arriving[0].double())
    if "add" in norm:
        d_stream = d_stream + arriving[1].double()
    wanted = [d_stream, *([d_stream] if "add" in norm else []), *d_vectors]
    for gradient, argument, want in zip(gradients, args, wanted, strict=True):
        assert gradient.dtype == argument.dtype
        assert_close(gradient, want, tolerance or GRADIENT_TOLERANCE[args[0].dtype])


# ---- values and gradients ------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(norm, shape, dtype, device):
    args = inputs(norm, randn(shape, dtype, device))
    check_forward(norm, args)
    check_backward(norm, args)


@pytest.mark.slow
@pytest.mark.parametrize("shape", LARGE_SHAPES, ids=str)
def test_values_and_gradients_of_many_rows(norm, shape, dtype, device):
    args = inputs(norm, randn(shape, dtype, device))
    check_forward(norm, args)
    check_backward(norm, args)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("shape", [(37, 9), (23, 576), (5, 2000), (3, 9000)], ids=str)
def test_several_rows_in_a_tile_and_several_tiles_in_a_program(norm, shape, dtype, device, small_gpu):
    args = inputs(norm, randn(shape, dtype, device))
    check_forward(norm, args)
    check_backward(norm, args)


@pytest.mark.parametrize("weight_dtype", DTYPES, ids=short)
def test_weights_of_another_dtype(norm, weight_dtype, dtype, device):
    args = inputs(norm, randn((3, 100), dtype, device), weight_dtype=weight_dtype)
    check_forward(norm, args)
    check_backward(norm, args, tolerance=max(GRADIENT_TOLERANCE[dtype], GRADIENT_TOLERANCE[weight_dtype]))


@pytest.mark.parametrize("shape", [(6,), (2, 3, 6), (1, 2, 1, 3, 6)], ids=str)
def test_any_leading_dimensions(norm, shape, device):
    args = inputs(norm, randn(shape, torch.float32, device))
    check_forward(norm, args)
    check_backward(norm, args)


@pytest.mark.parametrize("shape", [(0, 6), (2, 0, 6), (3, 0)], ids=str)
def test_empty_tensors_give_empty_tensors(norm, shape, device, no_launch):
    args = tuple(t.requires_grad_() for t in inputs(norm, torch.empty(shape, device=device)))
    y, new_residual = run(norm, args)
    assert y.shape == shape
    assert new_residual is None or new_residual.shape == shape
    y.sum().backward()
    assert all(torch.count_nonzero(t.grad) == 0 for t in args)


@pytest.mark.parametrize("cols", [1000, 20000])
def test_the_rounded_sum_is_what_is_normalised(norm, cols, device):
    """The next layer sees the rounded sum. Normalising the other is within tolerance, but differs everywhere."""
    if "add" not in norm:
        pytest.skip("no residual")
    x, residual, *vectors = inputs(norm, randn((4, cols), torch.bfloat16, device))
    y, new_residual = run(norm, (x, residual, *vectors))
    alone, _ = run(norm.removeprefix("add_"), (new_residual, *vectors))
    assert (y != alone).float().mean() < 0.01  # a compiler may contract multiply and add differently


# ---- strides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, 8:108], lambda x: x[::2, :100], lambda x: x[:1, :100].expand(5, 100), lambda x: x[:, 7:8]],
    ids=["columns of a wider matrix", "every other row", "one row expanded", "one column"],
)
@pytest.mark.parametrize("max_row", [8192, 64], ids=["held", "walked"])
def test_rows_at_a_stride_are_read_in_place(norm, view, max_row, device):
    x, *rest = inputs(norm, randn((6, 120), torch.float32, device))
    args = tuple(view(t) if t.ndim == 2 else view(t.expand(6, 120))[0].contiguous() for t in (x, *rest))
    with launch.sizes_as(max_row=max_row):
        check_forward(norm, args)
        check_backward(norm, args)


@pytest.mark.parametrize("max_row", [8192, 8], ids=["held", "walked"])
def test_rows_beyond_two_to_the_31_elements(norm, max_row, device):
    args = inputs(norm, randn((3, 16), torch.float16, device))
    args = tuple(far_apart(t, 0) if t.ndim == 2 else t for t in args)
    with launch.sizes_as(max_row=max_row):
        check_forward(norm, args)
        check_backward(norm, args)


def test_gradient_of_a_sum_arrives_with_stride_0(norm, device):
    args = tuple(t.requires_grad_() for t in inputs(norm, randn((3, 10), torch.float32, device)))
    doubles = tuple(t.detach().double().requires_grad_() for t in args)
    run(norm, args)[0].sum().backward()
    expected(norm, normalised(norm, doubles), doubles).sum().backward()
    for single, double in zip(args, doubles):
        assert_close(single.grad, double.grad, 1e-4)


# ---- adversarial rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cols", [359, 600, 1000, 20000])
def test_small_rows_show_where_eps_is(norm, cols, dtype, device):
    """1e-3 * randn: mean(x^2) is as large as eps. An eps outside the root, or none, is far off."""
    args = inputs(norm, 1e-3 * randn((2, cols), dtype, device))
    if "add" in norm:
        args = (args[0], 1e-3 * args[1], *args[2:])
    check_forward(norm, args)


def test_eps_is_the_callers(norm, device):
    args = inputs(norm, 1e-2 * randn((2, 100), torch.float32, device))
    check_forward(norm, args, eps=0.25)


@pytest.mark.parametrize("max_row", [8192, 64], ids=["held", "walked"])
def test_every_row_has_the_callers_eps_and_strides_of_its_own(norm, max_row, device, small_gpu):
    """Forward and backward, with more rows than programs that run at a time, and not a multiple of them."""
    x, *others = inputs(norm, 1e-2 * randn((37, 100), torch.float32, device))
    x = torch.nn.functional.pad(x, (0, 30))[:, :100]
    if "add" in norm:
        others[0] = torch.nn.functional.pad(1e-2 * others[0], (0, 64))[:, :100]
    with launch.sizes_as(max_row=max_row):
        assert 1 < launch.column_blocks(x).grid[1] < 37 and 37 % launch.column_blocks(x).grid[1]
        check_forward(norm, (x, *others), eps=0.25)
        check_backward(norm, (x, *others), eps=0.25)


@pytest.mark.parametrize("cols", [10, 600, 20000])
def test_rows_of_zeros_and_of_a_constant(norm, cols, dtype, device):
    x = torch.zeros(3, cols, dtype=dtype, device=device)
    x[1] = 5.3
    x[2] = -1e4
    args = inputs(norm, x)
    if "add" in norm:
        args = (x, torch.zeros_like(x), *args[2:])
    check_forward(norm, args)


def test_large_values(norm, dtype, device):
    check_forward(norm, inputs(norm, 1e4 * randn((3, 1000), dtype, device)))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("cols", [359, 600, 1000, 20000])
def test_mean_far_from_zero(norm, cols, dtype, device):
    """Padded lanes that count in the variance, or a variance from raw sums, pass with mean 0 and fail here."""
    args = inputs(norm, randn((2, cols), dtype, device) + 5)
    check_forward(norm, args)
    check_backward(norm, args)


@pytest.mark.parametrize("cols", [1000, 20000])
def test_mean_a_thousand_deviations_from_zero(norm, cols, device):
    """A mean rounded to float32 is off by 3e-5 here: what rounding left in it must be taken out again."""
    check_forward(norm, inputs(norm, randn((2, cols), torch.float32, device) + 1000))


@pytest.mark.parametrize("outliers", [1, 4000])
@pytest.mark.parametrize("cols", [1000, 20000])
def test_a_row_whose_first_elements_lie_elsewhere(norm, cols, outliers, device):
    """LayerNorm subtracts a row's first element from all others: here it is no guide to them.

    With one outlier in n elements, its last place is sqrt(n) times the last place of a deviation.
    """
    x = randn((2, cols), torch.float32, device)
    x[:, : min(outliers, cols // 2)] += 3000
    args = inputs(norm, x)
    check_forward(norm, args, tolerance=1e-4)
    check_backward(norm, args)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy, as the interpreter meets inf - inf
@pytest.mark.parametrize("cols", [100, 20000])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_inf_and_nan_stay_in_their_row(norm, value, cols, device, small_gpu):
    args = inputs(norm, randn((9, cols), torch.float32, device))
    clean, _ = run(norm, args)
    args[0][4, 3] = value
    spoilt, _ = run(norm, args)
    others = torch.arange(9, device=device) != 4
    assert torch.equal(spoilt[others], clean[others])
    assert spoilt[4].isnan().any()


# ---- autograd ------------------------------------------------------------------------------------------------------


def test_only_the_new_residual_is_used(norm, device):
    if "add" not in norm:
        pytest.skip("one output")
    args = tuple(t.requires_grad_() for t in inputs(norm, randn((3, 10), torch.float32, device)))
    run(norm, args)[1].sum().backward()
    assert torch.equal(args[0].grad, torch.ones_like(args[0])) and torch.equal(args[1].grad, torch.ones_like(args[1]))
    assert torch.count_nonzero(args[2].grad) == 0


def test_second_derivatives_are_refused(norm, device):
    args = tuple(t.requires_grad_() for t in inputs(norm, randn((2, 4), torch.float32, device)))
    (gradient,) = torch.autograd.grad(run(norm, args)[0].square().sum(), args[0], create_graph=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        gradient.sum().backward()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("cols", [100, 20000])
def test_gradients_are_the_same_every_time(norm, cols, device, small_gpu):
    args = tuple(t.requires_grad_() for t in inputs(norm, randn((9, cols), torch.bfloat16, device)))
    first, second = (torch.autograd.grad(run(norm, args)[0].float().square().sum(), args) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


# ---- saved statistics ----------------------------------------------------------------------------------------------


@pytest.mark.one_in(5)
@pytest.mark.parametrize("shape", [(37, 9), (2, 3, 576), (2, 20000)], ids=str)
def test_statistics_are_returned_and_read_by_the_backward_pass(norm, shape, dtype, device, small_gpu):
    if "layer" not in norm:
        pytest.skip("RMSNorm has no mean")
    args = inputs(norm, randn(shape, dtype, device) + 3)
    leaves = tuple(t.clone().requires_grad_() for t in args)
    with course_kernels.use_backend("triton"):
        y, *new_residual, mean, rstd = getattr(course_kernels, norm)(*leaves, return_statistics=True)
    stream = normalised(norm, args).double()
    assert mean.shape == rstd.shape == shape[:-1] and mean.dtype == rstd.dtype == torch.float32
    assert not mean.requires_grad and not rstd.requires_grad
    assert_close(mean, stream.mean(-1), 1e-6)
    assert_close(rstd, torch.rsqrt(stream.var(-1, correction=0) + 1e-5), 1e-5)

    again, _ = run(norm, plain := tuple(t.clone().requires_grad_() for t in args))
    assert torch.equal(y, again)
    arriving = randn(shape, dtype, device, seed=2)
    gradients, wanted = (torch.autograd.grad(out, leaf, arriving) for out, leaf in ((y, leaves), (again, plain)))
    for gradient, want in zip(gradients, wanted, strict=True):
        assert_close(gradient, want, GRADIENT_TOLERANCE[dtype])


@pytest.mark.parametrize("max_row", [8192, 64], ids=["held", "walked"])
def test_the_backward_pass_believes_the_statistics(norm, max_row, device):
    """Halved rstd and a shifted mean: a backward pass that computes them again does not see it."""
    if norm != "layer_norm":
        pytest.skip("RMSNorm has no mean")
    x, weight, bias = inputs(norm, randn((3, 100), torch.float32, device))
    dy = randn(x.shape, x.dtype, device, seed=2)
    with launch.sizes_as(max_row=max_row):
        _, mean, rstd = layer_norm.layer_norm_forward(x, None, weight, bias, 1e-5, True)
        results = layer_norm.layer_norm_backward(dy, None, x, weight, bias, 1e-5, mean + 1, rstd / 2)
    x_hat, g = (x - mean[:, None] - 1) * rstd[:, None] / 2, dy * weight
    dx = rstd[:, None] / 2 * (g - g.mean(-1, keepdim=True) - x_hat * (g * x_hat).mean(-1, keepdim=True))
    for result, want in zip(results, (dx, (dy * x_hat).sum(0), dy.sum(0)), strict=True):
        assert_close(result, want, GRADIENT_TOLERANCE[x.dtype])


def test_statistics_of_the_reference_and_of_nothing(norm, device):
    if "layer" not in norm:
        pytest.skip("RMSNorm has no mean")
    for shape in ((2, 3, 6), (0, 6)):
        args = inputs(norm, randn(shape, torch.float16, device))
        with course_kernels.use_backend("torch"):
            *_, mean, rstd = getattr(course_kernels, norm)(*args, return_statistics=True)
        stream = normalised(norm, args).double()
        _, want_mean, want_rstd = torch.native_layer_norm(stream, (6,), None, None, 1e-5)
        assert mean.dtype == rstd.dtype == torch.float32 and mean.shape == rstd.shape == shape[:-1]
        assert_close(mean, want_mean.view(mean.shape), 1e-6)
        assert_close(rstd, want_rstd.view(mean.shape), 1e-6)


few_examples = settings(
    max_examples=5, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# ---- properties ----------------------------------------------------------------------------------------------------


@few_examples
@given(st.integers(1, 9), st.integers(1, 700), st.sampled_from(DTYPES), st.integers(0, 2**31))
def test_any_shape_agrees_with_the_reference(norm, device, rows, cols, dtype, seed):
    args = inputs(norm, randn((rows, cols), dtype, device, seed))
    check_forward(norm, args)
    check_backward(norm, args)


@few_examples
@given(st.integers(2, 300), st.integers(-8, 8), st.floats(-100, 100))
def test_what_a_norm_does_not_see(norm, device, cols, exponent, shift):
    """Neither norm sees the scale of a row, and LayerNorm does not see a shift either."""
    x, *rest = inputs(norm, randn((2, cols), torch.float32, device))
    if "add" in norm:
        rest[0] = torch.zeros_like(x)
    moved = (x + (shift if "layer" in norm else 0.0)) * 2.0**exponent
    y, _ = run(norm, (x, *rest), eps=0.0)
    y_moved, _ = run(norm, (moved, *rest), eps=0.0)
    lost = 1e-6 * (1 + abs(shift)) / x.std(dim=-1, keepdim=True)  # the digits of x that the shift pushed out
    assert ((y - y_moved).abs() <= lost * (3 + y.abs())).all()


@few_examples
@given(st.integers(1, 300), st.sampled_from(DTYPES))
def test_the_residual_addition_commutes(norm, device, cols, dtype):
    if "add" not in norm:
        pytest.skip("no residual")
    x, residual, *rest = inputs(norm, randn((2, cols), dtype, device))
    for one, other in zip(run(norm, (x, residual, *rest)), run(norm, (residual, x, *rest))):
        assert torch.equal(one, other)


# ---- refusals, each before any launch ------------------------------------------------------------------------------


def with_argument(args, index, value):
    return (*args[:index], value, *args[index + 1 :])


REFUSALS = {
    "x is float64": (TypeError, "x must be float32", lambda a: with_argument(a, 0, a[0].double())),
    "x is a list": (TypeError, "x must be a torch.Tensor, got list", lambda a: with_argument(a, 0, [1.0])),
    "x is int": (TypeError, "x must be float32", lambda a: with_argument(a, 0, a[0].int())),
    "x is a scalar": (ValueError, "at least one dimension", lambda a: tuple(t.new_zeros(()) for t in a)),
    "last argument is float64": (TypeError, "must be float32", lambda a: (*a[:-1], a[-1].double())),
    "last argument is too short": (ValueError, r"must have shape \(6,\)", lambda a: (*a[:-1], a[-1][:5])),
    "last argument is a matrix": (ValueError, r"must have shape \(6,\)", lambda a: (*a[:-1], a[-1].expand(4, 6))),
    "last argument is strided": (ValueError, "must be contiguous", lambda a: (*a[:-1], a[-1].repeat(2)[::2])),
    "last argument is elsewhere": (ValueError, "meta", lambda a: (*a[:-1], a[-1].to("meta"))),
    "x is transposed": (ValueError, "stride 1", lambda a: with_argument(a, 0, a[0].t().contiguous().t())),
    "rows at two strides": (
        ValueError,
        "one stride from row to row",
        lambda a: (*(t.new_zeros(2, 3, 6)[:, :2] if t.ndim == 2 else t for t in a),),
    ),
}
FUSED_REFUSALS = {
    "residual of another shape": (ValueError, "one shape", lambda a: with_argument(a, 1, a[1][:2])),
    "residual of another dtype": (TypeError, "one dtype", lambda a: with_argument(a, 1, a[1].half())),
}


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", [*REFUSALS, *FUSED_REFUSALS])
def test_bad_arguments_are_named(norm, case, backend, device, no_launch):
    if case in FUSED_REFUSALS and "add" not in norm:
        pytest.skip("no residual")
    error, message, spoil = (REFUSALS | FUSED_REFUSALS)[case]
    args = spoil(inputs(norm, randn((4, 6), torch.float32, device)))
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        getattr(course_kernels, norm)(*args)


def test_default_eps(norm, device):
    args = inputs(norm, 1e-3 * randn((2, 6), torch.float32, device))
    eps = DEFAULT_EPS[norm.removeprefix("add_")]
    assert torch.equal(run(norm, args)[0], run(norm, args, eps=eps)[0])
