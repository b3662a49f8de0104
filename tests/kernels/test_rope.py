"""RoPE in both styles and every layout, and in two dimensions: values, gradients, positions, refusals."""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES, GRADIENT_TOLERANCE, TOLERANCE, assert_close, far_apart, short

import course_kernels
from course_kernels import launch, reference
from course_kernels.rope import LAYOUTS, STYLES

few_examples = settings(
    max_examples=6, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
styles = pytest.mark.parametrize("style", STYLES)
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def randn(shape, dtype=torch.float32, device="cpu", seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def tables(device, rotary_dim, positions=64, base=10000.0):
    return course_kernels.rope_tables(positions, rotary_dim, base, device=device)


def run(name, *args, **kwargs):
    with course_kernels.use_backend("triton"):
        return getattr(course_kernels, name)(*args, **kwargs)


def shape_of(layout, tokens, batch, heads, head_dim):
    return {
        "sbhd": (tokens, batch, heads, head_dim),
        "bshd": (batch, tokens, heads, head_dim),
        "thd": (tokens, heads, head_dim),
    }[layout]


def turned(x, rows, style):
    """The same by complex multiplication, base 10000. x: (tokens, heads, D); rows: (tokens,)."""
    angle = rows.double()[:, None, None] * 10000.0 ** (-torch.arange(0, 1, 2 / x.shape[-1], dtype=torch.float64))
    x_cpu = x.double().cpu()
    a, b = x_cpu.chunk(2, dim=-1) if style == "neox" else (x_cpu[..., 0::2], x_cpu[..., 1::2])
    product = torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle)
    y = [product.real, product.imag]
    return (torch.cat(y, -1) if style == "neox" else torch.stack(y, -1).flatten(-2)).to(x.device)


def check(x, cos, sin, **kwargs):
    """Against the reference in float64; x stays as it was."""
    before = x.clone()
    y = run("rope", x, cos, sin, **kwargs)
    assert y.shape == x.shape and y.dtype == x.dtype and y.is_contiguous()
    assert_close(y, reference.rope(x.double(), cos, sin, **kwargs), TOLERANCE[x.dtype])
    assert torch.equal(x, before)
    return y


# ---- the tables ----------------------------------------------------------------------------------------------------


def test_tables_hold_the_angles_of_the_formula(device):
    cos, sin = course_kernels.rope_tables(131072, 128, 500000.0, device=device)
    assert cos.shape == sin.shape == (131072, 64) and cos.dtype == sin.dtype == torch.float32
    for position, pair in ((0, 0), (1, 0), (131071, 0), (131071, 1), (99999, 63)):
        angle = torch.tensor(position * 500000.0 ** (-2 * pair / 128), dtype=torch.float64)
        assert abs(cos[position, pair].item() - angle.cos()) < 1e-7
        assert abs(sin[position, pair].item() - angle.sin()) < 1e-7


def test_tables_have_defaults_and_refuse_nonsense():
    cos, _ = course_kernels.rope_tables(3, 4)
    assert cos.device == torch.empty(0).device
    assert_close(cos[2], torch.tensor([2.0, 2.0 / 100]).cos(), 1e-6)
    for arguments, message in [
        ((-1, 4), "max_positions must not be negative, got -1"),
        ((4, 5), "rotary_dim must be even"),
        ((4, 0), "rotary_dim must be even and above 0"),
        ((4, 4, 0.0), "base must be above 0, got 0.0"),
    ]:
        with pytest.raises(ValueError, match=message):
            course_kernels.rope_tables(*arguments)


# ---- values and gradients ------------------------------------------------------------------------------------------


@styles
@layouts
@pytest.mark.parametrize("heads", [1, 8, 9, 12, 40])
def test_values(style, layout, heads, dtype, device, small_gpu):
    """Head counts that are no power of two must neither be skipped nor written past: 9 in SmolLM2, 12 in GPT-2."""
    x = randn(shape_of(layout, 5, 2, heads, 64), dtype, device)
    check(x, *tables(device, 64), style=style, layout=layout)


@styles
def test_values_are_those_of_complex_multiplication(style, dtype, device):
    x, rows = randn((4, 9, 64), dtype, device), torch.tensor([3, 0, 2047, 1])
    y = run("rope", x, *tables(device, 64, 2048), style=style, layout="thd", positions=rows.to(device))
    assert_close(y, turned(x, rows, style), TOLERANCE[dtype])


@styles
@pytest.mark.parametrize("head_dim", [2, 6, 64, 80, 128, 256])
def test_head_widths(style, head_dim, dtype, device, small_gpu):
    check(randn((3, 2, 3, head_dim), dtype, device), *tables(device, head_dim), style=style)


@styles
@pytest.mark.parametrize("nope_first", [False, True], ids=["plain last", "plain first"])
@pytest.mark.parametrize("rotary_dim", [2, 24, 32])
@pytest.mark.parametrize("inplace", [False, True], ids=["new", "in place"])
def test_part_of_a_head(style, nope_first, rotary_dim, inplace, dtype, device):
    x = randn((3, 2, 5, 64), dtype, device)
    before = x.clone()
    options = {"style": style, "rotary_dim": rotary_dim, "nope_first": nope_first}
    y = run("rope", x, *tables(device, rotary_dim), inplace=inplace, **options)
    assert_close(y, reference.rope(before.double(), *tables(device, rotary_dim), **options), TOLERANCE[dtype])
    plain = slice(0, 64 - rotary_dim) if nope_first else slice(rotary_dim, 64)
    assert torch.equal(y[..., plain], before[..., plain])
    assert (y is x) == inplace


@styles
@layouts
def test_in_place_is_the_same_and_returns_x(style, layout, device):
    x = randn(shape_of(layout, 3, 2, 12, 64), torch.bfloat16, device)
    want = run("rope", x, *tables(device, 64), style=style, layout=layout)
    got = run("rope", x, *tables(device, 64), style=style, layout=layout, inplace=True)
    assert got is x and torch.equal(x, want)


@pytest.mark.slow
@styles
@pytest.mark.parametrize(
    ("seq_len", "heads", "head_dim", "dtype"),
    [(1024, 40, 128, torch.bfloat16), *((1024, 8, 64, dtype) for dtype in DTYPES), (32, 12, 128, torch.float32)],
    ids=str,
)
def test_values_of_long_sequences(style, seq_len, heads, head_dim, dtype, device):
    check(randn((seq_len, 2, heads, head_dim), dtype, device), *tables(device, head_dim, seq_len), style=style)


@styles
@layouts
@pytest.mark.parametrize("nope_first", [False, True])
def test_gradient(style, layout, nope_first, dtype, device):
    shape = shape_of(layout, 4, 2, 3, 16)
    cos, sin = tables(device, 8)
    options = {"style": style, "layout": layout, "rotary_dim": 8, "nope_first": nope_first}
    positions = torch.tensor([7, 0, 63, 7], device=device)
    x, arriving = randn(shape, dtype, device).requires_grad_(), randn(shape, dtype, device, seed=1)
    (gradient,) = torch.autograd.grad(run("rope", x, cos, sin, positions=positions, **options), x, arriving)
    double = x.detach().double().requires_grad_()
    y = reference.rope(double, cos, sin, positions=positions, **options)
    (want,) = torch.autograd.grad(y, double, arriving.double())
    assert gradient.dtype == dtype
    assert_close(gradient, want, GRADIENT_TOLERANCE[dtype])


def test_gradient_in_place_and_of_a_strided_sum(device):
    cos, sin = tables(device, 8)
    x = randn((4, 2, 3, 8), device=device).requires_grad_()
    run("rope", 2 * x, cos, sin, inplace=True).square().sum().backward()
    assert_close(x.grad, 8 * x, 1e-5)  # a rotation keeps the sum of squares
    x.grad = None
    run("rope", x, cos, sin).sum().backward()
    double = x.detach().double().requires_grad_()
    reference.rope(double, cos, sin).sum().backward()
    assert_close(x.grad, double.grad, 1e-5)


def test_second_derivatives_are_refused(device):
    x = randn((2, 1, 1, 4), device=device).requires_grad_()
    y = run("rope", x, *tables(device, 4)).square().sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        gradient.sum().backward()


def test_a_changed_table_is_noticed_before_the_backward_pass(device):
    x, positions = randn((2, 1, 1, 4), device=device).requires_grad_(), torch.tensor([1, 2], device=device)
    y = run("rope", x, *tables(device, 4), positions=positions)
    positions += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# ---- positions -----------------------------------------------------------------------------------------------------


@styles
@pytest.mark.parametrize("layout", ["sbhd", "bshd"])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=short)
@pytest.mark.parametrize("form", ["(S,)", "both"])
def test_positions_in_any_order(style, layout, form, index_dtype, device):
    """Not monotone, some twice, the last row of the table among them."""
    positions = torch.tensor([[63, 0, 5, 5], [1, 62, 3, 0]], dtype=index_dtype, device=device)
    positions = positions[0] if form == "(S,)" else positions if layout == "bshd" else positions.t()
    x = randn(shape_of(layout, 4, 2, 3, 16), device=device)
    check(x, *tables(device, 16), style=style, layout=layout, positions=positions)
    check(x, *tables(device, 16), style=style, layout=layout, positions=positions, offsets=0 * positions)


def rows_by_hand(layout, positions, offsets, batch, seq_len):
    """Row of the table for each (sequence, place), said once more in the plainest way."""
    rows = torch.empty(batch, seq_len, dtype=torch.int64)
    for b, s in itertools.product(range(batch), range(seq_len)):
        token = (s, b) if layout == "sbhd" else (b, s)
        place = s if positions is None else positions[s] if positions.ndim == 1 else positions[token]
        if offsets is None:
            add = 0
        elif offsets.ndim == 2:
            add = offsets[token]
        else:
            add = offsets[s] if len(offsets) == seq_len else offsets[b]
        rows[b, s] = place + add
    return rows


@pytest.mark.parametrize("layout", ["sbhd", "bshd"])
@pytest.mark.parametrize("position_form", [None, "S", "full"])
@pytest.mark.parametrize("offset_form", [None, "B", "like positions"])
def test_offsets_are_added(layout, position_form, offset_form, device):
    """For each sequence or each token, with and without positions; compared with rows worked out one by one."""
    full = torch.arange(6).reshape(2, 3) * 7
    full = full if layout == "bshd" else full.t()
    positions = {None: None, "S": torch.tensor([9, 2, 4]), "full": full}[position_form]
    like = torch.tensor([20, 3, 0]) if position_form == "S" else 1 + full.flip(0)
    offsets = {None: None, "B": torch.tensor([11, 4]), "like positions": like}[offset_form]
    index = {
        name: tensor.to(device)
        for name, tensor in (("positions", positions), ("offsets", offsets))
        if tensor is not None
    }
    cos, sin = tables(device, 8)
    x = randn(shape_of(layout, 3, 2, 3, 8), device=device)
    y = check(x, cos, sin, layout=layout, **index)
    rows = rows_by_hand(layout, positions, offsets, batch=2, seq_len=3).to(device)
    x_rows, y_rows = (t if layout == "bshd" else t.transpose(0, 1) for t in (x, y))
    assert_close(y_rows, reference.rotate_tokens(x_rows.double(), rows, cos, sin, "neox"), 1e-5)


def test_offsets_that_fit_both_readings(device):
    """Two sequences of two tokens: like the positions where these are given, else one for each sequence."""
    cos, sin = tables(device, 8)
    x, offsets = randn((2, 2, 1, 8), device=device), torch.tensor([0, 5], device=device)  # (B, S)
    zeros = torch.zeros(2, dtype=torch.int64, device=device)
    like = check(x, cos, sin, layout="bshd", positions=zeros, offsets=offsets)
    assert torch.equal(like, run("rope", x, cos, sin, layout="bshd", positions=offsets))
    each = check(x, cos, sin, layout="bshd", offsets=offsets)
    rows = torch.tensor([[0, 1], [5, 6]], device=device)
    assert torch.equal(each, run("rope", x, cos, sin, layout="bshd", positions=rows))


@styles
def test_real_angles_at_long_positions(style, dtype, device):
    """Angles of 131071 radians: float32 tables are exact there, bfloat16 angles would be anything."""
    cos, sin = tables(device, 128, 131072, 500000.0)
    positions = torch.tensor([131071, 0, 100003, 2048, 131070], device=device)
    x = randn((5, 3, 128), dtype, device)
    y = check(x, cos, sin, style=style, layout="thd", positions=positions)
    pair = (0, 64) if style == "neox" else (0, 1)
    a, b = (x[0, 0, i].double() for i in pair)
    angle = torch.tensor(131071.0, dtype=torch.float64)
    assert_close(y[0, 0, pair[0]], a * angle.cos() - b * angle.sin(), TOLERANCE[dtype])


def test_a_bfloat16_angle_would_be_useless(device):
    """The tables are float32 for a reason: angles rounded to bfloat16 are wrong already at position 2047."""
    x, position = randn((1, 1, 64), device=device), torch.zeros(1, dtype=torch.int64, device=device)
    rough = (2047 * 10000.0 ** (-torch.arange(0, 64, 2) / 64)).bfloat16().float().to(device)[None]
    wrong = run("rope", x, rough.cos(), rough.sin(), layout="thd", positions=position)
    assert (wrong - turned(x, torch.tensor([2047]), "neox")).abs().max() > 0.3


@styles
@pytest.mark.parametrize("lengths", [[0, 1, 31, 0, 4, 5], [3], [0, 0, 2], [2, 0, 0], [1] * 70], ids=str)
@pytest.mark.parametrize("offset", [False, True], ids=["", "offsets"])
def test_sequences_of_different_lengths(style, lengths, offset, device, small_gpu):
    """Empty ones too, and more than one block of them. Each sequence is turned as if it were alone."""
    cu_seqlens = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)
    x, (cos, sin) = randn((sum(lengths), 3, 16), device=device), tables(device, 16, 128)
    offsets = torch.arange(len(lengths), device=device).flip(0) if offset else None
    y = check(x, cos, sin, style=style, layout="thd", cu_seqlens=cu_seqlens, offsets=offsets)
    for i, sequence in enumerate(x.split(lengths)):
        rows = torch.arange(len(sequence), device=device) + (offsets[i] if offset else 0)
        alone = reference.rotate_tokens(sequence.double(), rows, cos, sin, style)
        assert_close(y[cu_seqlens[i] : cu_seqlens[i + 1]], alone, 1e-5)


def test_a_position_past_the_tables_is_nan_where_values_are_not_checked(device, monkeypatch):
    """On a GPU nobody looks at the positions: the token must show it, and the kernel must not read past the tables."""
    monkeypatch.setattr(course_kernels.checks, "values_are_checked", lambda tensor: False)
    x = randn((4, 2, 8), device=device)
    y = run("rope", x, *tables(device, 8), layout="thd", positions=torch.tensor([0, 64, -1, 63], device=device))
    assert y[1:3].isnan().all() and y[::3].isfinite().all()


# ---- what a rotation is --------------------------------------------------------------------------------------------


@few_examples
@given(
    st.integers(1, 6), st.integers(1, 3), st.integers(1, 13), st.integers(1, 40), st.sampled_from(STYLES),
    st.sampled_from(LAYOUTS), st.booleans(), st.sampled_from(DTYPES), st.integers(0, 99),
)  # fmt: skip
def test_any_shape_agrees_with_the_reference(
    device, tokens, batch, heads, half, style, layout, nope_first, dtype, seed
):
    rotary_dim = 2 * half
    x = randn(shape_of(layout, tokens, batch, heads, rotary_dim + seed % 9), dtype, device, seed)
    options = {"style": style, "layout": layout, "rotary_dim": rotary_dim, "nope_first": nope_first}
    check(x, *tables(device, rotary_dim), **options)


@few_examples
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 40), st.sampled_from(STYLES), st.integers(0, 99))
def test_there_and_back_is_the_identity_and_lengths_stay(device, tokens, heads, half, style, seed):
    x = randn((tokens, 1, heads, 2 * half), device=device, seed=seed)
    cos, sin = tables(device, 2 * half)
    y = run("rope", x, cos, sin, style=style)
    assert_close(run("rope", y, cos, -sin, style=style), x, 1e-5)
    pairs = [
        torch.stack(t.chunk(2, dim=-1)) if style == "neox" else torch.stack((t[..., ::2], t[..., 1::2])) for t in (x, y)
    ]
    assert_close(pairs[1].norm(dim=0), pairs[0].norm(dim=0), 1e-5)


@few_examples
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.sampled_from(STYLES))
def test_scores_depend_on_the_distance_only(device, query, key, shift, style):
    x, (cos, sin) = randn((2, 1, 64), device=device), tables(device, 64)

    def score(*positions):
        q, k = run("rope", x, cos, sin, style=style, layout="thd", positions=torch.tensor(positions, device=device))
        return (q * k).sum()

    assert_close(score(query, key), score(query + shift, key + shift), 1e-4)


def test_position_0_changes_nothing_and_the_styles_are_permutations_of_each_other(device):
    x, (cos, sin) = randn((2, 1, 3, 64), device=device), tables(device, 64)
    order = torch.arange(64, device=device).view(2, 32).t().flatten()
    neox, gptj = (run("rope", x, cos, sin, style=style) for style in STYLES)
    assert torch.equal(neox[0], x[0]) and torch.equal(gptj[0], x[0])
    assert not torch.allclose(neox[1], gptj[1])
    assert torch.equal(run("rope", x[..., order].contiguous(), cos, sin, style="gptj"), neox[..., order])


# ---- strides, sizes, tables of another dtype -----------------------------------------------------------------------


@styles
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[..., 8:24],
        lambda x: x[::2, :, ::3, 16:],
        lambda x: x.transpose(0, 1)[..., :16],
        lambda x: x[:, :, :1, :16].expand(-1, -1, 5, -1),
    ],
    ids=["columns of wider heads", "every other token", "transposed", "one head expanded"],
)
def test_strided_inputs_are_read_in_place(style, view, device):
    check(view(randn((4, 4, 6, 32), device=device)), *tables(device, 16), style=style)


@styles
def test_strided_in_place_leaves_the_rest_alone(style, device):
    qkv = randn((5, 9 + 3 + 3, 16), device=device)
    before = qkv.clone()
    run("rope", qkv[:, 9:12], *tables(device, 16), style=style, layout="thd", inplace=True)
    assert_close(qkv[:, 9:12], reference.rope(before[:, 9:12], *tables(device, 16), style=style, layout="thd"), 1e-5)
    assert torch.equal(qkv[:, :9], before[:, :9]) and torch.equal(qkv[:, 12:], before[:, 12:])


@layouts
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_heads_beyond_two_to_the_31_elements(layout, dim, device):
    """Tokens, sequences and heads far apart: in what is read, written in place, and in the gradient that arrives."""
    near = randn(shape_of(layout, 3, 3, 3, 8), torch.float16, device)
    if dim == near.ndim - 1:
        pytest.skip("the elements of a head are adjacent")
    x = far_apart(near, dim)
    y = check(x, *tables(device, 8), layout=layout)
    assert torch.equal(run("rope", x, *tables(device, 8), layout=layout, inplace=True), y)
    near.requires_grad_()
    run("rope", near, *tables(device, 8), layout=layout).backward(x)  # turned above, and now back
    assert_close(near.grad, near, TOLERANCE[torch.float16])


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_pixels_beyond_two_to_the_31_elements(dim, device):
    x = randn((3, 3, 3, 8), torch.float16, device)
    angles = *tables(device, 4, 1), *tables(device, 4, 3)
    assert torch.equal(run("rope_2d", far_apart(x, dim), *angles), run("rope_2d", x, *angles))


@pytest.mark.parametrize("table_dtype", DTYPES, ids=short)
def test_tables_of_another_dtype(table_dtype, dtype, device):
    cos, sin = (t.to(table_dtype) for t in tables(device, 16))
    check(randn((3, 2, 3, 16), dtype, device), cos, sin)


@layouts
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("empty", ["tokens", "heads"])
def test_empty_tensors_give_empty_tensors(layout, inplace, empty, device, no_launch):
    shape = shape_of(layout, 0 if empty == "tokens" else 2, 2, 0 if empty == "heads" else 3, 8)
    x = torch.empty(shape, device=device)
    y = run("rope", x, *tables(device, 8), layout=layout, inplace=inplace)
    assert y.shape == shape and (y is x) == inplace


def test_one_program_turns_many_heads(device):
    """A program for each head of a small tensor would be mostly launch."""
    x = torch.empty((4, 2, 32, 64), dtype=torch.bfloat16, device=device)
    blocks, meta = launch.head_tiles(4, 32, 64, x)
    assert meta["BLOCK_H"] == 32 and blocks == (4, 1)


# ---- angles from frequencies, tables of full width, tokens without heads ---------------------------------------------


def frequencies(rotary_dim, base=10000.0):
    return base ** (-torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("start", [0, 131071, -7, 2**33])
def test_angles_computed_in_the_kernel_are_those_of_float64(start, style, dtype, device):
    """At position 131071 an angle that is a product in float32 is off by 0.01; at 2**33 it has no digit left."""
    x, inv_freq = randn((2, 3, 5, 24), dtype, device), frequencies(16).to(device)
    positions = start + torch.arange(3, device=device)
    with course_kernels.use_backend("triton"):
        y = course_kernels.rope(x, inv_freq=inv_freq, style=style, layout="bshd", positions=positions, rotary_dim=16)
    turns = positions.double().cpu()[:, None] * frequencies(16)
    tables = turns.cos().to(device), turns.sin().to(device)
    want = reference.rope(x.double(), *tables, style=style, layout="bshd", rotary_dim=16)
    assert_close(y, want, 2 * TOLERANCE[dtype])
    with course_kernels.use_backend("torch"):
        slow = course_kernels.rope(x, inv_freq=inv_freq, style=style, layout="bshd", positions=positions, rotary_dim=16)
    assert_close(slow, want, 2 * TOLERANCE[dtype])


def test_frequencies_serve_every_way_to_say_a_position_and_the_gradient(device):
    x, inv_freq = randn((9, 2, 8), device=device), frequencies(8).float().to(device)
    cos, sin = tables(device, 8)
    for options in (
        {"cu_seqlens": torch.tensor([0, 4, 4, 9], device=device)},
        {"offsets": torch.tensor([5], device=device)},
        {"positions": torch.arange(9, device=device).flip(0), "nope_first": True},
        {},
    ):
        results = []
        for angles in ((cos, sin), ()):
            leaf = x.clone().requires_grad_()
            more = {} if angles else {"inv_freq": inv_freq}
            with course_kernels.use_backend("triton"):
                y = course_kernels.rope(leaf, *angles, layout="thd", **options, **more)
            results.append((y.detach(), *torch.autograd.grad(y, leaf, x)))
        for a, b in zip(*results):
            assert_close(a, b, 1e-5)
    with course_kernels.use_backend("triton"):
        inplace = x.clone()
        assert course_kernels.rope(inplace, inv_freq=inv_freq, layout="thd", inplace=True) is inplace
    assert_close(inplace, results[0][0], 1e-5)


@pytest.mark.parametrize("style", STYLES)
def test_tables_of_full_width(style, dtype, device):
    """Each angle twice, in two halves, as `LlamaRotaryEmbedding` has them."""
    x, positions = randn((4, 2, 3, 12), dtype, device), torch.tensor([3, 0, 63, 7], device=device)
    cos, sin = tables(device, 8)
    options = {"style": style, "positions": positions, "rotary_dim": 8}
    for backend in ("triton", "torch"):
        with course_kernels.use_backend(backend):
            y = course_kernels.rope(x, cos, sin, **options)
            wide = course_kernels.rope(x, cos.repeat(1, 2), sin.repeat(1, 2), full_width=True, **options)
        assert torch.equal(wide, y)


@pytest.mark.parametrize(("layout", "with_heads"), [("sbd", "sbhd"), ("bsd", "bshd"), ("td", "thd")])
def test_tokens_without_heads(layout, with_heads, dtype, device):
    x = randn((3, 4, 8)[: len(layout)] if layout != "td" else (3, 8), dtype, device)
    cos, sin = tables(device, 8)
    for backend in ("triton", "torch"):
        with course_kernels.use_backend(backend):
            y = course_kernels.rope(x, cos, sin, layout=layout)
            assert torch.equal(y, course_kernels.rope(x.unsqueeze(-2), cos, sin, layout=with_heads).squeeze(-2))
            leaf = x.clone().requires_grad_()
            middle = leaf * 1
            assert course_kernels.rope(middle, cos, sin, layout=layout, inplace=True) is middle
        assert torch.equal(middle, y)
        (dx,) = torch.autograd.grad(middle, leaf, y)
        assert_close(dx, x, 4 * TOLERANCE[dtype])  # turned there and back, rounded twice


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "angles", "options"),
    [
        (ValueError, "give cos and sin, or inv_freq", lambda c, s: (), {}),
        (ValueError, "give cos and sin, or inv_freq", lambda c, s: (c, s), {"inv_freq": torch.ones(4)}),
        (
            TypeError,
            "inv_freq must be float32 or float64, got torch.float16",
            lambda c, s: (),
            {"inv_freq": torch.ones(4).half()},
        ),
        (ValueError, r"inv_freq must have shape \(4,\), got \(8,\)", lambda c, s: (), {"inv_freq": torch.ones(8)}),
        (ValueError, r"cos must have shape \(64, 8\), got \(64, 4\)", lambda c, s: (c, s), {"full_width": True}),
        (ValueError, "x must have 3 dimensions", lambda c, s: (c, s), {"layout": "bsd"}),
    ],
)
def test_bad_angles_are_named(error, message, angles, options, backend, no_launch):
    x = randn((3, 2, 1, 8))
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.rope(x, *angles(*tables("cpu", 8)), **options)


# ---- two dimensions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 7), (7, 5), (4, 32)], ids=str)
@pytest.mark.parametrize("head_dim", [4, 12, 64])
def test_rope_2d(height, width, head_dim, dtype, device, small_gpu):
    x = randn((2, height * width, 3, head_dim), dtype, device)
    by_row, by_column = tables(device, head_dim // 2, height), tables(device, head_dim // 2, width, 100.0)
    y = run("rope_2d", x, *by_row, *by_column)
    assert y.shape == x.shape and y.dtype == dtype
    assert_close(y, reference.rope_2d(x.double(), *by_row, *by_column), TOLERANCE[dtype])

    image = x.double().view(2, height, width, 3, head_dim)
    first = reference.rope(image[..., : head_dim // 2].flatten(2, 3), *by_row, layout="bshd")
    assert_close(y.view(image.shape)[..., : head_dim // 2].flatten(2, 3), first, TOLERANCE[dtype])


@pytest.mark.slow
@pytest.mark.parametrize(("height", "width"), [(32, 32), (32, 64)], ids=str)
def test_rope_2d_of_whole_images(height, width, dtype, device):
    x = randn((1, height * width, 12, 64), dtype, device)
    angles = *tables(device, 32, height), *tables(device, 32, width)
    assert_close(run("rope_2d", x, *angles), reference.rope_2d(x.double(), *angles), TOLERANCE[dtype])


def test_rope_2d_of_strided_and_empty_images(device):
    angles = *tables(device, 8, 2), *tables(device, 8, 3)
    x = randn((4, 6, 5, 32), device=device)[::2, :, ::2, 16:]
    assert_close(run("rope_2d", x, *angles), reference.rope_2d(x, *angles), 1e-5)
    assert run("rope_2d", x[:0], *angles).shape == (0, 6, 3, 16)


# ---- refusals, each before any launch ------------------------------------------------------------------------------


def index(*values):
    return torch.tensor(values)


REFUSALS = {
    "x is float64": (TypeError, "x must be float32", lambda x, c, s: ((x.double(), c, s), {})),
    "x is a list": (TypeError, "x must be a torch.Tensor, got list", lambda x, c, s: (([1.0], c, s), {})),
    "cos is int": (TypeError, "cos must be float32", lambda x, c, s: ((x, c.int(), s), {})),
    "cos and sin of two dtypes": (TypeError, "one dtype", lambda x, c, s: ((x, c, s.half()), {})),
    "sin is elsewhere": (ValueError, "sin is on meta", lambda x, c, s: ((x, c, s.to("meta")), {})),
    "cos and sin of two shapes": (ValueError, "one shape", lambda x, c, s: ((x, c, s[1:]), {})),
    "tables of full width": (
        ValueError,
        r"cos must have shape \(5, 4\), got \(5, 8\)",
        lambda x, c, s: ((x, c.repeat(1, 2), s.repeat(1, 2)), {}),
    ),
    "tables of one dimension": (ValueError, "cos must have 2 dimensions", lambda x, c, s: ((x, c[0], s[0]), {})),
    "strided tables": (ValueError, "cos must be contiguous", lambda x, c, s: ((x, c[::2], s[::2]), {})),
    "tables that require grad": (ValueError, "cos requires grad", lambda x, c, s: ((x, c.requires_grad_(), s), {})),
    "strided heads": (
        ValueError,
        "x needs a last dimension of stride 1",
        lambda x, c, s: ((x.transpose(2, 3), *(t[:, :1].contiguous() for t in (c, s))), {"rotary_dim": 2}),
    ),
    "three dimensions": (ValueError, "x must have 4 dimensions", lambda x, c, s: ((x[0], c, s), {})),
    "four dimensions in thd": (ValueError, "x must have 3 dimensions", lambda x, c, s: ((x, c, s), {"layout": "thd"})),
    "style": (
        ValueError,
        "style must be one of neox, gptj; got 'llama'",
        lambda x, c, s: ((x, c, s), {"style": "llama"}),
    ),
    "layout": (ValueError, "layout must be one of .* got 'bhsd'", lambda x, c, s: ((x, c, s), {"layout": "bhsd"})),
    "odd rotary_dim": (ValueError, "rotary_dim must be even", lambda x, c, s: ((x, c, s), {"rotary_dim": 7})),
    "wide rotary_dim": (ValueError, "at most the head's 8, got 10", lambda x, c, s: ((x, c, s), {"rotary_dim": 10})),
    "rotary_dim 0": (ValueError, "above 0", lambda x, c, s: ((x, c, s), {"rotary_dim": 0})),
    "too few rows": (ValueError, "4 positions but cos and sin have 3 rows", lambda x, c, s: ((x, c[:3], s[:3]), {})),
    "positions are float": (TypeError, "positions must be int32", lambda x, c, s: ((x, c, s), {"positions": c[:4, 0]})),
    "positions are a list": (TypeError, "positions must be a torch", lambda x, c, s: ((x, c, s), {"positions": [1]})),
    "positions of B": (
        ValueError,
        r"positions must have shape \(4,\) or \(4, 2\), got \(2,\)",
        lambda x, c, s: ((x, c, s), {"positions": index(0, 1)}),
    ),
    "positions (B, S) in sbhd": (
        ValueError,
        r"got \(2, 4\)",
        lambda x, c, s: ((x, c, s), {"positions": index(*[[0] * 4] * 2)}),
    ),
    "positions elsewhere": (
        ValueError,
        "positions is on meta",
        lambda x, c, s: ((x, c, s), {"positions": index(0, 1, 2, 3).to("meta")}),
    ),
    "offsets unlike positions": (
        ValueError,
        r"offsets must have shape \(4,\) or \(2,\), got \(4, 2\)",
        lambda x, c, s: ((x, c, s), {"positions": index(0, 1, 2, 3), "offsets": index(*[[0, 0]] * 4)}),
    ),
    "cu_seqlens outside thd": (
        ValueError,
        "cu_seqlens belongs to layout 'thd', got layout 'sbhd'",
        lambda x, c, s: ((x, c, s), {"cu_seqlens": index(0, 4)}),
    ),
    "cu_seqlens and positions": (
        ValueError,
        "exclude each other",
        lambda x, c, s: ((x[:, 0], c, s), {"layout": "thd", "cu_seqlens": index(0, 4), "positions": index(0, 1, 2, 3)}),
    ),
    "cu_seqlens too short": (
        ValueError,
        r"cu_seqlens must have shape \(sequences \+ 1,\), got \(1,\)",
        lambda x, c, s: ((x[:, 0], c, s), {"layout": "thd", "cu_seqlens": index(0)}),
    ),
    "offsets for each token with cu_seqlens": (
        ValueError,
        r"offsets must have shape \(1,\)",
        lambda x, c, s: ((x[:, 0], c, s), {"layout": "thd", "cu_seqlens": index(0, 4), "offsets": index(0, 1, 2, 3)}),
    ),
    "in place on a leaf": (
        ValueError,
        "leaf that requires grad",
        lambda x, c, s: ((x.requires_grad_(), c, s), {"inplace": True}),
    ),
    "in place on shared elements": (
        ValueError,
        "share elements",
        lambda x, c, s: ((x[:, :, :1].expand(4, 2, 3, 8), c, s), {"inplace": True}),
    ),
}
VALUE_REFUSALS = {
    "negative position": (r"positions\[2\] is -1 but must be in \[0, 5\)", {"positions": index(0, 1, -1, 2)}),
    "position past the tables": (r"positions\[3\] is 5 but", {"positions": index(0, 1, 2, 5)}),
    "offset past the tables": (r"\[3, 1\] is 5 but", {"offsets": index(0, 2)}),
    "offset below 0": (r"\(position \+ offset\)\[0, 0\] is -1", {"offsets": index(-1, 0)}),
    "cu_seqlens that fall": (r"rise from 0 to 4.*\[0, 3, 2, 4\]", {"layout": "thd", "cu_seqlens": index(0, 3, 2, 4)}),
    "cu_seqlens that stop early": ("rise from 0 to 4", {"layout": "thd", "cu_seqlens": index(0, 3)}),
    "cu_seqlens that start late": ("rise from 0 to 4", {"layout": "thd", "cu_seqlens": index(1, 4)}),
    "offset of a sequence past the tables": (
        "is 5 but",
        {"layout": "thd", "cu_seqlens": index(0, 2, 4), "offsets": index(0, 4)},
    ),
}


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", REFUSALS)
def test_bad_arguments_are_named(case, backend, device, no_launch):
    error, message, spoil = REFUSALS[case]
    args, kwargs = spoil(randn((4, 2, 3, 8), device=device), *tables(device, 8, 5))
    kwargs = {k: v.to(device) if torch.is_tensor(v) and "elsewhere" not in case else v for k, v in kwargs.items()}
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.rope(*args, **kwargs)


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", VALUE_REFUSALS)
def test_bad_values_are_named(case, backend, device, no_launch, monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS_CHECKS", "1")  # a GPU looks at them only then
    message, kwargs = VALUE_REFUSALS[case]
    x = randn((4, 2, 3, 8), device=device)
    x = x[:, 0] if kwargs.get("layout") == "thd" else x
    kwargs = {k: v.to(device) if torch.is_tensor(v) else v for k, v in kwargs.items()}
    with course_kernels.use_backend(backend), pytest.raises(ValueError, match=message):
        course_kernels.rope(x, *tables(device, 8, 5), **kwargs)


REFUSALS_2D = {
    "float64": (TypeError, "x must be float32", lambda x, h, w: (x.double(), *h, *w)),
    "three dimensions": (ValueError, "x must have 4 dimensions", lambda x, h, w: (x[0], *h, *w)),
    "width": (ValueError, "multiple of 4.* got 6", lambda x, h, w: (x[..., :6], *h, *w)),
    "pixels": (ValueError, r"6 pixels but the tables have 3 rows \* 3 columns", lambda x, h, w: (x, *w, *w)),
    "table width": (
        ValueError,
        r"cos_w must have shape \(3, 2\), got \(3, 1\)",
        lambda x, h, w: (x, *h, *(t[:, :1].contiguous() for t in w)),
    ),
    "dtypes": (TypeError, "cos_h and sin_h must have one dtype", lambda x, h, w: (x, h[0], h[1].half(), *w)),
    "grad": (ValueError, "x requires grad", lambda x, h, w: (x.requires_grad_(), *h, *w)),
    "strides": (ValueError, "last dimension of stride 1", lambda x, h, w: (x.repeat(1, 1, 1, 2)[..., ::2], *h, *w)),
}


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", REFUSALS_2D)
def test_bad_arguments_of_rope_2d_are_named(case, backend, device, no_launch):
    error, message, spoil = REFUSALS_2D[case]
    args = spoil(randn((2, 6, 3, 8), device=device), tables(device, 4, 2), tables(device, 4, 3))
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.rope_2d(*args)
