"""Activations, alone and gated: values, gradients, saturated inputs, strides, `out=`, refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES, GRADIENT_TOLERANCE, TOLERANCE, assert_close, far_apart

import course_kernels
from course_kernels import reference
from course_kernels.activations import KINDS

INF, NAN = float("inf"), float("nan")
FUNCTIONS = ["activation", "act_and_mul"]
SHAPES = [  # of the result
    (1, 1),
    (5, 1),
    (4, 64),
    (128, 256),
    (2, 16, 128),
    (1, 3, 7, 32),
    (3, 1536),  # SmolLM2
    (1, 14336),  # Llama-3-8B
]

of_both = pytest.mark.parametrize("function", FUNCTIONS)
of_each_kind = pytest.mark.parametrize("kind", KINDS)
few_examples = settings(
    max_examples=6, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def randn(shape, dtype, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def input_of(function, shape, dtype, device, seed=0):
    """An x for which the result has this shape."""
    gated = (*shape[:-1], 2 * shape[-1])
    return 3 * randn(shape if function == "activation" else gated, dtype, device, seed)


def run(function, x, kind, **kwargs):
    with course_kernels.use_backend("triton"):
        return getattr(course_kernels, function)(x, kind, **kwargs)


def check_forward(function, x, kind, *, tolerance=None):
    before = x.clone()
    y = run(function, x, kind)
    want = getattr(reference, function)(x.double(), kind)
    assert y.shape == want.shape and y.dtype == x.dtype
    assert_close(y, want, tolerance or TOLERANCE[x.dtype])
    assert torch.equal(x.nan_to_num(), before.nan_to_num()), "x was modified"


def check_backward(function, x, kind):
    single, double = x.detach().requires_grad_(), x.detach().double().requires_grad_()
    y = run(function, single, kind)
    arriving = randn(y.shape, y.dtype, y.device, seed=2)
    (gradient,) = torch.autograd.grad(y, single, arriving)
    (want,) = torch.autograd.grad(getattr(reference, function)(double, kind), double, arriving.double())
    assert gradient.dtype == x.dtype
    assert_close(gradient, want, GRADIENT_TOLERANCE[x.dtype])


# ---- values and gradients ------------------------------------------------------------------------------------------


@of_both
@of_each_kind
def test_values_and_gradients(function, kind, dtype, device):
    x = input_of(function, (31, 500), dtype, device)
    check_forward(function, x, kind)
    check_backward(function, x, kind)


@of_both
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_of_other_shapes(function, shape, dtype, device):
    x = input_of(function, shape, dtype, device)
    check_forward(function, x, "silu")
    check_backward(function, x, "silu")


@pytest.mark.slow
@of_both
@pytest.mark.parametrize(("shape", "kind"), [((1024, 768), "gelu_tanh"), ((128, 11008), "silu")], ids=str)
def test_values_and_gradients_of_many_tiles(function, kind, shape, device):
    x = input_of(function, shape, torch.bfloat16, device)
    check_forward(function, x, kind)
    check_backward(function, x, kind)


@of_both
@few_examples
@given(st.sampled_from(KINDS), st.integers(1, 40), st.integers(1, 700), st.sampled_from(DTYPES), st.integers(0, 2**31))
def test_any_shape_agrees_with_the_reference(function, device, kind, rows, cols, dtype, seed):
    x = input_of(function, (rows, cols), dtype, device, seed)
    check_forward(function, x, kind)
    check_backward(function, x, kind)


@of_each_kind
def test_gated_is_activation_times_factor(kind, device):
    x = input_of("act_and_mul", (7, 90), torch.float32, device)
    gate, factor = x[:, :90], x[:, 90:]
    assert_close(run("act_and_mul", x, kind), run("activation", gate, kind) * factor, 1e-6)


@few_examples
@given(st.sampled_from(["silu", "gelu", "gelu_tanh", "relu"]), st.floats(-50, 50, width=32))
def test_f_of_x_minus_f_of_minus_x_is_x(device, kind, value):
    """All four are x times a share, and the shares of x and -x add up to 1."""
    x = torch.tensor([value, -value], device=device)
    y = run("activation", x, kind)
    assert abs(y[0] - y[1] - value) <= 1e-5 * (1 + abs(value))


@of_both
@pytest.mark.parametrize("shape", [(0, 6), (2, 0, 6), (3, 0)], ids=str)
def test_empty_tensors_give_empty_tensors(function, shape, device):
    x = input_of(function, shape, torch.float32, device).requires_grad_()
    y = run(function, x, "silu")
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == x.shape


def test_the_two_short_names(dtype, device):
    x = input_of("act_and_mul", (5, 30), dtype, device)
    with course_kernels.use_backend("triton"):
        assert torch.equal(course_kernels.silu_and_mul(x), run("act_and_mul", x, "silu"))
        assert torch.equal(course_kernels.gelu_tanh_and_mul(x), run("act_and_mul", x, "gelu_tanh"))


# ---- saturated inputs ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # numpy, as the interpreter meets exp(100)
@of_both
@of_each_kind
def test_saturated_inputs(function, kind, dtype, device):
    """(exp(2u) - 1) / (exp(2u) + 1) is NaN from x = 12 on; a sigmoid written as exp(x) / (1 + exp(x)) from x = 89."""
    values = torch.tensor([-6e4, -1e4, -100, -89, -45, -12, -1, -0.0, 0, 1, 12, 45, 89, 100, 1e4, 6e4])
    x = values.to(device, dtype).repeat(2)
    if function == "act_and_mul":
        x[16:] = 0.5  # every gate with a factor that cannot overflow float16
    check_forward(function, x, kind)
    check_backward(function, x, kind)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, as the interpreter meets inf * 0
@of_each_kind
def test_infinities_and_nan_as_in_pytorch(kind, dtype, device):
    x = torch.tensor([INF, -INF, NAN, 1.0], device=device, dtype=dtype)
    check_forward("activation", x, kind)
    check_forward("act_and_mul", torch.cat([x, torch.ones_like(x)]), kind)
    check_forward("act_and_mul", torch.cat([torch.ones_like(x), x]), kind)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # as above
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_far_from_zero_are_1_and_0(kind, device):
    x = torch.tensor([[1e19, 1e20, 3e38, -1e19, -1e20, -3e38]], device=device, requires_grad=True)
    course_kernels.activation(x, kind).sum().backward()
    assert_close(x.grad, torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]], device=device), 1e-6)


def test_the_gate_is_not_rounded_before_the_product(device):
    """silu rounded to bfloat16 before the product, as in some libraries, changes the last digit of many elements."""
    x = input_of("act_and_mul", (4, 500), torch.bfloat16, device)
    want = reference.act_and_mul(x.double(), "silu").to(torch.bfloat16)
    assert (run("act_and_mul", x, "silu") != want).float().mean() < 0.01


def test_the_two_gelus_differ(device):
    x = torch.linspace(-4, 4, 100, device=device)
    difference = (run("activation", x, "gelu") - run("activation", x, "gelu_tanh")).abs().max()
    assert 1e-4 < difference < 1e-3


def test_relu_has_no_gradient_at_zero(device):
    x = torch.tensor([-1.0, -0.0, 0.0, 1.0], device=device, requires_grad=True)
    run("activation", x, "relu").sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0]


# ---- strides and out= ----------------------------------------------------------------------------------------------


@of_both
@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, 8:108], lambda x: x[::2, :100], lambda x: x[:1, :100].expand(5, 100), lambda x: x[:, 7:9]],
    ids=["columns of a wider matrix", "every other row", "one row expanded", "two columns"],
)
def test_rows_at_a_stride_are_read_in_place(function, view, device):
    x = view(randn((6, 120), torch.float32, device))
    check_forward(function, x, "silu")
    check_backward(function, x, "silu")


@of_both
def test_rows_beyond_two_to_the_31_elements(function, device):
    x = far_apart(randn((3, 16), torch.float16, device), 0)
    check_forward(function, x, "gelu")
    check_backward(function, x, "gelu")


def test_out_beyond_two_to_the_31_elements(device):
    x = randn((3, 16), torch.float16, device)
    out = far_apart(torch.zeros(3, 8, dtype=torch.float16, device=device), 0)
    with course_kernels.use_backend("triton"):
        assert torch.equal(course_kernels.act_and_mul(x, "gelu", out=out), course_kernels.act_and_mul(x, "gelu"))


@of_both
def test_gradient_that_arrives_with_stride_0(function, device):
    x = input_of(function, (3, 10), torch.float32, device).requires_grad_()
    double = x.detach().double().requires_grad_()
    run(function, x, "silu").sum().backward()
    getattr(reference, function)(double, "silu").sum().backward()
    assert_close(x.grad, double.grad, 1e-5)


@of_both
def test_second_derivatives_are_refused(function, device):
    x = input_of(function, (2, 4), torch.float32, device).requires_grad_()
    (gradient,) = torch.autograd.grad(run(function, x, "silu").square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        gradient.sum().backward()


@pytest.mark.parametrize("backend", ["triton", "torch"])
@pytest.mark.parametrize("shape", [(5, 60), (2, 3, 60), (0, 60)], ids=str)
def test_out_is_written_and_returned(shape, backend, dtype, device):
    x = input_of("act_and_mul", shape, dtype, device)
    out = torch.full((*shape[:-1], 80), 7.0, device=device, dtype=dtype)
    with course_kernels.use_backend(backend):
        y = course_kernels.act_and_mul(x, "silu", out=out[..., 10:70])
    assert y.data_ptr() == out[..., 10:70].data_ptr()
    assert_close(y, reference.act_and_mul(x, "silu"), TOLERANCE[dtype])
    assert (out[..., :10] == 7).all() and (out[..., 70:] == 7).all(), "written beside out"


def test_out_may_be_the_gate(device):
    x = input_of("act_and_mul", (9, 500), torch.float32, device)
    want, factor = reference.act_and_mul(x, "silu"), x[:, 500:].clone()
    assert_close(run("act_and_mul", x, "silu", out=x[:, :500]), want, 1e-5)
    assert torch.equal(x[:, 500:], factor)


# ---- refusals, each before any launch ------------------------------------------------------------------------------

REFUSALS = {
    "float64": (TypeError, "x must be float32", lambda x: x.double()),
    "int": (TypeError, "x must be float32", lambda x: x.int()),
    "list": (TypeError, "x must be a torch.Tensor, got list", lambda x: [1.0]),
    "scalar": (ValueError, "at least one dimension", lambda x: x.new_zeros(())),
    "transposed": (ValueError, "stride 1", lambda x: x.t()),
    "two strides": (ValueError, "one stride from row to row", lambda x: x.new_zeros(2, 3, 6)[:, :2]),
}


@of_both
@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", REFUSALS)
def test_bad_arguments_are_named(function, case, backend, device, no_launch):
    error, message, spoil = REFUSALS[case]
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        getattr(course_kernels, function)(spoil(randn((4, 6), torch.float32, device)), "silu")


@of_both
@pytest.mark.parametrize("kind", ["swish", "", None, "SILU"])
@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_an_unknown_kind_is_not_the_identity(function, kind, backend, device, no_launch):
    x = randn((4, 6), torch.float32, device)
    with course_kernels.use_backend(backend), pytest.raises(ValueError, match="silu, gelu, gelu_tanh, relu; got"):
        getattr(course_kernels, function)(x, kind)


@pytest.mark.parametrize("width", [1, 7])
def test_an_odd_width_has_no_halves(width, device, no_launch):
    with pytest.raises(ValueError, match=rf"even last dimension.*\(4, {width}\)"):
        course_kernels.act_and_mul(randn((4, width), torch.float32, device), "silu")


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "out", "requires_grad"),
    [
        (ValueError, r"out must have shape \(4, 3\), got \(4, 6\)", lambda x: torch.empty_like(x), False),
        (TypeError, "out must have the dtype of x, torch.float32, got torch.float16", lambda x: x[:, :3].half(), False),
        (TypeError, "out must be float32", lambda x: x[:, :3].int(), False),
        (ValueError, "out is on meta", lambda x: x[:, :3].to("meta"), False),
        (ValueError, "stride 1", lambda x: x[:3].t().repeat(1, 2)[:4, ::2], False),
        (ValueError, "share elements", lambda x: x[:1, :3].expand(4, 3), False),
        (ValueError, "x requires grad", lambda x: torch.empty(4, 3, device=x.device), True),
    ],
    ids=["shape", "dtype", "int", "device", "strides", "overlap", "grad"],
)
def test_an_out_that_does_not_fit(error, message, out, requires_grad, backend, device, no_launch):
    x = randn((4, 6), torch.float32, device)
    out = out(x)
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.act_and_mul(x.requires_grad_(requires_grad), "silu", out=out)
