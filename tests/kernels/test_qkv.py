"""Heads cut from a projection, turned, and joined from two parts: values, copies bit for bit, strides, refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES, TOLERANCE, assert_close, bits, far_apart, places, randn, run, short, tables

import course_kernels
from course_kernels import launch, reference
from course_kernels.rope import STYLES

few_examples = settings(
    max_examples=6, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
styles = pytest.mark.parametrize("style", STYLES)
HEADS = [(1, 1), (2, 1), (8, 1), (16, 4), (9, 3), (12, 12), (40, 8), (1, 4)]  # the last: fewer of Q than of K


def assert_results(got, want, dtype):
    """Two tensors, contiguous, close to what is wanted."""
    for y, expected in zip(got, want, strict=True):
        assert y.shape == expected.shape and y.dtype == dtype and y.is_contiguous()
        assert_close(y, expected, TOLERANCE[dtype])


def check_split(qkv, heads, head_dim, positions, style="neox", cos_sin=None):
    """Against the reference in float64; v bit for bit; qkv stays as it was."""
    cos, sin = cos_sin or tables(qkv.device, head_dim)
    before = qkv.clone()
    result = run("split_qkv_rope", qkv, cos, sin, positions, *heads, head_dim, style=style)
    want = reference.split_qkv_rope(qkv.double(), cos, sin, positions, *heads, head_dim, style=style)
    assert_results(result, want, qkv.dtype)
    v = qkv[:, -heads[1] * head_dim :].reshape(result[2].shape)
    assert torch.equal(bits(result[2]), bits(v)) and torch.equal(qkv, before)
    return result


def parts(tokens, heads, width_1, width_2, dtype=torch.float32, device="cpu"):
    """q1, q2, k1, k2."""
    sizes = [(count, width) for count in heads for width in (width_1, width_2)]
    return [randn((tokens, *size), dtype, device, seed) for seed, size in enumerate(sizes)]


def check_concat(q1, q2, k1, k2):
    """Bit for bit; nothing is modified."""
    before = [x.clone() for x in (q1, q2, k1, k2)]
    result = run("concat_qk", q1, q2, k1, k2)
    for y, x1, x2 in zip(result, (q1, k1), (q2, k2)):
        assert y.is_contiguous() and y.dtype == x1.dtype and y.shape == (*x1.shape[:2], x1.shape[2] + x2.shape[2])
        assert torch.equal(bits(y), bits(torch.cat([x1, x2], dim=-1)))
    assert all(map(torch.equal, (q1, q2, k1, k2), before))


def check_rope_concat(parts, positions, style="neox"):
    """The first part bit for bit, the second against the reference in float64."""
    cos, sin = tables(parts[0].device, parts[1].shape[2])
    result = run("rope_concat_qk", *parts, positions, cos, sin, style=style)
    want = reference.rope_concat_qk(*(x.double() for x in parts), positions, cos, sin, style=style)
    assert_results(result, want, parts[0].dtype)
    for y, x in zip(result, parts[::2]):
        assert torch.equal(bits(y[..., : x.shape[2]]), bits(x))


# ---- cutting a projection ------------------------------------------------------------------------------------------


@styles
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_split(style, heads, dtype, device, small_gpu):
    """Head counts that are no power of two must neither be skipped nor written past: 9 in SmolLM2, 40 in Qwen."""
    qkv = randn((5, (heads[0] + 2 * heads[1]) * 64), dtype, device)
    check_split(qkv, heads, 64, places(5, device), style)


@styles
@pytest.mark.parametrize("tokens", [1, 4, 33])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_split_of_several_tokens(style, tokens, head_dim, dtype, device, small_gpu):
    check_split(randn((tokens, 16 * head_dim), dtype, device), (8, 4), head_dim, places(tokens, device), style)


@styles
@pytest.mark.parametrize("head_dim", [2, 6, 80, 256])
def test_split_of_other_widths(style, head_dim, device, small_gpu):
    check_split(randn((3, 5 * head_dim), device=device), (3, 1), head_dim, places(3, device), style)


@pytest.mark.parametrize(
    ("heads", "head_dim", "base"),
    [((9, 3), 64, 100000.0), ((32, 8), 128, 500000.0), ((40, 40), 128, 1000000.0)],
    ids=["SmolLM2", "Llama 3 8B", "Qwen 14B"],
)
def test_split_for_real_models(heads, head_dim, base, device, small_gpu):
    """At their positions too: 131071 is the last that Llama 3.1 knows."""
    qkv = randn((3, (heads[0] + 2 * heads[1]) * head_dim), torch.bfloat16, device)
    positions = torch.tensor([131071, 0, 8191], device=device)
    check_split(qkv, heads, head_dim, positions, cos_sin=tables(device, head_dim, 131072, base))


def test_split_is_cut_and_rope(dtype, device, small_gpu):
    qkv, positions, (cos, sin) = randn((6, 5 * 16), dtype, device), places(6, device), tables(device, 16)
    q, k, v = run("split_qkv_rope", qkv, cos, sin, positions, 3, 1, 16)
    heads = qkv.view(6, 5, 16)
    turned = run("rope", heads[:, :4], cos, sin, layout="thd", positions=positions)
    assert torch.equal(torch.cat([q, k, v], dim=1), torch.cat([turned, heads[:, 4:]], dim=1))


def test_v_is_copied_bit_for_bit(dtype, device):
    """What a float can be: NaN with a payload, both infinities, both zeros, the smallest number."""
    qkv = randn((2, 3 * 8), dtype, device)
    integer = bits(qkv).dtype
    strange = {4: [0x7FC12345, -1, 0x7F800000, 1], 2: [0x7F81, -1, 0x7C00, 1]}[dtype.itemsize]
    smallest = -(2 ** (8 * dtype.itemsize - 1))  # -0.0
    qkv.view(integer)[:, 16:] = torch.tensor([*strange, smallest, 0, -2, -smallest - 1], device=device).to(integer)
    _, _, v = run("split_qkv_rope", qkv, *tables(device, 8), places(2, device), 1, 1, 8)
    assert torch.equal(bits(v[:, 0]), bits(qkv[:, 16:]))


@styles
def test_no_head_leaks_into_another(style, device, small_gpu):
    """An infinity and a NaN in one head of one token are seen in that head alone."""
    qkv = randn((4, 11 * 8), device=device)
    qkv[1, 2 * 8], qkv[3, 8 * 8 + 3], qkv[2, -1] = float("inf"), float("nan"), float("inf")
    y = torch.cat(run("split_qkv_rope", qkv, *tables(device, 8), places(4, device), 7, 2, 8, style=style), dim=1)
    strange = (~y.isfinite()).any(dim=-1).nonzero().tolist()
    assert strange == [[1, 2], [2, 10], [3, 8]]


# ---- joining two parts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("widths", [(512, 64), (512, 128), (96, 6), (7, 5), (1, 1)], ids=str)
def test_concat(heads, widths, device, small_gpu):
    check_concat(*parts(3, heads, *widths, torch.bfloat16, device))


@pytest.mark.parametrize("tokens", [1, 4, 32])
def test_concat_of_several_tokens(tokens, dtype, device, small_gpu):
    check_concat(*parts(tokens, (16, 1), 128, 64, dtype, device))


@pytest.mark.one_in(5)
@styles
@pytest.mark.parametrize("heads", [(16, 1), (9, 3), (1, 4), (40, 8)], ids=str)
@pytest.mark.parametrize("widths", [(128, 64), (96, 32), (5, 6)], ids=str)
def test_rope_concat(style, heads, widths, dtype, device, small_gpu):
    check_rope_concat(parts(3, heads, *widths, dtype, device), places(3, device), style)


@styles
@pytest.mark.parametrize("tokens", [1, 4, 32])
def test_rope_concat_for_deepseek(style, tokens, dtype, device, small_gpu):
    """16 heads, a GPU's share of 128, with a latent of 512. In float16 too, where aiter refuses."""
    check_rope_concat(parts(tokens, (16, 1), 512, 64, dtype, device), places(tokens, device), style)


@styles
def test_rope_concat_is_rope_and_concat(style, dtype, device, small_gpu):
    args, positions, (cos, sin) = parts(5, (6, 2), 24, 16, dtype, device), places(5, device), tables(device, 16)
    options = {"layout": "thd", "positions": positions, "style": style}
    turned = [run("rope", x, cos, sin, **options) for x in args[1::2]]
    got = run("rope_concat_qk", *args, positions, cos, sin, style=style)
    want = run("concat_qk", args[0], turned[0], args[2], turned[1])
    for one, other in zip(got, want, strict=True):  # a compiler may fuse another multiplication into the addition
        assert_close(one, other, 0 if device == "cpu" else torch.finfo(dtype).eps)


# ---- what holds for all shapes -------------------------------------------------------------------------------------


@few_examples
@given(
    st.integers(1, 6), st.integers(1, 13), st.integers(1, 5), st.integers(1, 40), st.integers(1, 90),
    st.sampled_from(STYLES), st.sampled_from(DTYPES),
)  # fmt: skip
def test_any_shape_agrees_with_the_reference(device, small_gpu, tokens, q_heads, kv_heads, half, plain, style, dtype):
    heads, positions = (q_heads, kv_heads), places(tokens, device)
    check_split(randn((tokens, (q_heads + 2 * kv_heads) * 2 * half), dtype, device), heads, 2 * half, positions, style)
    args = parts(tokens, heads, plain, 2 * half, dtype, device)
    check_rope_concat(args, positions, style)
    check_concat(*args)


@few_examples
@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 3), st.integers(1, 20), st.sampled_from(STYLES))
def test_a_rotation_keeps_lengths_and_can_be_undone(device, tokens, q_heads, kv_heads, half, style):
    width, (cos, sin) = 2 * half, tables(device, 2 * half)
    positions = places(tokens, device)
    qkv = randn((tokens, (q_heads + 2 * kv_heads) * width), device=device)
    result = run("split_qkv_rope", qkv, cos, sin, positions, q_heads, kv_heads, width, style=style)
    turned = torch.cat(result, dim=1)
    assert_close(turned.norm(dim=-1), qkv.view(turned.shape).norm(dim=-1), 1e-5)
    back = run("split_qkv_rope", turned.flatten(1), cos, -sin, positions, q_heads, kv_heads, width, style=style)
    assert_close(torch.cat(back, dim=1).flatten(1), qkv, 1e-5)


@few_examples
@given(st.permutations(range(7)), st.sampled_from(STYLES))
def test_tokens_do_not_see_each_other(device, small_gpu, order, style):
    order = torch.tensor(order, device=device)
    qkv, positions, angles = randn((7, 5 * 8), device=device), places(7, device), tables(device, 8)
    y = run("split_qkv_rope", qkv, *angles, positions, 3, 1, 8, style=style)
    moved = run("split_qkv_rope", qkv[order], *angles, positions[order], 3, 1, 8, style=style)
    assert all(torch.equal(a[order], b) for a, b in zip(y, moved))


# ---- strides, sizes, tables of another dtype -----------------------------------------------------------------------


@styles
@pytest.mark.parametrize("view", [lambda x: x[:, 8:128], lambda x: x[::2, :120]], ids=["columns", "every other row"])
def test_a_strided_projection_is_read_in_place(style, view, device, small_gpu):
    qkv = view(randn((6, 130), device=device))
    check_split(qkv, (3, 1), 24, places(len(qkv), device), style)


@styles
def test_strided_parts_and_positions_are_read_in_place(style, device, small_gpu):
    """One key for all heads, parts of wider heads, positions a column of a table: as DeepSeek's code has them."""
    q = randn((4, 6, 24), device=device)
    kv = randn((4, 1, 24), device=device, seed=1).expand(-1, 3, -1)
    positions = torch.stack([places(4, device), torch.full((4,), 99, device=device)], dim=1)[:, 0]
    args = [q[..., :16], q[..., 16:], kv[..., :16], kv[..., 16:]]
    check_rope_concat(args, positions, style)
    check_concat(*args)
    check_split(q[:, :, :16].flatten(1), (4, 1), 16, positions, style)


@styles
def test_heads_wider_than_any_model_has_them(style, device):
    check_split(randn((1, 3 * 2050), device=device), (1, 1), 2050, places(1, device), style)
    check_rope_concat(parts(1, (1, 1), 4, 2050, device=device), places(1, device), style)


def test_a_later_call_leaves_the_results_of_an_earlier_one(device):
    args = parts(2, (2, 1), 4, 8, device=device)
    first = run("concat_qk", *args)
    before = [x.clone() for x in first]
    run("concat_qk", *(-x for x in args))
    assert all(map(torch.equal, first, before))


def test_rows_of_a_projection_beyond_two_to_the_31_elements(device):
    check_split(far_apart(randn((3, 24), torch.float16, device), 0), (1, 1), 8, places(3, device))


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_beyond_two_to_the_31_elements(dim, device):
    """Tokens and heads far apart."""
    far = [far_apart(x, dim) for x in parts(3, (3, 3), 8, 8, torch.float16, device)]
    check_rope_concat(far, places(3, device))
    check_concat(*far)


@pytest.mark.parametrize("table_dtype", DTYPES, ids=short)
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=short)
def test_tables_and_positions_of_another_dtype(table_dtype, index_dtype, dtype, device):
    cos, sin = (t.to(table_dtype) for t in tables(device, 16))
    check_split(randn((3, 5 * 16), dtype, device), (3, 1), 16, places(3, device).to(index_dtype), cos_sin=(cos, sin))


def test_a_position_past_the_tables_is_nan_where_values_are_not_checked(device, monkeypatch):
    """On a GPU nobody looks at the positions: the token must show it, and the kernel must not read past the tables."""
    monkeypatch.setattr(course_kernels.checks, "values_are_checked", lambda tensor: False)
    positions, (cos, sin) = torch.tensor([0, 64, -1, 63], device=device), tables(device, 8)
    q, k, v = run("split_qkv_rope", randn((4, 32), device=device), cos, sin, positions, 2, 1, 8)
    for turned in (q, k):
        assert turned[1:3].isnan().all() and turned[::3].isfinite().all()
    assert v.isfinite().all()
    q, k = run("rope_concat_qk", *parts(4, (2, 1), 4, 8, device=device), positions, cos, sin)
    for joined in (q, k):
        assert joined[1:3, :, 4:].isnan().all() and joined[..., :4].isfinite().all() and joined[::3].isfinite().all()


def test_empty_tensors_give_empty_tensors(device, no_launch):
    none, (cos, sin) = torch.empty(0, dtype=torch.int64, device=device), tables(device, 8)
    q, k, v = run("split_qkv_rope", torch.empty(0, 40, device=device), cos, sin, none, 3, 1, 8)
    assert q.shape == (0, 3, 8) and k.shape == v.shape == (0, 1, 8)
    args = parts(0, (3, 1), 4, 8, device=device)
    for q, k in (run("concat_qk", *args), run("rope_concat_qk", *args, none, cos, sin)):
        assert q.shape == (0, 3, 12) and k.shape == (0, 1, 12)
    q, k = run("concat_qk", *parts(2, (3, 1), 0, 8, device=device))
    assert q.shape == (2, 3, 8) and k.shape == (2, 1, 8)


# ---- how it is launched --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "kinds", "head_dim", "least", "heads"),
    [
        (1, (32, 8, 8), 128, 48, 1),
        (64, (32, 8, 8), 128, 304, 8),
        (4096, (32, 8, 8), 128, 1024, 16),
        (4096, (9, 3, 3), 64, 1024, 4),
        (4096, (16, 1), 64, 1024, 4),
        (4096, (40, 8, 8), 128, 1024, 8),
    ],
    ids=str,
)
def test_programs_for_every_compute_unit_and_several_heads_a_program(tokens, kinds, head_dim, least, heads):
    """A token of decoding has a program for each head, a prompt has several heads in each."""
    x = torch.empty(0, dtype=torch.bfloat16)
    (blocks_t, blocks_h), meta = launch.head_groups(tokens, kinds, head_dim, x)
    assert blocks_t * blocks_h >= least
    assert meta["BLOCK_H"] == heads
    assert blocks_h == sum(-(-kind // heads) for kind in kinds) and blocks_t == -(-tokens // meta["BLOCK_T"])


# ---- refusals, each before any launch ------------------------------------------------------------------------------


def changed(index, change):
    return lambda args: [change(x) if i == index else x for i, x in enumerate(args)]


SPLIT_REFUSALS = {
    "float64": (TypeError, "qkv must be float32", changed(0, lambda x: x.double())),
    "list": (TypeError, "qkv must be a torch.Tensor, got list", changed(0, lambda x: [1.0])),
    "three dimensions": (ValueError, "qkv must have 2 dimensions", changed(0, lambda x: x[None])),
    "width": (ValueError, r"qkv must have shape \(4, 40\), got \(4, 39\)", changed(0, lambda x: x[:, 1:])),
    "head counts": (ValueError, r"qkv must have shape \(4, 48\)", changed(4, lambda heads: 4)),
    "no key head": (ValueError, "num_kv_heads must be at least 1, got 0", changed(5, lambda heads: 0)),
    "no query head": (ValueError, "num_q_heads must be at least 1, got -3", changed(4, lambda heads: -heads)),
    "no width": (ValueError, "head_dim must be at least 1", changed(6, lambda width: 0)),
    "odd head": (ValueError, "must be even, got width 5", lambda a: [a[0][:, :25], *a[1:6], 5]),
    "strides": (ValueError, "qkv needs a last dimension of stride 1", changed(0, lambda x: x.t().contiguous().t())),
    "grad": (ValueError, "qkv requires grad", changed(0, lambda x: x.requires_grad_())),
    "cos is int": (TypeError, "cos must be float32", changed(1, lambda cos: cos.int())),
    "tables of two dtypes": (TypeError, "cos and sin must have one dtype", changed(2, lambda sin: sin.half())),
    "tables of two lengths": (ValueError, "one shape", changed(2, lambda sin: sin[1:])),
    "table elsewhere": (ValueError, "sin is on meta", changed(2, lambda sin: sin.to("meta"))),
    "table width": (
        ValueError,
        r"cos must have shape \(5, 4\), got \(5, 8\)",
        lambda a: [a[0], *(t.repeat(1, 2) for t in a[1:3]), *a[3:]],
    ),
    "positions are float": (TypeError, "positions must be int32", changed(3, lambda p: p.float())),
    "positions of another length": (ValueError, r"positions must have shape \(4,\)", changed(3, lambda p: p[1:])),
    "positions elsewhere": (ValueError, "positions is on meta", changed(3, lambda p: p.to("meta"))),
}
CONCAT_REFUSALS = {
    "float64": (TypeError, "q_nope must be float32", changed(0, lambda x: x.double())),
    "two dtypes": (TypeError, "q_nope and k_pe must have one dtype", changed(3, lambda x: x.half())),
    "two dimensions": (ValueError, "q_pe must have 3 dimensions", changed(1, lambda x: x[0])),
    "tokens": (ValueError, r"q_pe must have shape \(4, 3, 8\), got \(3, 3, 8\)", changed(1, lambda x: x[1:])),
    "heads": (ValueError, r"q_pe must have shape \(4, 3, 8\), got \(4, 2, 8\)", changed(1, lambda x: x[:, 1:])),
    "widths of Q and K": (ValueError, r"k_nope must have shape \(4, 2, 6\)", changed(2, lambda x: x[..., 1:])),
    "widths of pe": (ValueError, r"k_pe must have shape \(4, 2, 8\)", changed(3, lambda x: x[..., 1:])),
    "key heads": (ValueError, r"k_pe must have shape \(4, 2, 8\), got \(4, 1, 8\)", changed(3, lambda x: x[:, 1:])),
    "strides": (ValueError, "k_pe needs a last dimension", changed(3, lambda x: x.mT.contiguous().mT)),
    "elsewhere": (ValueError, "k_nope is on meta", changed(2, lambda x: x.to("meta"))),
    "grad": (ValueError, "k_nope requires grad", changed(2, lambda x: x.requires_grad_())),
}
ROPE_REFUSALS = {
    "odd width": (
        ValueError,
        "must be even, got width 7",
        lambda a: [a[0], a[1][..., 1:], a[2], a[3][..., 1:], *a[4:]],
    ),
    "positions": (ValueError, r"positions must have shape \(4,\)", changed(4, lambda p: p[:, None])),
    "tables": (ValueError, "cos must be contiguous", lambda a: [*a[:5], *(t[::2] for t in a[5:])]),
    "table grad": (ValueError, "cos requires grad", changed(5, lambda cos: cos.requires_grad_())),
    "table elsewhere": (ValueError, "cos is on meta", lambda a: [*a[:5], *(t.to("meta") for t in a[5:])]),
    "tables of float64": (TypeError, "cos must be float32", lambda a: [*a[:5], *(t.double() for t in a[5:])]),
}


def split_arguments(device):
    positions = torch.arange(4, device=device)
    return [randn((4, 5 * 8), device=device), *tables(device, 8, 5), positions, 3, 1, 8]


def concat_arguments(device):
    return [*parts(4, (3, 2), 6, 8, device=device), torch.arange(4, device=device), *tables(device, 8, 5)]


def assert_refused(name, error, message, args, backend="auto", **kwargs):
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        getattr(course_kernels, name)(*args, **kwargs)


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", SPLIT_REFUSALS)
def test_bad_arguments_of_split_are_named(case, backend, device, no_launch):
    error, message, spoil = SPLIT_REFUSALS[case]
    assert_refused("split_qkv_rope", error, message, spoil(split_arguments(device)), backend)


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", [*CONCAT_REFUSALS, *ROPE_REFUSALS])
def test_bad_arguments_of_concat_are_named(case, backend, device, no_launch):
    error, message, spoil = (CONCAT_REFUSALS | ROPE_REFUSALS)[case]
    args = spoil(concat_arguments(device))
    assert_refused("rope_concat_qk", error, message, args, backend)
    if case in CONCAT_REFUSALS:
        message = message.replace("_nope", "1").replace("_pe", "2")
        assert_refused("concat_qk", error, message, args[:4], backend)


@pytest.mark.parametrize(("place", "value"), [(1, -1), (3, 5)])
def test_bad_values_and_styles_are_named(place, value, device, no_launch, monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS_CHECKS", "1")  # a GPU looks at them only then
    message = rf"positions\[{place}\] is {value} but must be in \[0, 5\)"
    for name, args, index in (
        ("split_qkv_rope", split_arguments(device), 3),
        ("rope_concat_qk", concat_arguments(device), 4),
    ):
        assert_refused(name, ValueError, "style must be one of neox, gptj; got 'llama'", args, style="llama")
        args[index][place] = value
        assert_refused(name, ValueError, message, args)
