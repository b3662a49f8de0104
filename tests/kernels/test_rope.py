"""RoPE against complex multiplication: both styles, every layout, positions, offsets, partial heads, gradients."""

import pytest
import torch
from kernel_testing import GRADIENT_TOLERANCE, assert_close

from course_kernels import reference, rope, rope_2d, rope_tables, use_backend

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 8e-3}
STYLES = ("neox", "gptj")


def turned(x: torch.Tensor, rows: torch.Tensor, rotary_dim: int, style: str, base: float = 10000.0, start: int = 0):
    """x (..., heads, D), rotary_dim elements from `start` on turned as complex numbers; rows: one for each token."""
    half = rotary_dim // 2
    angle = rows.double().cpu()[..., None] * base ** (-torch.arange(half, dtype=torch.float64) * 2 / rotary_dim)
    y = x.double().cpu().clone()
    part = y[..., start : start + rotary_dim]
    first, second = (part[..., :half], part[..., half:]) if style == "neox" else (part[..., 0::2], part[..., 1::2])
    product = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)[..., None, :]
    out = [product.real, product.imag]
    part = torch.cat(out, -1) if style == "neox" else torch.stack(out, -1).flatten(-2)
    y[..., start : start + rotary_dim] = part
    return y.to(x.device)


def heads(*shape: int, dtype=torch.float32, device="cpu", seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 64), (7, 2, 9, 64), (5, 1, 12, 128), (3, 1, 40, 128), (33, 1, 3, 64)], ids=str
)
def test_sbhd(shape, style, dtype, device):
    x = heads(*shape, dtype=dtype, device=device)
    cos, sin = rope_tables(shape[0], shape[-1], device=device)
    rows = torch.arange(shape[0])[:, None].expand(shape[:2])
    assert_close(rope(x, cos, sin, style=style), turned(x, rows, shape[-1], style), TOLERANCE[dtype])


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("rotary_dim", "nope_first"), [(64, False), (32, False), (32, True), (24, True)])
def test_bshd_with_a_part_of_each_head(rotary_dim, nope_first, style, dtype, device):
    x = heads(2, 6, 5, 64, dtype=dtype, device=device)
    cos, sin = rope_tables(6, rotary_dim, device=device)
    y = rope(x, cos, sin, style=style, layout="bshd", rotary_dim=rotary_dim, nope_first=nope_first)
    start = 64 - rotary_dim if nope_first else 0
    rows = torch.arange(6).expand(2, 6)
    assert_close(y, turned(x, rows, rotary_dim, style, start=start), TOLERANCE[dtype])
    plain = slice(0, start) if nope_first else slice(rotary_dim, 64)
    assert torch.equal(y[..., plain], x[..., plain])


@pytest.mark.parametrize("lengths", [(0, 1, 31, 64, 5), (3,), (0, 0, 4, 0)], ids=str)
def test_thd_restarts_in_each_sequence(lengths, dtype, device):
    x = heads(sum(lengths), 3, 64, dtype=dtype, device=device)
    ends = torch.tensor([0, *lengths]).cumsum(0).int().to(device)
    cos, sin = rope_tables(80, 64, device=device)
    rows = torch.cat([torch.arange(length) for length in lengths])
    assert_close(rope(x, cos, sin, layout="thd", cu_seqlens=ends), turned(x, rows, 64, "neox"), TOLERANCE[dtype])
    offsets = torch.arange(len(lengths), device=device) * 2
    rows = torch.cat([torch.arange(length) + 2 * i for i, length in enumerate(lengths)])
    y = rope(x, cos, sin, layout="thd", cu_seqlens=ends, offsets=offsets)
    assert_close(y, turned(x, rows, 64, "neox"), TOLERANCE[dtype])


@pytest.mark.parametrize("layout", ["sbhd", "bshd"])
def test_positions_in_any_order_and_offsets(layout, device):
    shape = (6, 2) if layout == "sbhd" else (2, 6)
    x = heads(*shape, 9, 64, device=device)
    cos, sin = rope_tables(131072, 64, 500000.0, device=device)
    generator = torch.Generator().manual_seed(3)
    positions = torch.randint(0, 131000, shape, generator=generator)
    positions[0, 0] = 131071 - 7
    for given, offsets in ((positions, None), (positions, torch.tensor([0, 7])), (None, torch.tensor([5, 130000]))):
        counted = torch.arange(6)[:, None] if layout == "sbhd" else torch.arange(6)[None, :]
        rows = (counted if given is None else given).expand(shape)
        if offsets is not None:
            rows = rows + (offsets[None, :] if layout == "sbhd" else offsets[:, None])
        index = {"positions": given, "offsets": offsets}
        index = {name: None if value is None else value.to(device) for name, value in index.items()}
        y = rope(x, cos, sin, layout=layout, **index)
        assert_close(y, turned(x, rows, 64, "neox", base=500000.0), 2e-5)


def test_a_bfloat16_angle_would_be_useless(device):
    """The tables are float32 for a reason: angles rounded to bfloat16 are wrong already at position 2047."""
    x = heads(1, 1, 1, 64, device=device)
    exact = turned(x, torch.tensor([[2047]]), 64, "neox")
    frequency = 10000.0 ** (-torch.arange(0, 64, 2) / 64)
    rough = (2047 * frequency).bfloat16().float().to(device)
    position = torch.zeros(1, dtype=torch.int64, device=device)
    wrong = rope(x, rough.cos()[None], rough.sin()[None], positions=position)
    assert (wrong - exact.to(wrong.dtype)).abs().max() > 0.3


@pytest.mark.parametrize("style", STYLES)
def test_norms_stay_and_turning_back_gives_the_input(style, device):
    x = heads(17, 2, 9, 64, device=device)
    cos, sin = rope_tables(17, 64, device=device)
    y = rope(x, cos, sin, style=style)
    half = (slice(0, 32), slice(32, 64)) if style == "neox" else (slice(0, None, 2), slice(1, None, 2))
    for tensor in (x, y):
        assert tensor.is_contiguous()
    assert_close(*((t[..., half[0]] ** 2 + t[..., half[1]] ** 2) for t in (y, x)), 1e-5)
    assert_close(rope(y, cos, -sin, style=style), x, 1e-5)


def test_scores_depend_on_the_distance_only(device):
    q, k = heads(1, 1, 1, 64, device=device), heads(1, 1, 1, 64, seed=1, device=device)
    cos, sin = rope_tables(4096, 64, device=device)
    at = lambda x, p: rope(x, cos, sin, positions=torch.tensor([p], device=device))  # noqa: E731
    near, far = ((at(q, p + 5) * at(k, p)).sum() for p in (3, 4000))
    assert_close(near, far, 1e-4)


def test_the_styles_differ_and_are_permutations_of_each_other(device):
    x = heads(5, 1, 2, 64, device=device)
    cos, sin = rope_tables(5, 64, device=device)
    order = torch.stack([torch.arange(32), torch.arange(32) + 32], dim=1).flatten().to(device)
    neox, gptj = rope(x, cos, sin), rope(x[..., order].contiguous(), cos, sin, style="gptj")
    assert torch.equal(neox[..., order], gptj)
    assert not torch.allclose(neox, rope(x, cos, sin, style="gptj"), atol=1e-2)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("rotary_dim", [64, 40])
def test_in_place_writes_x_and_nothing_else(style, rotary_dim, device):
    qkv = heads(6, 2, 15, 64, device=device)
    before, q = qkv.clone(), qkv[:, :, :9]
    cos, sin = rope_tables(6, rotary_dim, device=device)
    want = rope(q, cos, sin, style=style, rotary_dim=rotary_dim)
    assert rope(q, cos, sin, style=style, rotary_dim=rotary_dim, inplace=True) is q
    assert torch.equal(q, want) and torch.equal(qkv[:, :, 9:], before[:, :, 9:])


@pytest.mark.parametrize(("height", "width"), [(5, 7), (8, 4), (1, 1)])
def test_2d(height, width, dtype, device):
    x = heads(2, height * width, 3, 64, dtype=dtype, device=device)
    tables = [*rope_tables(height, 32, device=device), *rope_tables(width, 32, device=device)]
    pixel = torch.arange(height * width).expand(2, -1)
    half = turned(x[..., :32], pixel // width, 32, "neox"), turned(x[..., 32:], pixel % width, 32, "neox")
    assert_close(rope_2d(x, *tables), torch.cat(half, -1), TOLERANCE[dtype])


@pytest.mark.parametrize("style", STYLES)
def test_gradient_is_autograds_of_the_reference(style, dtype, device):
    x = heads(5, 2, 3, 64, dtype=dtype, device=device).requires_grad_()
    cos, sin = rope_tables(9, 40, device=device)
    options = {"style": style, "rotary_dim": 40, "nope_first": True, "offsets": torch.tensor([1, 4], device=device)}
    dy = heads(5, 2, 3, 64, dtype=dtype, device=device, seed=2)
    (got,) = torch.autograd.grad(rope(x, cos, sin, **options), x, dy)
    exact = x.detach().double().requires_grad_()
    (want,) = torch.autograd.grad(reference.rope(exact, cos.double(), sin.double(), **options), exact, dy.double())
    assert_close(got, want, GRADIENT_TOLERANCE[dtype])


def test_empty_and_the_torch_backend(device):
    cos, sin = rope_tables(4, 64, device=device)
    assert rope(heads(0, 2, 3, 64, device=device), cos, sin).shape == (0, 2, 3, 64)
    x = heads(4, 2, 3, 64, device=device)
    with use_backend("torch"):
        want = rope(x, cos, sin)
    assert_close(rope(x, cos, sin), want, 1e-6)


REFUSALS = {
    "float64": (TypeError, "x must be float32", lambda x, c, s: ((x.double(), c, s), {})),
    "rank": (ValueError, "4 dimensions", lambda x, c, s: ((x[0], c, s), {})),
    "style": (ValueError, "style must be one of", lambda x, c, s: ((x, c, s), {"style": "llama"})),
    "layout": (ValueError, "layout must be one of", lambda x, c, s: ((x, c, s), {"layout": "bhsd"})),
    "odd rotary_dim": (ValueError, "rotary_dim must be even", lambda x, c, s: ((x, c, s), {"rotary_dim": 63})),
    "wide rotary_dim": (ValueError, "at most the head's 64", lambda x, c, s: ((x, c, s), {"rotary_dim": 128})),
    "table width": (ValueError, "cos", lambda x, c, s: ((x, c[:, :16], s[:, :16]), {})),
    "table too short": (ValueError, "make longer tables", lambda x, c, s: ((x, c[:3], s[:3]), {})),
    "cu_seqlens outside thd": (
        ValueError,
        "cu_seqlens",
        lambda x, c, s: ((x, c, s), {"cu_seqlens": torch.tensor([0, 4])}),
    ),
    "in place on a leaf": (
        ValueError,
        "leaf that requires grad",
        lambda x, c, s: ((x.requires_grad_(), c, s), {"inplace": True}),
    ),
}


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", REFUSALS)
def test_bad_arguments_are_named(case, backend, device, no_launch):
    error, message, spoil = REFUSALS[case]
    cos, sin = rope_tables(4, 64, device=device)
    args, options = spoil(heads(4, 2, 3, 64, device=device), cos, sin)
    with use_backend(backend), pytest.raises(error, match=message):
        rope(*args, **options)


@pytest.mark.parametrize(("positions", "message"), [([0, -1, 2, 3], "negative|-1"), ([0, 1, 2, 4], "4")])
def test_positions_outside_the_tables_are_named_on_the_cpu(positions, message, no_launch):
    cos, sin = rope_tables(4, 64)
    with pytest.raises(ValueError, match=message):
        rope(heads(4, 2, 3, 64), cos, sin, positions=torch.tensor(positions))


@pytest.mark.parametrize(
    ("max_positions", "rotary_dim", "base"), [(-1, 64, 1e4), (4, 63, 1e4), (4, 0, 1e4), (4, 64, 0.0)]
)
def test_tables_refuse_what_has_no_meaning(max_positions, rotary_dim, base):
    with pytest.raises(ValueError, match="must"):
        rope_tables(max_positions, rotary_dim, base)


def test_long_tables_are_float32_and_exact():
    cos, sin = rope_tables(131072, 128, 500000.0)
    assert cos.dtype == sin.dtype == torch.float32 and cos.shape == (131072, 64)
    angle = 131071 * 500000.0 ** (-torch.arange(64, dtype=torch.float64) * 2 / 128)
    assert_close(cos[-1], angle.cos(), 1e-6)
