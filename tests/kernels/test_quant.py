"""fp8 quantisation per token, per group and behind a gated activation: both flavours, zeros, outliers, refusals."""

from types import SimpleNamespace

import pytest
import torch
import triton
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import far_apart

import course_kernels
from course_kernels import fp8_dtype, launch, quant, reference

INF, NAN = float("inf"), float("nan")
FN, FNUZ = torch.float8_e4m3fn, torch.float8_e4m3fnuz
SUBNORMAL_STEP = {FN: 2.0**-9, FNUZ: 2.0**-10}
TOKEN_SHAPES = [(2, 16), (1, 32), (32, 32), (9, 96), (3, 400), (2, 4096), (5, 75), (7, 13), (2, 3, 1)]
GROUP_SHAPES = [(1, 256), (31, 512), (8, 640), (3, 576), (2, 3, 130), (5, 7)]

few_examples = settings(
    max_examples=6, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=["held", "walked"])
def held_or_walked(request):
    """Rows held in registers, and walked in a few blocks."""
    with launch.sizes_as(max_row=8192 if request.param == "held" else 64):
        yield


def randn(shape, dtype, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def run(function, *args, **kwargs):
    with course_kernels.use_backend("triton"):
        return getattr(course_kernels, function)(*args, **kwargs)


def per_token(x, dtype):
    return run("quant_fp8_per_token", x, dtype)


def per_group(x, group_size, dtype):
    return run("quant_fp8_per_group", x, group_size, dtype)


def elementwise(scale, group_size, cols):
    """A scale for each element."""
    return scale.double().repeat_interleave(group_size, dim=-1)[..., :cols]


def check(result, wanted, x, group_size):
    """q and scale against the reference's, and q * scale against x, within half a step of the fp8 type."""
    (q, scale), (want_q, want_scale) = result, wanted
    assert q.shape == x.shape and q.dtype == want_q.dtype and q.is_contiguous()
    assert scale.shape == want_scale.shape and scale.dtype == torch.float32
    torch.testing.assert_close(scale, want_scale, rtol=1e-6, atol=0)

    step = elementwise(scale, group_size, x.shape[-1])
    error = (q.double() * step - x.double()).abs()
    assert (error <= x.double().abs() / 16 * 1.001 + step * SUBNORMAL_STEP[q.dtype] * 0.501).all()
    # x * (M / amax) and x / (amax / M) may fall on different sides of a tie
    neighbours = (q.view(torch.uint8).int() - want_q.view(torch.uint8).int()).abs()
    assert neighbours.max() <= 1 and (neighbours != 0).float().mean() < 0.01


def check_per_token(x, dtype):
    before = x.clone()
    q, scale = per_token(x, dtype)
    want_q, want_scale = reference.quant_fp8_per_token(x, dtype)
    assert scale.shape == x.shape[:-1]
    check((q, scale[..., None]), (want_q, want_scale[..., None]), x, x.shape[-1])
    assert torch.equal(x, before), "x was modified"


def check_per_group(x, group_size, dtype):
    check(per_group(x, group_size, dtype), reference.quant_fp8_per_group(x, group_size, dtype), x, group_size)


def check_act_mul(x, kind, group_size, dtype):
    result = run("act_mul_fp8_quant", x, kind, group_size, dtype)
    product = reference.act_and_mul(x.double(), kind)
    (q, scale), (want_q, want_scale) = result, reference.act_mul_fp8_quant(x, kind, group_size, dtype)
    torch.testing.assert_close(scale, want_scale, rtol=1e-5, atol=1e-14)  # f(gate) in float32 is not exact
    check((q, want_scale), (want_q, want_scale), product, group_size)


# ---- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", TOKEN_SHAPES, ids=str)
def test_per_token(shape, dtype, fp8, device):
    check_per_token(randn(shape, dtype, device), fp8)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(256, 13), (192, 96), (400, 400), (32, 4096), (193, 75)], ids=str)
def test_per_token_of_many_rows(shape, dtype, fp8, device):
    check_per_token(randn(shape, dtype, device), fp8)


@pytest.mark.parametrize("cols", [launch.sizes().max_row, launch.sizes().max_row + 1, 20001])
def test_per_token_of_long_rows(cols, dtype, fp8, device):
    check_per_token(randn((2, cols), dtype, device), fp8)


def test_the_last_element_of_a_long_row_may_be_the_largest(fp8, device):
    x = randn((1, launch.sizes().max_row + 1), torch.float32, device)
    x[0, -1] = 100.0
    check_per_token(x, fp8)


@pytest.mark.parametrize("shape", GROUP_SHAPES, ids=str)
def test_per_group(shape, dtype, fp8, device):
    check_per_group(randn(shape, dtype, device), 128, fp8)


@pytest.mark.parametrize(("cols", "group_size"), [(20, 1), (20, 3), (576, 32), (576, 96), (576, 575), (576, 8192)])
def test_groups_of_any_size(cols, group_size, fp8, device):
    check_per_group(randn((2, cols), torch.bfloat16, device), group_size, fp8)


@pytest.mark.parametrize("shape", [(1, 256), (31, 512), (8, 640), (2, 3, 300)], ids=str)
def test_act_mul(shape, fp8, device):
    check_act_mul(randn((*shape[:-1], 2 * shape[-1]), torch.bfloat16, device), "silu", 128, fp8)


@pytest.mark.parametrize("kind", ["gelu", "gelu_tanh", "relu"])
def test_act_mul_of_every_kind(kind, fp8, device):
    check_act_mul(randn((3, 400), torch.float32, device), kind, 128, fp8)


def test_act_mul_in_every_dtype(dtype, fp8, device):
    check_act_mul(randn((3, 2 * 1536), dtype, device), "silu", 128, fp8)  # SmolLM2's intermediate width


@pytest.mark.parametrize("shape", [(37, 90), (23, 576), (9, 2000)], ids=str)
def test_several_rows_in_a_tile(shape, fp8, device, small_gpu):
    x = randn(shape, torch.float32, device)
    check_per_token(x, fp8)
    check_per_group(x, 128, fp8)
    check_act_mul(x, "silu", 32, fp8)


def test_the_product_is_not_rounded_before_it_is_quantised(fp8, device):
    """Rounded to bfloat16 first, the maximum of most groups would be another."""
    x = randn((16, 512), torch.bfloat16, device)
    _, scale = run("act_mul_fp8_quant", x, "silu", 32, fp8)
    _, want = reference.quant_fp8_per_group(reference.act_and_mul(x.double(), "silu"), 32, fp8)
    torch.testing.assert_close(scale, want, rtol=1e-6, atol=0)


@few_examples
@given(st.integers(1, 4), st.integers(1, 500), st.integers(20, 300), st.integers(-20, 20), st.integers(0, 2**31))
def test_any_shape_group_and_size_of_numbers(fp8, device, rows, cols, group_size, exponent, seed):
    x = randn((rows, cols), torch.float32, device, seed) * 2.0**exponent
    check_per_token(x, fp8)
    check_per_group(x, group_size, fp8)


@few_examples
@given(st.integers(1, 300), st.integers(-20, 20))
def test_q_does_not_see_the_size_of_numbers(fp8, device, cols, exponent):
    x = randn((2, cols), torch.float32, device)
    (q, scale), (q_scaled, scaled) = per_token(x, fp8), per_token(x * 2.0**exponent, fp8)
    assert torch.equal(q.view(torch.uint8), q_scaled.view(torch.uint8))
    assert torch.equal(scale * 2.0**exponent, scaled)


def test_one_group_is_one_token(fp8, device):
    x = randn((5, 300), torch.bfloat16, device)
    (q, scale), (q_group, scale_group) = per_token(x, fp8), per_group(x, 300, fp8)
    assert torch.equal(q.view(torch.uint8), q_group.view(torch.uint8)) and torch.equal(scale, scale_group[:, 0])


@pytest.mark.parametrize("shape", [(0, 6), (2, 0, 6), (3, 0)], ids=str)
def test_empty_tensors_give_empty_tensors(shape, fp8, device):
    x = torch.empty(shape, device=device)
    q, scale = per_token(x, fp8)
    assert q.shape == shape and q.dtype == fp8 and scale.shape == shape[:-1] and scale.isfinite().all()
    q, scale = per_group(x, 4, fp8)
    assert q.shape == shape and scale.shape == (*shape[:-1], -(-shape[-1] // 4))
    q, scale = run("act_mul_fp8_quant", x, "silu", 2, fp8)
    assert q.shape == (*shape[:-1], shape[-1] // 2) and scale.shape == (*shape[:-1], -(-shape[-1] // 4))


# ---- adversarial rows ----------------------------------------------------------------------------------------------


def test_a_row_of_zeros_gives_zeros_and_a_finite_scale(dtype, fp8, device, held_or_walked):
    x = randn((3, 300), dtype, device)
    x[1] = 0
    q, scale = per_token(x, fp8)
    assert (q[1].view(torch.uint8) == 0).all() and 0 < scale[1] < 1e-11
    check_per_token(x, fp8)


def test_a_group_of_zeros_gives_zeros_and_a_finite_scale(dtype, fp8, device):
    x = randn((3, 300), dtype, device)
    x[1, 32:64] = 0
    q, scale = per_group(x, 32, fp8)
    assert (q[1, 32:64].view(torch.uint8) == 0).all() and 0 < scale[1, 1] < 1e-11
    gate = torch.cat([x, torch.ones_like(x)], dim=-1)
    q, scale = run("act_mul_fp8_quant", gate, "silu", 32, fp8)
    assert (q[1, 32:64].view(torch.uint8) == 0).all() and 0 < scale[1, 1] < 1e-11


def test_numbers_below_the_floor(fp8, device):
    """amax is never below 1e-10: what is smaller fades to 0 instead of being blown up."""
    x = torch.tensor([[1e-11, -1e-11], [1e-13, 1e-20]], device=device)
    check_per_token(x, fp8)
    _, scale = per_token(x, fp8)
    assert (scale * torch.finfo(fp8).max - 1e-10).abs().max() < 1e-16


def test_the_largest_number_becomes_the_largest_number(dtype, fp8, device, held_or_walked):
    """Never one step above, which would be NaN: for many maxima, because amax * (M / amax) is rarely exactly M."""
    x = randn((40, 100), dtype, device)
    x[:, 50] = torch.linspace(5, 100, 40).to(dtype)
    x[:, 51] = -x[:, 50]
    q, _ = per_token(x, fp8)
    largest = torch.finfo(fp8).max
    assert (q[:, 50].float() == largest).all() and (q[:, 51].float() == -largest).all()


def test_largest_numbers_of_the_dtype(dtype, fp8, device, held_or_walked):
    x = torch.full((2, 100), torch.finfo(dtype).max, device=device, dtype=dtype)
    x[1] = -x[1]
    check_per_token(x, fp8)


def test_one_outlier_spoils_its_group_only(fp8, device):
    x = randn((2, 640), torch.float32, device)
    clean, _ = per_group(x, 128, fp8)
    x[0, 200] = 1e6
    q, scale = per_group(x, 128, fp8)
    others = torch.ones(2, 640, dtype=torch.bool, device=device)
    others[0, 128:256] = False
    assert torch.equal(q.view(torch.uint8)[others], clean.view(torch.uint8)[others])
    assert (q[0, 128:256].float() == 0).sum() == 127
    check_per_group(x, 128, fp8)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy, as the interpreter meets inf * 0
@pytest.mark.parametrize("value", [INF, -INF, NAN, -NAN])
def test_inf_and_nan_show_in_their_row_only(value, fp8, device, held_or_walked, small_gpu):
    x = randn((9, 200), torch.float32, device)
    clean_q, clean_scale = per_token(x, fp8)
    x[4, 130] = value
    q, scale = per_token(x, fp8)
    want_q, want_scale = reference.quant_fp8_per_token(x, fp8)
    assert not scale[4].isfinite() and q[4, 130].float().isnan()
    torch.testing.assert_close(scale, want_scale, rtol=1e-6, atol=0, equal_nan=True)
    torch.testing.assert_close(q[4].float(), want_q[4].float(), equal_nan=True, rtol=0, atol=0)
    others = torch.arange(9, device=device) != 4
    assert torch.equal(q.view(torch.uint8)[others], clean_q.view(torch.uint8)[others])
    assert torch.equal(scale[others], clean_scale[others])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy, as the interpreter meets inf * 0
@pytest.mark.parametrize("value", [INF, NAN])
def test_inf_and_nan_show_in_their_group_only(value, fp8, device):
    x = randn((3, 512), torch.float32, device)
    x[1, 300] = value  # a factor
    _, scale = per_group(x, 128, fp8)
    assert (~scale.isfinite()).nonzero().tolist() == [[1, 2]]
    _, scale = run("act_mul_fp8_quant", x, "silu", 32, fp8)
    assert (~scale.isfinite()).nonzero().tolist() == [[1, 1]]


def test_a_byte_means_half_as_much_in_fnuz():
    byte = torch.tensor([0x38], dtype=torch.uint8)
    assert byte.view(FN).float() == 1.0 and byte.view(FNUZ).float() == 0.5


# ---- strides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, 8:108], lambda x: x[::2, :100], lambda x: x[:1, :100].expand(5, 100), lambda x: x[:, 7:8]],
    ids=["columns of a wider matrix", "every other row", "one row expanded", "one column"],
)
def test_rows_at_a_stride_are_read_in_place(view, fp8, device, held_or_walked):
    x = view(randn((6, 120), torch.float32, device))
    check_per_token(x, fp8)
    check_per_group(x, 32, fp8)
    if x.shape[1] % 2 == 0:
        check_act_mul(x, "silu", 32, fp8)


@pytest.mark.parametrize("max_row", [8192, 8], ids=["held", "walked"])
def test_rows_beyond_two_to_the_31_elements(max_row, fp8, device):
    x = far_apart(randn((3, 16), torch.float16, device), 0)
    check_per_group(x, 4, fp8)
    check_act_mul(x, "silu", 4, fp8)
    with launch.sizes_as(max_row=max_row):
        check_per_token(x, fp8)


# ---- the type of an architecture -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "dtype"),
    [
        *[(arch, FNUZ) for arch in ("gfx940", "gfx941", "gfx942", "gfx942:sramecc+:xnack-")],
        *[(arch, FN) for arch in ("gfx950", "gfx950:xnack-", "gfx1200", "gfx1201", "gfx1250")],
        *[(arch, FN) for arch in ("sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")],
    ],
)
def test_fp8_of_an_architecture(arch, dtype):
    assert fp8_dtype(arch) == dtype


@pytest.mark.parametrize("arch", ["gfx90a", "gfx908", "gfx1030", "gfx1100", "sm_80", "sm_86", "sm_", "x86", ""])
def test_an_architecture_without_fp8(arch):
    with pytest.raises(ValueError, match=f"{arch} has no fp8"):
        fp8_dtype(arch)


def test_fp8_of_this_machine(device):
    if device == "cpu":
        assert fp8_dtype() == FN
    q, _ = run("quant_fp8_per_token", randn((2, 8), torch.float32, device))
    assert q.dtype == fp8_dtype()


def test_fp8_of_the_gpu_that_is_current_now(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(launch, "gpu_of", lambda x: launch.Gpu(x.arch, 100))
    for arch, dtype in (("gfx942", FNUZ), ("gfx950", FN)):
        monkeypatch.setattr(torch, "empty", lambda *size, device, arch=arch: SimpleNamespace(shape=size, arch=arch))
        assert fp8_dtype() == dtype


def test_fp8_of_the_gpu_that_holds_x():
    x = SimpleNamespace(shape=(2, 8), dtype=torch.float32, is_cuda=True)
    for arch, dtype in (("gfx942", FNUZ), ("gfx950", FN)):
        with launch.as_on(launch.Gpu(arch, 100)):
            assert quant.checked_dtype(x, None) == dtype


@pytest.mark.parametrize(("version", "runs"), [("3.7.1", False), ("3.8.0", True), ("4.0.0", True)])
def test_fnuz_runs_interpreted_from_triton_3_8_on_and_simulated(version, runs, monkeypatch):
    monkeypatch.setattr(quant, "uses_triton", lambda x: True)
    monkeypatch.setattr(triton, "__version__", version)
    x = torch.ones(3, 8)
    for simulated, expected in ((None, runs), (launch.Gpu("gfx942", 100), True), (None, runs)):
        monkeypatch.setattr(launch, "simulated_gpu", lambda gpu=simulated: gpu)
        assert quant.runs_kernel(x, FNUZ) == expected
        assert quant.runs_kernel(x, FN)


def test_an_architecture_is_a_string():
    with pytest.raises(TypeError, match=r'arch must be a string, got 942; write fp8_dtype\("gfx942"\)'):
        fp8_dtype(942)


@pytest.mark.parametrize(
    ("arch", "dtype", "message"),
    [
        ("sm_90", FNUZ, "sm_90 computes with torch.float8_e4m3fn, not with torch.float8_e4m3fnuz"),
        ("gfx942", FN, "gfx942 computes with torch.float8_e4m3fnuz, not with torch.float8_e4m3fn;"),
        ("gfx90a", FN, "gfx90a has no fp8"),
        ("gfx1100", None, "gfx1100 has no fp8"),
    ],
)
def test_a_type_that_the_gpu_lacks(arch, dtype, message):
    class OnGpu:
        is_cuda = True

    with launch.as_on(launch.Gpu(arch, 100)), pytest.raises(ValueError, match=message):
        quant.checked_dtype(OnGpu(), dtype)


# ---- refusals, each before any launch ------------------------------------------------------------------------------

FUNCTIONS = {
    "quant_fp8_per_token": lambda x, **kwargs: course_kernels.quant_fp8_per_token(x, **kwargs),
    "quant_fp8_per_group": lambda x, **kwargs: course_kernels.quant_fp8_per_group(x, **kwargs),
    "act_mul_fp8_quant": lambda x, **kwargs: course_kernels.act_mul_fp8_quant(x, kwargs.pop("kind", "silu"), **kwargs),
}
REFUSALS = {
    "float64": (TypeError, "x must be float32", lambda x: x.double(), {}),
    "list": (TypeError, "x must be a torch.Tensor, got list", lambda x: [1.0], {}),
    "scalar": (ValueError, "at least one dimension", lambda x: x.sum(), {}),
    "transposed": (ValueError, "stride 1", lambda x: x.t(), {}),
    "two strides": (ValueError, "one stride from row to row", lambda x: x.new_zeros(2, 3, 6)[:, :2], {}),
    "requires grad": (ValueError, "x requires grad", lambda x: x.requires_grad_(), {}),
    "float16 for fp8": (TypeError, "dtype must be torch.float8_e4m3fn or", lambda x: x, {"dtype": torch.float16}),
    "e5m2": (TypeError, "got torch.float8_e5m2", lambda x: x, {"dtype": torch.float8_e5m2}),
}
GROUP_REFUSALS = {
    "group of 0": (ValueError, "group_size must be 1 to 8192, got 0", lambda x: x, {"group_size": 0}),
    "group too large": (ValueError, "group_size must be 1 to 8192, got 8193", lambda x: x, {"group_size": 8193}),
    "group of 1.5": (TypeError, "group_size must be an int, got float", lambda x: x, {"group_size": 1.5}),
}
GATED_REFUSALS = {
    "odd width": (ValueError, "even last dimension", lambda x: x[:, :5], {}),
    "unknown kind": (ValueError, "silu, gelu, gelu_tanh, relu; got 'swish'", lambda x: x, {"kind": "swish"}),
}
ALL_REFUSALS = [
    *[(function, case) for function in FUNCTIONS for case in REFUSALS.items()],
    *[(function, case) for function in [*FUNCTIONS][1:] for case in GROUP_REFUSALS.items()],
    *[("act_mul_fp8_quant", case) for case in GATED_REFUSALS.items()],
]


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(("function", "case"), ALL_REFUSALS, ids=[f"{f}-{case[0]}" for f, case in ALL_REFUSALS])
def test_bad_arguments_are_named(function, case, backend, device, no_launch):
    error, message, spoil, kwargs = case[1]
    x = spoil(randn((4, 6), torch.float32, device))
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        FUNCTIONS[function](x, **kwargs)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_reference_answers_without_triton(function, device):
    x = randn((4, 600), torch.float32, device)
    with course_kernels.use_backend("torch"):
        q, scale = FUNCTIONS[function](x)
    with course_kernels.use_backend("triton"):
        q_kernel, scale_kernel = FUNCTIONS[function](x)
    assert q.dtype == q_kernel.dtype and q.shape == q_kernel.shape
    torch.testing.assert_close(scale, scale_kernel, rtol=1e-5, atol=0)
