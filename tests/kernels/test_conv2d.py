"""Convolution: values, strides, padding and dilation, layouts, edges of the image, refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES, far_apart

import course_kernels
from course_kernels import launch, reference

ONE_ROUNDING = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 8e-3}
few_examples = settings(
    max_examples=10, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
CASES = {  # shape of x, of weight, then stride, padding, dilation
    "1x1": ((2, 5, 7, 9), (6, 5, 1, 1), 1, 0, 1),
    "1x1 of one pixel": ((1, 1, 1, 1), (1, 1, 1, 1), 1, 0, 1),
    "3x3 of one pixel": ((2, 3, 1, 1), (4, 3, 3, 3), 1, 1, 1),
    "3x3": ((2, 5, 9, 7), (6, 5, 3, 3), 1, 0, 1),
    "3x3 padded": ((1, 20, 9, 11), (33, 20, 3, 3), 1, 1, 1),
    "5x5 stride 2": ((1, 3, 13, 15), (17, 3, 5, 5), 2, 2, 1),
    "dilated": ((1, 4, 13, 11), (8, 4, 3, 3), 1, 2, 2),
    "height and width differ": ((2, 3, 12, 17), (5, 3, 2, 4), (3, 2), (1, 3), (2, 1)),
    "more channels than a block": ((1, 70, 5, 6), (9, 70, 3, 3), 1, 1, 1),
    "first layer": ((1, 3, 16, 16), (8, 3, 7, 7), 2, 3, 1),
    "padding wider than the image": ((1, 2, 2, 3), (3, 2, 3, 3), 1, 5, 1),
}

RESNET = {  # layers of a ResNet-50, their images and most of their channels cut down: whole blocks, several, and a rest
    "stem": ((1, 3, 30, 30), (64, 3, 7, 7), 2, 3),
    "3x3": ((1, 64, 14, 14), (64, 64, 3, 3), 1, 1),
    "3x3 stride 2": ((2, 128, 9, 9), (64, 128, 3, 3), 2, 1),
    "1x1": ((1, 256, 14, 14), (64, 256, 1, 1), 1, 0),
    "1x1 stride 2": ((2, 256, 14, 14), (80, 256, 1, 1), 2, 0),
}
WHOLE_RESNET = {
    "stem": ((1, 3, 112, 112), (64, 3, 7, 7), 2, 3),  # a quarter of its image
    "3x3": ((1, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    "3x3 stride 2": ((1, 128, 56, 56), (128, 128, 3, 3), 2, 1),
    "1x1": ((1, 256, 56, 56), (64, 256, 1, 1), 1, 0),
    "1x1 stride 2": ((1, 256, 56, 56), (512, 256, 1, 1), 2, 0),
    "last 3x3": ((2, 512, 7, 7), (512, 512, 3, 3), 1, 1),
}


def randn(shape, dtype, device, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def operands(x_shape, weight_shape, dtype, device):
    shapes = x_shape, weight_shape, weight_shape[:1]
    return tuple(randn(shape, dtype, device, seed) for seed, shape in enumerate(shapes))


def conv2d(*args, **kwargs):
    with course_kernels.use_backend("triton"):
        return course_kernels.conv2d(*args, **kwargs)


def check(x, weight, bias=None, stride=1, padding=0, dilation=1):
    before = x.clone(), weight.clone()
    y = conv2d(x, weight, bias, stride, padding, dilation)
    double = None if bias is None else bias.double()
    want = reference.conv2d(x.double(), weight.double(), double, stride, padding, dilation)
    assert y.dtype == x.dtype and y.shape == want.shape
    # one rounding, and the float32 additions: less than a TF32 or a half-precision sum would need
    unit = 8e-6 if x.is_cuda else 2e-6  # a GPU's matrix units cut off where they add: see test_matmul.py
    atol = unit * weight[0].numel() ** 0.5
    torch.testing.assert_close(y.double(), want, rtol=ONE_ROUNDING[y.dtype], atol=atol)
    assert torch.equal(x, before[0]) and torch.equal(weight, before[1]), "an operand was modified"
    return y


# ---- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_values(case, dtype, device):
    x_shape, weight_shape, *parameters = CASES[case]
    x, weight, bias = operands(x_shape, weight_shape, dtype, device)
    check(x, weight, bias, *parameters)


def check_layer(shapes, dtype, device):
    x_shape, weight_shape, *parameters = shapes
    x, weight, _ = operands(x_shape, weight_shape, dtype, device)
    check(*(t.contiguous(memory_format=torch.channels_last) for t in (x, weight)), None, *parameters)


@pytest.mark.parametrize("layer", RESNET)
def test_layers_of_resnet(layer, device):
    check_layer(RESNET[layer], torch.bfloat16, device)


@pytest.mark.slow
@pytest.mark.parametrize("layer", WHOLE_RESNET)
def test_whole_layers_of_resnet(layer, dtype, device):
    check_layer(WHOLE_RESNET[layer], dtype, device)


@few_examples
@given(st.data(), st.integers(1, 9), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2))
def test_any_shape(device, data, height, width, r, s, dilation):
    stride, padding = data.draw(st.integers(1, 3), "stride"), data.draw(st.integers(dilation, 3), "padding")
    channels, filters = data.draw(st.integers(1, 18), "channels"), data.draw(st.integers(1, 18), "filters")
    dtype = data.draw(st.sampled_from(DTYPES), "dtype")
    x, weight, bias = operands((2, channels, height, width), (filters, channels, r, s), dtype, device)
    check(x, weight, bias, stride, padding, dilation)


def test_one_tap_of_one_moves_the_image(device):
    """A filter that is 1 in one corner and 0 elsewhere: nothing is flipped, and zeros come in from outside."""
    x = randn((1, 1, 4, 5), torch.float32, device)
    weight = torch.zeros((1, 1, 3, 3), device=device)
    weight[0, 0, 0, 2] = 1  # the pixel above, to the right
    y = conv2d(x, weight, padding=1)
    assert torch.equal(y[0, 0, 1:, :-1], x[0, 0, :-1, 1:])
    assert not y[0, 0, 0].any() and not y[0, 0, :, -1].any()


def test_whole_numbers_are_exact_and_a_1x1_filter_is_a_matrix_multiplication(device):
    x, weight, _ = (t.round() for t in operands((2, 19, 3, 5), (7, 19, 1, 1), torch.float32, device))
    y = conv2d(x, weight)
    assert torch.equal(y.flatten(2), weight[:, :, 0, 0] @ x.flatten(2))


def test_float32_keeps_all_its_digits(device):
    """1 + 2**-20 is 1 in TF32."""
    x = torch.full((1, 1, 4, 4), 1 + 2**-20, device=device)
    assert torch.equal(conv2d(x, torch.ones((1, 1, 1, 1), device=device)), x)


def test_half_precision_sums_are_kept_in_float32(device):
    """4096 ones: in float16 the sum would stick at 2048."""
    x, weight = (torch.ones(shape, device=device).half() for shape in ((1, 4096, 1, 1), (1, 4096, 1, 1)))
    assert conv2d(x, weight).item() == 4096


def test_many_tiles(device):
    """11 rows of tiles in two bands, 33 programs on 8 dies."""
    x, weight, bias = operands((2, 3, 8, 11), (40, 3, 3, 3), torch.float32, device)
    with launch.sizes_as(dot_tiles=((16, 16, 64),)):
        check(x, weight, bias, padding=1)


def test_one_image_at_two_strides(device):
    x, weight, bias = operands((1, 2, 6, 6), (3, 2, 3, 3), torch.float32, device)
    for stride in (1, 2):
        check(x, weight, bias, stride)


def test_no_images(device):
    x, weight, bias = operands((0, 3, 8, 8), (4, 3, 3, 3), torch.float16, device)
    y = conv2d(x, weight, bias, stride=2)
    assert y.shape == (0, 4, 3, 3) and y.dtype == torch.float16


# ---- strides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_last", [False, True])
@pytest.mark.parametrize("x_last", [False, True])
def test_layouts(x_last, weight_last, dtype, device):
    x, weight, bias = operands((2, 20, 6, 7), (18, 20, 3, 3), dtype, device)
    x = x.contiguous(memory_format=torch.channels_last) if x_last else x
    weight = weight.contiguous(memory_format=torch.channels_last) if weight_last else weight
    y = check(x, weight, bias, padding=1)
    assert y.is_contiguous(memory_format=torch.channels_last if x_last else torch.contiguous_format)


def test_any_strides(device):
    x, weight, bias = operands((2, 10, 6, 7), (8, 10, 3, 2), torch.float32, device)
    check(x.transpose(2, 3), weight, bias)
    check(x[:, ::2], weight[::2, 1::2])
    check(x[:1].expand(3, -1, -1, -1), weight.flip(0).transpose(2, 3), bias)


@pytest.mark.parametrize("case", CASES)
def test_nothing_outside_the_view_is_used_and_no_bias_is_none(case, device):
    """Around image and filters lies NaN: a load without its mask reads it, and 0 * NaN is NaN."""

    def framed(t):
        frame = t.new_full([size + 6 for size in t.shape], float("nan"))
        return frame[tuple(slice(3, 3 + size) for size in t.shape)].copy_(t)

    x_shape, weight_shape, *parameters = CASES[case]
    x, weight, _ = operands(x_shape, weight_shape, torch.float32, device)
    check(framed(x), framed(weight), None, *parameters)


@pytest.mark.parametrize("dim", range(4))
@pytest.mark.parametrize("operand", ["x", "weight"])
def test_operands_beyond_two_to_the_31_elements(operand, dim, device):
    x, weight = (randn((3, 3, 3, 3), torch.float16, device, seed) for seed in (0, 1))
    if operand == "x":
        far = far_apart(x, dim)
        check(far, weight[..., :2, :2])
        check(far, weight[..., :1, :1])
    else:
        check(x, far_apart(weight, dim), None, 1, 1)


def test_blocks_of_channels_beyond_two_to_the_31_elements(device):
    x, weight = (randn(shape, torch.float16, device) for shape in ((1, 129, 1, 2), (2, 129, 1, 1)))
    far = torch.empty(128 * 2**24 + 2, dtype=x.dtype, device=device).as_strided(x.shape, (2**24, 2**24, 2, 1))
    check(far.copy_(x), weight)


# ---- refusals, each before any launch ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "spoil", "kwargs"),
    [
        (TypeError, "x must be float32", lambda x, w, b: (x.double(), w, b), {}),
        (TypeError, "weight must be a torch.Tensor", lambda x, w, b: (x, [1.0], b), {}),
        (TypeError, "weight must have the dtype of x", lambda x, w, b: (x, w.half(), b), {}),
        (TypeError, "bias must have the dtype of x", lambda x, w, b: (x, w, b.half()), {}),
        (TypeError, "stride must be an int or a pair", lambda x, w, b: (x, w, b), {"stride": 1.5}),
        (TypeError, "padding must be an int or a pair", lambda x, w, b: (x, w, b), {"padding": "same"}),
        (TypeError, "stride must be an int or a pair", lambda x, w, b: (x, w, b), {"stride": True}),
        (TypeError, "dilation must be an int or a pair", lambda x, w, b: (x, w, b), {"dilation": (1, True)}),
        (ValueError, "x must have 4 dimensions", lambda x, w, b: (x[0], w, b), {}),
        (ValueError, "weight must have 4 dimensions", lambda x, w, b: (x, w[0], b), {}),
        (ValueError, "x has 3 channels but weight has 2", lambda x, w, b: (x, w[:, :2], b), {}),
        (ValueError, r"bias must have shape \(4,\), got \(3,\)", lambda x, w, b: (x, w, b[:3]), {}),
        (ValueError, "bias must be contiguous", lambda x, w, b: (x, w, b.repeat(2)[::2]), {}),
        (ValueError, "only x's first size may be 0", lambda x, w, b: (x[:, :0], w[:, :0], b), {}),
        (ValueError, r"taps at dilation \(3, 3\) does not fit", lambda x, w, b: (x, w, b), {"dilation": 3}),
        (ValueError, "stride must be at least 1, got 0", lambda x, w, b: (x, w, b), {"stride": 0}),
        (ValueError, "padding must be at least 0, got", lambda x, w, b: (x, w, b), {"padding": (0, -1)}),
        (ValueError, "dilation must be at least 1", lambda x, w, b: (x, w, b), {"dilation": 0}),
        (ValueError, "x requires grad", lambda x, w, b: (x.requires_grad_(), w, b), {}),
        (ValueError, "bias requires grad", lambda x, w, b: (x, w, b.requires_grad_()), {}),
    ],
    ids=[f"case {i}" for i in range(20)],
)
def test_bad_arguments_are_named(error, message, spoil, kwargs, backend, device, no_launch):
    args = spoil(*operands((2, 3, 5, 6), (4, 3, 3, 3), torch.float32, device))
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.conv2d(*args, **kwargs)


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("shape", [(2**31, 1, 1, 1), (2, 1, 2**15, 2**15), (1, 1, 2**16, 2**15)], ids=str)
def test_more_pixels_than_an_int32_counts_are_refused(shape, backend, device, no_launch):
    """A batch of one pixel, expanded: it takes no memory."""
    x, weight = torch.zeros((1, 1, 1, 1), device=device), torch.zeros((1, 1, 1, 1), device=device)
    with course_kernels.use_backend(backend), pytest.raises(ValueError, match="2147483648 pixels.*split the batch"):
        course_kernels.conv2d(x.expand(shape), weight)
