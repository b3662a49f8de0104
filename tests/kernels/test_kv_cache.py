"""Keys and values written to caches: where, how rounded, what stays untouched; queries and keys turned; refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import DTYPES, TOLERANCE, assert_close, bits, far_apart, places, randn, run, short, tables

import course_kernels
from course_kernels import fp8_dtype, launch, reference
from course_kernels.kv_cache import LAYOUTS
from course_kernels.rope import STYLES

FN, FNUZ = torch.float8_e4m3fn, torch.float8_e4m3fnuz
few_examples = settings(
    max_examples=6, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
styles = pytest.mark.parametrize("style", STYLES)
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def heads(tokens, counts, head_dim, dtype=torch.float32, device="cpu"):
    """q, k, v as slices of the rows of one projection. tokens: T or (B, S); counts: heads of Q, of K and V."""
    tokens = (tokens,) if isinstance(tokens, int) else tokens
    qkv = randn((*tokens, counts[0] + 2 * counts[1], head_dim), dtype, device, seed=1)
    return qkv.split([counts[0], counts[1], counts[1]], dim=-2)


def pages(count, page_size, kv_heads, head_dim, dtype, device, layout="flash"):
    """Two caches in which nothing is alike, so that no write goes unseen."""
    x = 16 // dtype.itemsize
    flash = count, page_size, kv_heads, head_dim
    shapes = [flash, flash]
    if layout == "packed":
        shapes = (count, kv_heads, head_dim // x, page_size, x), (count, kv_heads, head_dim, page_size)
    return [(randn(shape, torch.float32, device, seed=2 + i) / 4).to(dtype) for i, shape in enumerate(shapes)]


def by_slot(k_cache, v_cache, layout):
    """Both caches as (slots, KH, D), by hand."""
    if layout == "packed":  # (page, head, group, place, element) and (page, head, element, place)
        k_cache, v_cache = k_cache.permute(0, 3, 1, 2, 4).flatten(3), v_cache.permute(0, 3, 1, 2)
    return [cache.reshape(-1, *cache.shape[2:]) for cache in (k_cache, v_cache)]


def assert_caches(caches, before, want_k, v, slots, layout="flash"):
    """Row t of want_k, (T_slot, KH, D) in float64, and of v is in slot slots[t]; everything else as it was."""
    rows, old = by_slot(*caches, layout), by_slot(*before, layout)
    written = slots[slots >= 0].long()
    untouched = torch.ones(len(rows[0]), dtype=torch.bool, device=slots.device)
    untouched[written] = False
    for row, was in zip(rows, old):
        assert torch.equal(bits(row[untouched]), bits(was[untouched])), "a slot that nobody addressed has changed"
    assert_close(rows[0][written], want_k[slots >= 0], TOLERANCE[v.dtype])
    assert torch.equal(bits(rows[1][written]), bits(v[slots >= 0]))


def check_paged(q, k, v, caches, slots, positions, cos_sin=None, layout="flash", style="neox"):
    """Against rotation by the reference and slots by hand; inputs stay as they were."""
    cos, sin = cos_sin or tables(k.device, k.shape[-1])
    inputs, before = (q, k, v), [cache.clone() for cache in caches]
    copies = [x.clone() for x in inputs]
    q_out, k_out = run(
        "paged_kv_cache_update", q, k, v, *caches, slots, positions, cos, sin, layout=layout, style=style
    )
    want_q, want_k = (reference.rotate_tokens(x.double(), positions, cos, sin, style) for x in (q, k[: len(positions)]))
    for y, want, x in ((q_out, want_q, q), (k_out, want_k, k)):
        assert y.shape == want.shape and y.dtype == x.dtype and y.is_contiguous()
        assert_close(y, want, TOLERANCE[x.dtype])
    assert_caches(caches, before, torch.cat([want_k, k[len(positions) :].double()]), v, slots, layout)
    assert all(torch.equal(bits(x), bits(copy)) for x, copy in zip(inputs, copies))
    return q_out, k_out


def slots_of(*values, device="cpu"):
    return torch.tensor(values, dtype=torch.int64, device=device)


# ---- one row for each position -------------------------------------------------------------------------------------


def check_contiguous(q, k, v, caches, positions, cos_sin=None, style="neox"):
    """As `check_paged`: the cache of sequence b is page b."""
    cos, sin = cos_sin or tables(k.device, k.shape[-1])
    before = [cache.clone() for cache in caches]
    copies = [x.clone() for x in (q, k, v)]
    q_out = run("kv_cache_update", q, k, v, *caches, positions, cos, sin, style=style)
    assert q_out.shape == q.shape and q_out.dtype == q.dtype and q_out.is_contiguous()
    assert_close(q_out, reference.rotate_tokens(q.double(), positions, cos, sin, style), TOLERANCE[q.dtype])
    sequence = torch.arange(len(k), device=k.device)[:, None]
    slots = (sequence * caches[0].shape[1] + positions).flatten()
    want_k = reference.rotate_tokens(k.double(), positions, cos, sin, style).flatten(0, 1)
    assert_caches(caches, before, want_k, v.flatten(0, 1), slots)
    assert all(map(torch.equal, (q, k, v), copies))


@pytest.mark.one_in(5)
@styles
@pytest.mark.parametrize("counts", [(1, 1), (8, 1), (8, 8), (9, 3), (12, 12), (2, 5)], ids=str)
def test_contiguous(style, counts, dtype, device, small_gpu):
    positions = torch.tensor([[63, 0, 5], [62, 3, 1]], device=device)  # not monotone, the last place among them
    caches = pages(2, 64, counts[1], 32, dtype, device)
    check_contiguous(*heads((2, 3), counts, 32, dtype, device), caches, positions, style=style)


@pytest.mark.parametrize("tokens", [1, 8, 40])
@pytest.mark.parametrize("head_dim", [2, 6, 64, 128])
def test_contiguous_sizes(tokens, head_dim, device, small_gpu):
    positions = torch.stack([torch.randperm(48, generator=torch.Generator().manual_seed(b))[:tokens] for b in (0, 1)])
    caches = pages(2, 48, 2, head_dim, torch.bfloat16, device)
    check_contiguous(*heads((2, tokens), (4, 2), head_dim, torch.bfloat16, device), caches, positions.to(device))


def test_a_cache_filled_by_a_model(dtype, device, small_gpu):
    """A prompt, then token after token, each sequence at its own place; SmolLM2's heads, turned before."""
    lengths = torch.tensor([4, 7], device=device)
    caches = pages(2, 16, 3, 64, dtype, device)
    before = [cache.clone() for cache in caches]
    all_k, all_v = (randn((2, 10, 3, 64), dtype, device, seed) for seed in (5, 6))
    for start, count in ((0, 4), (4, 1), (5, 1)):
        positions = torch.arange(start, start + count, device=device).expand(2, -1) + (lengths - 4)[:, None] * (
            start > 0
        )
        k, v = (x[:, start : start + count] for x in (all_k, all_v))
        assert run("kv_cache_update", None, k, v, *caches, positions) is None
        for b in range(2):
            for cache, x in zip(before, (k, v)):
                cache[b, positions[b]] = x[b]
    assert all(torch.equal(bits(a), bits(b)) for a, b in zip(caches, before))


def test_contiguous_without_angles_gives_q_back(device):
    q, k, v = heads((2, 3), (4, 2), 5, device=device)  # an odd width: nothing is a pair
    caches = pages(2, 8, 2, 5, torch.float32, device)
    positions = torch.tensor([[0, 7, 3], [1, 2, 3]], device=device)
    assert run("kv_cache_update", q, k, v, *caches, positions) is q
    for cache, x in zip(caches, (k, v)):
        assert torch.equal(cache[torch.arange(2)[:, None], positions], x)


def test_contiguous_strides_are_honoured(device, small_gpu):
    """Sequence first and heads first in memory, positions a slice, caches two halves of one tensor."""
    q, k, v = (x.transpose(0, 1) for x in heads((3, 2), (4, 2), 8, device=device))
    both = randn((2, 2, 16, 2, 8), device=device)
    caches = [half.transpose(1, 2) for half in both.transpose(2, 3).contiguous().unbind(1)]
    positions = torch.tensor([[3, 9, 0, 9], [1, 0, 2, 9]], device=device)[:, :3]
    check_contiguous(q, k, v, caches, positions)


def test_each_tensor_of_sequences_has_strides_of_its_own(device, small_gpu):
    """Also where caches of the same shape, without gaps, have been written before."""
    q, k, v = (
        randn((2, 4 + i, count + 1 + i, 16 + 8 * i), device=device, seed=i)[:, :3, :count, :16]
        for i, count in enumerate((3, 2, 2))
    )
    wide = [randn((3, 6 + i, 3 + i, 16 + 8 * i), device=device, seed=i)[:2, :5, :2, :16] for i in range(2)]
    positions, slots = torch.tensor([[3, 0, 1], [4, 2, 0]], device=device), slots_of(9, 0, -1, device=device)
    for caches in (pages(2, 5, 2, 16, torch.float32, device), wide):
        check_contiguous(q, k, v, caches, positions)
        check_paged(q[1], k[1], v[1], caches, slots, places(3, device))
    wide = [randn((3, 3, 4, 5, 4), device=device)[:2, :2], randn((2, 4, 24, 5), device=device)[:, :2, :16]]
    for caches in (pages(2, 5, 2, 16, torch.float32, device, "packed"), wide):
        check_paged(q[1], k[1], v[1], caches, slots, places(3, device), layout="packed")


@styles
def test_heads_wider_than_any_model_has_them(style, device):
    caches, positions = pages(1, 2, 1, 1040, torch.float32, device), torch.tensor([[1]], device=device)
    check_contiguous(*heads((1, 1), (1, 1), 1040, device=device), caches, positions, style=style)


# ---- pages ---------------------------------------------------------------------------------------------------------


@styles
@layouts
@pytest.mark.parametrize("counts", [(1, 1), (16, 8), (9, 3), (40, 8), (2, 5)], ids=str)
def test_paged(style, layout, counts, dtype, device, small_gpu):
    """A token without a slot; the first slot and the last; rows that are cached only; more pages than places."""
    q, k, v = heads(6, counts, 64, dtype, device)
    caches = pages(5, 3, counts[1], 64, dtype, device, layout)
    slots = slots_of(14, 0, -1, 7, 5, 8, device=device)
    check_paged(q[:4], k, v, caches, slots, places(4, device), layout=layout, style=style)


@layouts
@pytest.mark.parametrize("tokens", [1, 8, 33])
@pytest.mark.parametrize(("kv_heads", "head_dim", "page_size"), [(1, 64, 16), (8, 128, 64), (2, 80, 5)], ids=str)
def test_paged_sizes(layout, tokens, kv_heads, head_dim, page_size, device, small_gpu):
    count = -(-2 * tokens // page_size)
    slots = torch.randperm(count * page_size, generator=torch.Generator().manual_seed(0))[:tokens].to(device)
    caches = pages(count, page_size, kv_heads, head_dim, torch.bfloat16, device, layout)
    q, k, v = heads(tokens, (2 * kv_heads, kv_heads), head_dim, torch.bfloat16, device)
    check_paged(q, k, v, caches, slots, places(tokens, device), layout=layout)


@layouts
def test_neighbours_that_are_pairs_end_with_their_head(layout, device, small_gpu):
    """24 elements, where a block has 32: what follows is the next head, place or page."""
    q, k, v = heads(3, (3, 2), 24, device=device)
    caches, slots = pages(3, 4, 2, 24, torch.float32, device, layout), slots_of(4, 0, 7, device=device)
    check_paged(q, k, v, caches, slots, places(3, device), layout=layout, style="gptj")


@pytest.mark.slow
@layouts
@pytest.mark.parametrize("kv_heads", [1, 8])
def test_paged_of_a_prompt(layout, kv_heads, dtype, device):
    caches = pages(40, 16, kv_heads, 128, dtype, device, layout)
    slots = torch.randperm(640, generator=torch.Generator().manual_seed(0))[:257].to(device)
    q, k, v = heads(257, (kv_heads, kv_heads), 128, dtype, device)
    check_paged(q[:250], k, v, caches, slots, places(250, device), layout=layout)


@pytest.mark.parametrize(
    ("counts", "head_dim", "base"),
    [((9, 3), 64, 100000.0), ((32, 8), 128, 500000.0), ((40, 40), 128, 1000000.0)],
    ids=["SmolLM2", "Llama 3 8B", "Qwen 14B"],
)
@layouts
def test_paged_for_real_models(layout, counts, head_dim, base, device, small_gpu):
    caches = pages(3, 16, counts[1], head_dim, torch.bfloat16, device, layout)
    q, k, v = heads(3, counts, head_dim, torch.bfloat16, device)
    positions = torch.tensor([131071, 0, 8191], device=device)
    angles = tables(device, head_dim, 131072, base)
    check_paged(q, k, v, caches, slots_of(40, 2, 47, device=device), positions, angles, layout)


@styles
@layouts
@pytest.mark.parametrize("turned", [0, 1, 5])
def test_rows_past_the_queries_are_cached_as_they_are(style, layout, turned, dtype, device, small_gpu):
    """Exactly: infinities and NaN too, which a rotation by no angle would spread to their partners."""
    q, k, v = heads(5, (4, 2), 16, dtype, device)
    k[turned:, :, 3], k[turned:, :, 12] = float("inf"), float("nan")
    caches = pages(2, 4, 2, 16, dtype, device, layout)
    slots = slots_of(7, 3, 0, 1, 4, device=device)
    check_paged(q[:turned], k, v, caches, slots, places(turned, device), layout=layout, style=style)
    assert_close(by_slot(*caches, layout)[0][slots[turned:]], k[turned:], 0)


@layouts
@pytest.mark.parametrize("with_q", [False, True])
@pytest.mark.parametrize("with_positions", [False, True])
def test_without_angles_nothing_is_turned(layout, with_q, with_positions, dtype, device, small_gpu):
    q, k, v = heads(5, (4, 2), 16, dtype, device)
    turned = 3 if with_positions else 5
    q, positions = (q[:turned] if with_q else None), (places(3, device) if with_positions else None)
    caches = pages(3, 4, 2, 16, dtype, device, layout)
    before, slots = [cache.clone() for cache in caches], slots_of(11, -1, 0, 4, 3, device=device)
    q_out, k_out = run("paged_kv_cache_update", q, k, v, *caches, slots, positions, layout=layout)
    assert q_out is q and torch.equal(k_out, k[:turned])
    assert_caches(caches, before, k.double(), v, slots, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("style", STYLES)
def test_offsets_are_added_to_the_positions_and_leave_the_slots(style, layout, dtype, device, small_gpu):
    """A draft of speculative decoding: its tokens stand further on than their positions in the batch say."""
    args = paged_arguments(device, layout)
    for name in ("q", "k", "v", "k_cache", "v_cache"):
        args[name] = args[name].to(dtype)
    if layout == "packed":
        args["k_cache"], args["v_cache"] = pages(5, 4, args["k"].shape[1], args["k"].shape[2], dtype, device, layout)
    same = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in args.items()}
    offsets = (torch.arange(len(args["positions"])) % 3 - 1).to(device, torch.int32)
    args["positions"] = args["positions"].clamp(min=1, max=3)
    same["positions"] = args["positions"] + offsets
    got, want = (
        run("paged_kv_cache_update", **args, offsets=offsets, style=style),
        run("paged_kv_cache_update", **same, style=style),
    )
    for a, b in zip((*got, args["k_cache"], args["v_cache"]), (*want, same["k_cache"], same["v_cache"]), strict=True):
        assert torch.equal(bits(a), bits(b))
    with course_kernels.use_backend("torch"):
        slow = course_kernels.paged_kv_cache_update(**args, offsets=offsets, style=style)
    assert_close(got[0], slow[0], TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (TypeError, "offsets must be int32 or int64", lambda a: {"offsets": a["positions"].float()}),
        (ValueError, "offsets must have shape", lambda a: {"offsets": a["positions"][1:]}),
        (
            ValueError,
            "offsets are added to the positions",
            lambda a: {"offsets": a["positions"], "cos": None, "sin": None},
        ),
        (ValueError, r"positions\[0\] is", lambda a: {"offsets": a["positions"] + 10**6}),
    ],
)
def test_bad_offsets_are_named(error, message, change, device, no_launch, monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS_CHECKS", "1")
    args = paged_arguments(device)
    with pytest.raises(error, match=message):
        course_kernels.paged_kv_cache_update(**{**args, **change(args)})


def test_keys_alone_can_be_turned(device):
    _, k, v = heads((2, 3), (4, 2), 16, device=device)
    (cos, sin), positions = tables(device, 16), torch.tensor([[0, 7, 3], [1, 2, 3]], device=device)
    caches, paged = pages(2, 8, 2, 16, k.dtype, device), pages(2, 8, 2, 16, k.dtype, device)
    assert run("kv_cache_update", None, k, v, *caches, positions, cos, sin) is None
    slots = (positions + slots_of(0, 8, device=device)[:, None]).flatten()
    q_out, k_out = run(
        "paged_kv_cache_update", None, k.flatten(0, 1), v.flatten(0, 1), *paged, slots, positions.flatten(), cos, sin
    )
    assert q_out is None and torch.equal(k_out, paged[0].flatten(0, 1)[slots])
    assert all(map(torch.equal, caches, paged))


def test_paged_strides_are_honoured(device, small_gpu):
    """Both caches in one tensor, page by page; positions a column; q, k and v slices of one projection."""
    q, k, v = heads(4, (3, 2), 16, device=device)
    slots = slots_of(0, 7, 5, -1, device=device)
    positions = torch.stack([places(4, device), torch.full((4,), 99, device=device)], dim=1)[:, 0]
    flash = randn((2, 2, 4, 2, 16), device=device)
    check_paged(q, k, v, list(flash.unbind(1)), slots, positions)
    packed = randn((2, 2, 2, 4, 4, 4), device=device)
    k_cache, v_cache = packed.unbind(1)
    check_paged(q, k, v, [k_cache, v_cache.flatten(2, 3).mT.contiguous().mT], slots, positions, layout="packed")


def test_each_tensor_has_strides_of_its_own(device, small_gpu):
    """Tokens and heads of q, k and v lie apart by six different distances."""
    q, k, v = (
        randn((4, count + 1 + i, 16 + 8 * i), device=device, seed=i)[:, :count, :16]
        for i, count in enumerate((3, 2, 2))
    )
    caches, slots = pages(3, 4, 2, 16, torch.float32, device), slots_of(0, 7, 5, -1, device=device)
    check_paged(q, k, v, caches, slots, places(4, device))


# ---- fp8 -----------------------------------------------------------------------------------------------------------


def codes(x):
    """fp8 as integers in the order of the numbers: neighbours differ by 1."""
    code = x.view(torch.uint8).int()
    return torch.where(code >= 128, 128 - code, code)


@pytest.mark.one_in(5)
@styles
@layouts
@pytest.mark.parametrize("kind", ["number", "tensor", "one of each"])
def test_fp8(style, layout, kind, dtype, fp8, device, small_gpu):
    q, k, v = heads(5, (4, 2), 64, dtype, device)
    (cos, sin), positions = tables(device, 64), places(4, device)
    slots = slots_of(11, -1, 0, 4, 3, device=device)
    caches = pages(3, 4, 2, 64, fp8, device, layout)
    want = [cache.clone() for cache in caches]
    scales = {"k_scale": 0.03, "v_scale": 0.3}
    if kind != "number":
        scales["k_scale"] = torch.tensor(0.03, device=device)
    if kind == "tensor":
        scales["v_scale"] = torch.tensor([0.3], device=device)
    options = {"layout": layout, "style": style}
    q_out, k_out = run("paged_kv_cache_update", q[:4], k, v, *caches, slots, positions, cos, sin, **options, **scales)
    assert_close(q_out, reference.rotate_tokens(q[:4].double(), positions, cos, sin, style), TOLERANCE[dtype])
    assert_close(k_out, reference.rotate_tokens(k[:4].double(), positions, cos, sin, style), TOLERANCE[dtype])
    doubles = (x.double() for x in (q[:4], k, v))
    reference.paged_kv_cache_update(*doubles, *want, slots, positions, cos, sin, **options, **scales)
    for got, expected in zip(caches, want):  # x * (1 / scale) and x / scale may fall on different sides of a tie
        off = (codes(got) - codes(expected)).abs()
        assert off.max() <= 1 and (off > 0).float().mean() < 0.01
    rows = by_slot(*caches, layout)[1]
    assert_close(rows[slots[slots >= 0]].float() * 0.3, v[slots >= 0], 1 / 16)


@layouts
def test_fp8_is_rounded_to_nearest_even_and_clamped(layout, fp8, device):
    """Ties, numbers past the largest, subnormals, zeros, infinities, NaN; exact, since the scale is a power of two."""
    largest = torch.finfo(fp8).max
    numbers = [17, 19, 1.0625, 1.1875, 1.99, largest * 0.99, largest, largest * 1.03, 1e30, float("inf"), 2.0**-10]
    numbers += [3 * 2.0**-11, 2.0**-12, 0.0, 1e-30, float("nan")]
    k = torch.tensor([numbers, [-x for x in numbers]], device=device).view(2, 1, 16) * 4
    caches = pages(1, 2, 1, 16, fp8, device, layout)
    options = {"layout": layout, "k_scale": 4, "v_scale": 8.0}
    run("paged_kv_cache_update", None, k, 2 * k, *caches, slots_of(1, 0, device=device), **options)
    want = (k / 4).clamp(-largest, largest).to(fp8)
    for rows in by_slot(*caches, layout):
        got, expected = rows[[1, 0]].float(), want.float()
        assert torch.equal(got.isnan(), k.isnan()) and torch.equal(got.nan_to_num(), expected.nan_to_num())


def test_scales_of_16_bits_divide_as_those_of_32(fp8, device):
    """1 / scale is larger than a float16 can be."""
    k, v = (x * 1e-4 for x in heads(4, (1, 2), 64, device=device)[1:])
    scale, slots = torch.tensor([1e-5], dtype=torch.float16, device=device), slots_of(0, 5, 3, 4, device=device)
    results = [pages(2, 3, 2, 64, fp8, device) for _ in range(2)]
    for caches, same in zip(results, (scale, scale.float())):
        run("paged_kv_cache_update", None, k, v, *caches, slots, k_scale=same, v_scale=same)
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(*results))


def test_fp8_of_every_bfloat16(fp8, device):
    """All 65280 finite numbers, at scale 1: what PyTorch's own conversion makes of them."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    every = every[every.isfinite()].to(device)
    k = every[: len(every) // 2048 * 2048].view(-1, 8, 256)
    caches = pages(len(k), 1, 8, 256, fp8, device)
    slots = torch.arange(len(k), device=device)
    run("paged_kv_cache_update", None, k, k.flip(0), *caches, slots, k_scale=1.0, v_scale=1.0)
    largest = torch.finfo(fp8).max
    want = k.float().clamp(-largest, largest).to(fp8)
    assert torch.equal(caches[0][:, 0].float(), want.float())
    assert torch.equal(caches[1][:, 0].float(), want.flip(0).float())


# ---- what holds for all --------------------------------------------------------------------------------------------


@few_examples
@given(
    st.integers(1, 3), st.integers(1, 5), st.integers(0, 5), st.integers(1, 4), st.integers(1, 20),
    st.sampled_from(STYLES), st.sampled_from(DTYPES), st.integers(0, 99),
)  # fmt: skip
def test_paged_equals_contiguous(device, small_gpu, batch, seq_len, q_heads, kv_heads, half, style, dtype, seed):
    """Page b belongs to sequence b, in whatever order the tokens come."""
    generator, head_dim = torch.Generator().manual_seed(seed), 2 * half
    q, k, v = heads((batch, seq_len), (q_heads, kv_heads), head_dim, dtype, device)
    cos, sin = tables(device, head_dim)
    positions = torch.stack([torch.randperm(9, generator=generator)[:seq_len] for _ in range(batch)]).to(device)
    caches, paged = (pages(batch, 9, kv_heads, head_dim, dtype, device) for _ in range(2))
    q_out = run("kv_cache_update", q, k, v, *caches, positions, cos, sin, style=style)
    slots = (positions + 9 * torch.arange(batch, device=device)[:, None]).flatten()
    order = torch.randperm(batch * seq_len, generator=generator).to(device)
    rows = [x.flatten(0, 1)[order] for x in (q, k, v)]
    result = run(
        "paged_kv_cache_update", *rows, *paged, slots[order], positions.flatten()[order], cos, sin, style=style
    )
    # Interpreted, bit for bit. Compiled, the two launches are two programs, of which one may contract a * cos - b * sin
    # to a single rounding where the other rounds twice: half a last place of x, as in every test of values.
    tolerance = TOLERANCE[dtype] if device == "cuda" else 0.0
    assert_close(paged[0], caches[0], tolerance)
    assert torch.equal(paged[1], caches[1])
    assert_close(result[0], q_out.flatten(0, 1)[order], tolerance)


@few_examples
@given(st.permutations(range(12)), st.sampled_from(LAYOUTS), st.sampled_from(STYLES), st.integers(0, 12))
def test_slots_can_be_renamed_and_others_stay(device, small_gpu, order, layout, style, skipped):
    """Rows in slots of another order; those below 0 are nowhere."""
    q, k, v = heads(12, (2, 2), 16, device=device)
    (cos, sin), positions = tables(device, 16), places(12, device)
    slots = torch.arange(12, device=device) + 3
    slots[skipped:] = -1 - slots[skipped:]
    moved = torch.tensor([*range(3), *(3 + i for i in order), 15], device=device)
    first, second = (pages(4, 4, 2, 16, torch.float32, device, layout) for _ in range(2))
    before = [x.clone() for x in by_slot(*second, layout)]
    options = {"layout": layout, "style": style}
    run("paged_kv_cache_update", q, k, v, *first, slots, positions, cos, sin, **options)
    renamed = torch.where(slots < 0, slots, moved[slots.clamp(min=0)])
    run("paged_kv_cache_update", q, k, v, *second, renamed, positions, cos, sin, **options)
    for a, b, old in zip(by_slot(*first, layout), by_slot(*second, layout), before):
        assert torch.equal(b[moved[3 : 3 + skipped]], a[3 : 3 + skipped])
        untouched = [i for i in range(16) if i not in moved[3 : 3 + skipped].tolist()]
        assert torch.equal(b[untouched], old[untouched])


@few_examples
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 20), st.sampled_from(STYLES))
def test_lengths_stay(device, tokens, kv_heads, half, style):
    q, k, v = heads(tokens, (3, kv_heads), 2 * half, device=device)
    caches = pages(1, tokens, kv_heads, 2 * half, torch.float32, device)
    slots = torch.arange(tokens, device=device)
    q_out, k_out = run(
        "paged_kv_cache_update", q, k, v, *caches, slots, places(tokens, device), *tables(device, 2 * half), style=style
    )
    for x, y in ((q, q_out), (k, k_out), (k, caches[0][0])):
        assert_close(y.norm(dim=-1), x.norm(dim=-1), 1e-5)


def test_paged_attention_reads_what_was_written(dtype, device, small_gpu):
    """Token by token into shuffled pages; the last query sees what one pass over the sequence would show it."""
    q, k, v = heads(10, (4, 2), 16, dtype, device)
    (cos, sin), positions = tables(device, 16), torch.arange(10, device=device)
    caches = pages(5, 4, 2, 16, dtype, device)
    table = torch.tensor([[3, 0, 4]], dtype=torch.int32, device=device)
    slots = table[0, positions // 4] * 4 + positions % 4
    for t in (slice(0, 7), slice(7, 8), slice(8, 10)):
        q_out, _ = run("paged_kv_cache_update", q[t], k[t], v[t], *caches, slots[t], positions[t], cos, sin)
    length = torch.tensor([10], dtype=torch.int32, device=device)
    o = run("paged_decode_attention", q_out[-1:], *caches, table, length)
    turned = [reference.rotate_tokens(x.double(), positions, cos, sin, "neox") for x in (q, k)]
    want = reference.flash_attention(*(x.transpose(0, 1)[None] for x in (*turned, v.double())), causal=True)
    assert_close(o[0], want[0, :, -1], 2 * TOLERANCE[dtype])


# ---- sizes and values at the edge ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1])
def test_rows_beyond_two_to_the_31_elements(dim, device):
    """Tokens, sequences and heads far apart."""
    q, k, v = (far_apart(x, dim) for x in heads(3, (3, 3), 8, torch.float16, device))
    slots = slots_of(5, 0, 4, device=device)
    check_paged(q, k, v, pages(2, 3, 3, 8, torch.float16, device), slots, places(3, device))
    caches = pages(3, 3, 3, 8, torch.float16, device)
    sequences = [x[:, None] for x in (q, k, v)]
    check_contiguous(*sequences, caches, torch.tensor([[2], [0], [1]], device=device))


@pytest.mark.parametrize(
    ("layout", "dims"),
    [
        ("flash", (0, 0)),
        ("flash", (1, 1)),
        ("flash", (2, 2)),
        ("packed", (0, 0)),
        ("packed", (1, 1)),
        ("packed", (2, 3)),
    ],
    ids=str,
)
def test_caches_beyond_two_to_the_31_elements(layout, dims, device):
    """Pages, places, heads and groups of elements far apart."""
    q, k, v = heads(3, (1, 3), 24, torch.float16, device)
    caches = [far_apart(x, dim) for x, dim in zip(pages(3, 3, 3, 24, torch.float16, device, layout), dims)]
    slots = slots_of(8, 0, 5, device=device).int()  # in the interpreter their product with a stride would overflow
    check_paged(q, k, v, caches, slots, places(3, device), layout=layout)
    if layout == "flash":
        q, k, v = heads((3, 3), (1, 3), 24, torch.float16, device)
        check_contiguous(q, k, v, caches, torch.tensor([[2, 0, 1]] * 3, device=device))


@pytest.mark.parametrize("table_dtype", DTYPES, ids=short)
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=short)
def test_tables_and_indices_of_another_dtype(table_dtype, index_dtype, dtype, device):
    angles = [t.to(table_dtype) for t in tables(device, 16)]
    q, k, v = heads(3, (2, 1), 16, dtype, device)
    slots, positions = (x.to(index_dtype) for x in (slots_of(3, -1, 0, device=device), places(3, device)))
    check_paged(q, k, v, pages(2, 2, 1, 16, dtype, device), slots, positions, angles)


def test_where_values_are_not_checked_nothing_is_written_out_of_bounds(device, monkeypatch):
    """On a GPU nobody looks at slots and positions: a token without a place goes nowhere, one without angles is NaN."""
    monkeypatch.setattr(course_kernels.checks, "values_are_checked", lambda tensor: False)
    q, k, v = heads(4, (2, 1), 8, device=device)
    cos, sin = tables(device, 8, 5)
    longer = pages(3, 3, 1, 8, torch.float32, device)  # what lies behind the caches is not theirs
    behind, caches = [cache[2].clone() for cache in longer], [cache[:2] for cache in longer]
    before = [cache.clone() for cache in caches]
    slots, positions = slots_of(6, 2**40, 1, 5, device=device), slots_of(0, 1, 5, -1, device=device)
    q_out, k_out = run("paged_kv_cache_update", q, k, v, *caches, slots, positions, cos, sin)
    for turned in (q_out, k_out, caches[0].view(6, 1, 8)[slots_of(0, 0, 1, 5)]):
        assert turned[2:].isnan().all() and turned[:2].isfinite().all()
    untouched = slots_of(0, 2, 3, 4, device=device)
    assert all(torch.equal(a.view(6, 8)[untouched], b.view(6, 8)[untouched]) for a, b in zip(caches, before))
    assert all(torch.equal(cache[2], was) for cache, was in zip(longer, behind))

    caches = [cache.clone() for cache in before]
    positions = torch.tensor([[3, -1], [2, 2**33]], device=device)
    run("kv_cache_update", None, *(x.view(2, 2, 1, 8) for x in (k, v)), *caches, positions)
    assert torch.equal(caches[0][1, 2], k[2]) and torch.equal(caches[1][1, 2], v[2])
    assert all(torch.equal(a.view(6, 8)[:5], b.view(6, 8)[:5]) for a, b in zip(caches, before))
    q = q.view(2, 2, 2, 8)
    nowhere = [cache[:, :0] for cache in caches]  # a cache without places: queries are turned all the same
    positions = torch.tensor([[3, 1], [2, 0]], device=device)
    q_out = run("kv_cache_update", q, *(x.view(2, 2, 1, 8) for x in (k, v)), *nowhere, positions, cos, sin)
    assert_close(q_out, reference.rotate_tokens(q.double(), positions, cos, sin, "neox"), TOLERANCE[q.dtype])


@layouts
def test_empty_tensors_give_empty_tensors(layout, device, no_launch):
    (cos, sin), none = tables(device, 8), slots_of(device=device)
    q, k, v = heads(0, (4, 2), 8, device=device)
    caches = pages(2, 4, 2, 8, torch.float32, device, layout)
    before = [cache.clone() for cache in caches]
    q_out, k_out = run("paged_kv_cache_update", q, k, v, *caches, none, none, cos, sin, layout=layout)
    assert q_out.shape == (0, 4, 8) and k_out.shape == (0, 2, 8)
    if layout == "flash":
        q_out = run("kv_cache_update", *heads((2, 0), (4, 2), 8, device=device), *caches, none.view(2, 0), cos, sin)
        assert q_out.shape == (2, 0, 4, 8)
    assert all(map(torch.equal, caches, before))
    (q, k, v), no_slot, no_page = heads(2, (4, 2), 8, device=device), slots_of(-1, -1, device=device), slice(0, 0)
    caches = [cache[no_page] for cache in caches]
    q_out, k_out = run("paged_kv_cache_update", q, k, v, *caches, no_slot, places(2, device), cos, sin, layout=layout)
    assert q_out.shape == q.shape and k_out.shape == k.shape


@pytest.mark.parametrize(("tokens", "least"), [(1, 48), (64, 304), (4096, 1024)])
def test_programs_for_every_compute_unit(tokens, least):
    """One token of decoding for each of many sequences, or a prompt."""
    x = torch.empty(0, dtype=torch.bfloat16)
    for seq_len, batch in ((tokens, 1), (1, tokens)):
        (blocks_t, blocks_h), _ = launch.head_groups(seq_len, (32, 8, 8), 128, x, batch)
        assert batch * blocks_t * blocks_h >= least


# ---- refusals, each before any launch ------------------------------------------------------------------------------

Q, K, V, K_CACHE, V_CACHE, POSITIONS, COS, SIN = "q", "k", "v", "k_cache", "v_cache", "positions", "cos", "sin"


def contiguous_arguments(device):
    q, k, v = heads((2, 3), (4, 2), 8, device=device)
    caches, angles = pages(2, 6, 2, 8, torch.float32, device), tables(device, 8, 5)
    positions = torch.tensor([[0, 1, 2], [3, 4, 0]], device=device)
    return dict(zip((Q, K, V, K_CACHE, V_CACHE, POSITIONS, COS, SIN), (q, k, v, *caches, positions, *angles)))


def paged_arguments(device, layout="flash"):
    q, k, v = heads(4, (4, 2), 8, device=device)
    caches, angles = pages(3, 2, 2, 8, torch.float32, device, layout), tables(device, 8, 5)
    slots, positions = slots_of(0, 5, -1, 2, device=device), slots_of(0, 4, 1, 2, device=device)
    arguments = zip((Q, K, V, K_CACHE, V_CACHE, POSITIONS, COS, SIN), (q, k, v, *caches, positions, *angles))
    return {**dict(arguments), "slot_mapping": slots, "layout": layout}


def changed(**changes):
    """Some arguments replaced by what a function makes of them."""
    return lambda args: {**args, **{name: change(args[name]) for name, change in changes.items()}}


def added(**more):
    return lambda args: {**args, **more}


BOTH = {
    "float64": (TypeError, "q must be float32", changed(q=lambda q: q.double())),
    "list": (TypeError, "k must be a torch.Tensor, got list", changed(k=lambda k: [1.0])),
    "q of another dtype": (TypeError, "q and k must have one dtype", changed(q=lambda q: q.half())),
    "v of another dtype": (TypeError, "q and v must have one dtype", changed(v=lambda v: v.half())),
    "v of another shape": (ValueError, "v must have shape", changed(v=lambda v: v[..., :1, :])),
    "q rank": (ValueError, "q must have . dimensions", changed(q=lambda q: q[0])),
    "q tokens": (ValueError, "q must have shape", changed(q=lambda q: q[1:])),
    "q width": (ValueError, "q must have shape", changed(q=lambda q: q[..., 1:])),
    "q strides": (ValueError, "q needs a last dimension of stride 1", changed(q=lambda q: q.mT.contiguous().mT)),
    "cache width": (
        ValueError,
        "k_cache must have shape",
        changed(k_cache=lambda c: c[..., 1:], v_cache=lambda c: c[..., 1:]),
    ),
    "cache heads": (
        ValueError,
        "k_cache must have shape",
        changed(k_cache=lambda c: c[:, :, 1:], v_cache=lambda c: c[:, :, 1:]),
    ),
    "caches unlike": (ValueError, "v_cache must have shape", changed(v_cache=lambda c: c[:, 1:])),
    "cache strides": (ValueError, "k_cache needs a last dim", changed(k_cache=lambda c: c.mT.contiguous().mT)),
    "cache is shared": (
        ValueError,
        "v_cache is written, but .* share elements",
        changed(v_cache=lambda c: c[:1].expand_as(c)),
    ),
    "cache elsewhere": (ValueError, "v_cache is on meta", changed(v_cache=lambda c: c.to("meta"))),
    "cache dtype": (
        TypeError,
        "k_cache must have one dtype",
        changed(k_cache=lambda c: c.half(), v_cache=lambda c: c.half()),
    ),
    "cache of integers": (
        TypeError,
        "k_cache must",
        changed(k_cache=lambda c: c.to(torch.int8), v_cache=lambda c: c.to(torch.int8)),
    ),
    "cache grad": (ValueError, "k_cache requires grad", changed(k_cache=lambda c: c.requires_grad_())),
    "k grad": (ValueError, "k requires grad", changed(k=lambda k: k.clone().requires_grad_())),
    "positions are float": (TypeError, "positions must be int32", changed(positions=lambda p: p.float())),
    "positions elsewhere": (ValueError, "positions is on meta", changed(positions=lambda p: p.to("meta"))),
    "cos alone": (ValueError, "cos and sin belong together", changed(sin=lambda sin: None)),
    "no positions": (TypeError, "positions must be a torch.Tensor, got NoneType", changed(positions=lambda p: None)),
    "table width": (
        ValueError,
        r"cos must have shape \(5, 4\)",
        changed(cos=lambda t: t[:, 1:], sin=lambda t: t[:, 1:]),
    ),
    "table grad": (ValueError, "sin requires grad", changed(sin=lambda t: t.requires_grad_())),
    "tables elsewhere": (ValueError, "cos is on meta", changed(cos=lambda t: t.to("meta"), sin=lambda t: t.to("meta"))),
    "style": (ValueError, "style must be one of neox, gptj; got 'llama'", added(style="llama")),
}
CONTIGUOUS = {
    "batch": (
        ValueError,
        r"k_cache must have shape \(2, 6, 2, 8\)",
        changed(k_cache=lambda c: c[:1], v_cache=lambda c: c[:1]),
    ),
    "positions of another shape": (
        ValueError,
        r"positions must have shape \(2, 3\)",
        changed(positions=lambda p: p[0]),
    ),
    "fp8": (TypeError, "k_cache must be float32", changed(k_cache=lambda c: c.to(FN), v_cache=lambda c: c.to(FN))),
    "odd width": (
        ValueError,
        "must be even, got width 7",
        changed(**dict.fromkeys((Q, K, V, K_CACHE, V_CACHE), lambda x: x[..., 1:])),
    ),
}
PAGED = {
    "layout": (ValueError, "layout must be one of flash, packed; got 'x'", added(layout="x")),
    "packed caches in flash": (ValueError, "k_cache must have 4 dimensions", changed(k_cache=lambda c: c[..., None])),
    "more positions than rows": (
        ValueError,
        "positions has 5 elements but k only 4 rows",
        changed(positions=lambda p: p[[0, 1, 2, 3, 3]], q=lambda q: q[[0, 1, 2, 3, 3]]),
    ),
    "positions rank": (ValueError, "positions must have 1 dim", changed(positions=lambda p: p[None])),
    "slots are float": (TypeError, "slot_mapping must be int32", changed(slot_mapping=lambda s: s.float())),
    "slots of another length": (
        ValueError,
        r"slot_mapping must have shape \(4,\)",
        changed(slot_mapping=lambda s: s[1:]),
    ),
    "strided slots": (ValueError, "slot_mapping must be contiguous", changed(slot_mapping=lambda s: s.repeat(2)[::2])),
    "slots elsewhere": (ValueError, "slot_mapping is on meta", changed(slot_mapping=lambda s: s.to("meta"))),
    "scale without fp8": (TypeError, "v_scale belongs to a cache of fp8", added(v_scale=1.0)),
    "fp8 without scale": (
        TypeError,
        "a cache of torch.float8_e4m3fn needs v_scale",
        lambda args: {**args, "k_cache": args["k_cache"].to(FN), "v_cache": args["v_cache"].to(FN), "k_scale": 1.0},
    ),
    "caches of two dtypes": (TypeError, "k_cache and v_cache must have one dtype", changed(v_cache=lambda c: c.to(FN))),
}
SCALES = {
    "0": (ValueError, "k_scale must be finite and above 0, got 0.0", 0.0),
    "negative": (ValueError, "k_scale must be finite and above 0", -1),
    "inf": (ValueError, "k_scale must be finite and above 0", float("inf")),
    "NaN in a tensor": (ValueError, "k_scale must be finite and above 0", torch.tensor(float("nan"))),
    "two elements": (
        ValueError,
        r"k_scale must be a number or a tensor of one element, got shape \(2,\)",
        torch.ones(2),
    ),
    "string": (TypeError, "k_scale must be a float or a tensor of one element, got str", "1"),
    "integers": (TypeError, "k_scale must be float32", torch.tensor(1)),
    "elsewhere": (ValueError, "k_scale is on meta", torch.ones(1, device="meta")),
}


def assert_refused(name, error, message, args, backend="auto"):
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        getattr(course_kernels, name)(**args)


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", [*BOTH, *CONTIGUOUS])
def test_bad_arguments_of_contiguous_are_named(case, backend, device, no_launch):
    error, message, spoil = (BOTH | CONTIGUOUS)[case]
    assert_refused("kv_cache_update", error, message, spoil(contiguous_arguments(device)), backend)


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", [*BOTH, *PAGED])
def test_bad_arguments_of_paged_are_named(case, backend, device, no_launch):
    error, message, spoil = (BOTH | PAGED)[case]
    assert_refused("paged_kv_cache_update", error, message, spoil(paged_arguments(device)), backend)


PACKED = {
    "flash caches": (ValueError, "k_cache must have 5 dimensions", lambda c: c.flatten(3)),
    "group": (
        ValueError,
        r"k_cache must have shape \(3, 2, 2, 2, 4\), got \(3, 2, 1, 2, 8\)",
        lambda c: c.reshape(3, 2, 1, 2, 8),
    ),
    "places apart": (
        ValueError,
        "k_cache must be contiguous",
        lambda c: c.mT.contiguous().mT.repeat(1, 1, 1, 1, 2)[..., :4],
    ),
    "groups apart": (ValueError, "k_cache must be contiguous", lambda c: c.mT.contiguous().mT),
}


@pytest.mark.parametrize("case", PACKED)
def test_bad_packed_caches_are_named(case, device, no_launch):
    error, message, spoil = PACKED[case]
    args = paged_arguments(device, "packed")
    assert_refused("paged_kv_cache_update", error, message, {**args, "k_cache": spoil(args["k_cache"])})


def test_packed_heads_have_whole_groups(device, no_launch):
    args = paged_arguments(device, "packed")
    args |= {name: args[name][..., :6] for name in (Q, K, V)} | {COS: None, SIN: None}
    assert_refused("paged_kv_cache_update", ValueError, "width that is a multiple of 4, 16 bytes; got 6", args)


@pytest.mark.parametrize("case", SCALES)
def test_bad_scales_are_named(case, device, no_launch, monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS_CHECKS", "1")
    error, message, scale = SCALES[case]
    args, native = paged_arguments(device), fp8_dtype()
    scale = scale.to(device) if torch.is_tensor(scale) and scale.device.type == "cpu" else scale
    args |= {name: args[name].to(native) for name in (K_CACHE, V_CACHE)} | {"k_scale": scale, "v_scale": 1.0}
    assert_refused("paged_kv_cache_update", error, message, args)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("slot_mapping", 1, 6, r"slot_mapping\[1\] is 6 but must be below 6, the slots of the cache"),
        ("positions", 2, -1, r"positions\[2\] is -1 but must be in \[0, 5\)"),
        ("positions", 3, 5, r"positions\[3\] is 5 but must be in \[0, 5\)"),
    ],
)
def test_bad_values_of_paged_are_named(name, place, value, message, device, no_launch, monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS_CHECKS", "1")  # a GPU looks at them only then
    args = paged_arguments(device)
    args[name][place] = value
    assert_refused("paged_kv_cache_update", ValueError, message, args)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, r"positions\[1, 0\] is -1"),
        (5, r"is 5 but .* rows of cos and sin"),
        (6, r"is 6 but .* places of the cache"),
    ],
)
def test_bad_values_of_contiguous_are_named(value, message, device, no_launch, monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS_CHECKS", "1")
    args = contiguous_arguments(device)
    args["positions"][1, 0] = value
    assert_refused("kv_cache_update", ValueError, message, args)
