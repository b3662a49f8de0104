"""Latent attention before decoding: absorbed and turned queries, rows of the cache, what stays untouched, refusals."""

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
NAMES = "q_nope", "w_uk", "q_pe", "k_nope", "k_pe", "kv_cache", "slot_mapping", "positions", "cos", "sin"


def inputs(device, dtype=torch.float32, *, tokens=2, rows=4, heads=(3, 1), latent=24, depth=12, rope_dim=8, slots=None):
    """All arguments by name: shuffled slots, the last of the cache among them; row 1, if there is one, has none."""
    q = randn((tokens, heads[0], depth + rope_dim), dtype, device)  # both parts of one tensor, as in DeepSeek's code
    k = randn((rows, heads[1], latent + rope_dim), dtype, device, seed=1)
    w_uk = randn((heads[0], latent, depth), dtype, device, seed=2) / depth**0.5
    cache = randn((rows + 3, heads[1], latent + rope_dim), dtype, device, seed=3)
    if slots is None:
        slots = torch.arange(rows + 2, 2, -1)
        slots[1:2] = -1
    angles, positions = tables(device, rope_dim), places(tokens, device)
    parts = q[..., :depth], w_uk, q[..., depth:], k[..., :latent], k[..., latent:], cache
    return dict(zip(NAMES, (*parts, slots.to(device), positions, *angles), strict=True))


def absorbed(q_nope, w_uk):
    """Head by head, in float64."""
    return torch.stack([q_nope[:, h].double() @ w_uk[h].double().t() for h in range(q_nope.shape[1])], dim=1)


def check(args, style="neox"):
    """Against a product for each head, the rotation of the reference, and slots by hand; inputs stay as they were."""
    before = {name: x.clone() for name, x in args.items()}
    out = run("mla_bmm_rope_cache", **args, style=style)
    q_nope, w_uk, q_pe, k_nope, k_pe, cache, slots, *angles = args.values()
    tokens, latent = len(q_nope), w_uk.shape[1]
    assert out.shape == (tokens, q_nope.shape[1], latent + q_pe.shape[2])
    assert out.dtype == q_nope.dtype and out.is_contiguous()
    assert_close(out[..., :latent], absorbed(q_nope, w_uk), TOLERANCE[out.dtype])
    assert_close(out[..., latent:], reference.rotate_tokens(q_pe.double(), *angles, style), TOLERANCE[out.dtype])

    want, touched = before["kv_cache"].clone(), torch.zeros(len(cache), dtype=torch.bool)
    turned = torch.cat([reference.rotate_tokens(k_pe[:tokens].double(), *angles, style), k_pe[tokens:].double()])
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            touched[slot] = True
            assert torch.equal(bits(cache[slot, :, :latent]), bits(k_nope[row]))
            assert_close(cache[slot, :, latent:], turned[row], TOLERANCE[out.dtype])
            if row >= tokens:
                assert_close(cache[slot, :, latent:], k_pe[row], 0)
    untouched = ~touched.to(cache.device)
    assert torch.equal(bits(cache[untouched]), bits(want[untouched])), "a slot that nobody addressed has changed"
    for name in set(args) - {"kv_cache"}:
        assert torch.equal(bits_or_self(args[name]), bits_or_self(before[name])), f"{name} was modified"
    return out


def bits_or_self(x):
    return bits(x) if x.is_floating_point() else x


# ---- values --------------------------------------------------------------------------------------------------------


@styles
@pytest.mark.parametrize(("tokens", "rows"), [(1, 1), (2, 2), (2, 8), (0, 3), (33, 40)], ids=str)
def test_values(style, tokens, rows, dtype, device, small_gpu):
    """Decoding alone; with a prompt behind it (0 < B < Bs, where aiter writes past its outputs); a prompt alone."""
    check(inputs(device, dtype, tokens=tokens, rows=rows), style)


@pytest.mark.parametrize("heads", [(1, 1), (16, 1), (40, 1), (12, 3), (2, 5)], ids=str)
def test_head_counts(heads, dtype, device, small_gpu):
    check(inputs(device, dtype, heads=heads))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("latent", [1, 16, 100, 130])
@pytest.mark.parametrize("depth", [1, 16, 70])
@pytest.mark.parametrize("rope_dim", [2, 6, 64])
def test_widths(latent, depth, rope_dim, device, small_gpu):
    check(inputs(device, torch.bfloat16, latent=latent, depth=depth, rope_dim=rope_dim))


@styles
@pytest.mark.parametrize("tokens", [1, 2])
def test_deepseek(style, tokens, dtype, device, small_gpu):
    """DeepSeek-V3 on one of eight GPUs: 16 heads of 128 + 64, a latent of 512."""
    args = inputs(device, dtype, tokens=tokens, rows=tokens + 1, heads=(16, 1), latent=512, depth=128, rope_dim=64)
    check(args, style)


def test_turned_parts_wider_than_any_model_has_them(device):
    check(inputs(device, tokens=1, rows=2, heads=(1, 1), rope_dim=2050))


def test_several_tiles_of_tokens_of_elements_and_of_heads(device):
    with launch.sizes_as(dot_tiles=((16, 16, 64),)):
        check(inputs(device, tokens=20, rows=20, heads=(9, 1), latent=17, depth=4, rope_dim=64))


@pytest.mark.slow
@styles
def test_deepseek_batch(style, dtype, device):
    check(inputs(device, dtype, tokens=32, rows=48, heads=(16, 1), latent=512, depth=128, rope_dim=64), style)


def test_at_long_positions(device, dtype):
    args = inputs(device, dtype, tokens=3, rows=3, rope_dim=64)
    args["cos"], args["sin"] = tables(device, 64, 131072)
    args["positions"] = torch.tensor([131071, 0, 65536], device=device)
    check(args)


def test_a_sum_is_kept_in_float32_and_rounded_once(device):
    """2048 + 1 + ... + 1: in float16 each 1 would be lost, and 120000 would be infinite before it cancels."""
    args = inputs(device, torch.float16, tokens=1, rows=1, heads=(1, 1), depth=128)
    args["q_nope"].fill_(1.0)
    args["w_uk"].fill_(1.0)
    args["w_uk"][..., 0] = 2048
    args["q_nope"][..., -2:] = 60000
    args["w_uk"][..., -2], args["w_uk"][..., -1] = 2, -2
    out = run("mla_bmm_rope_cache", **args)
    assert (out[..., :24] == 2172).all()  # of 2048 + 125, a tie between 2172 and 2174, the even one


def test_float32_is_not_rounded_to_tf32(device):
    """On gfx942 and NVIDIA the default would drop 13 bits of each factor."""
    args = inputs(device, tokens=2, rows=2, depth=128)
    args["q_nope"], args["w_uk"] = args["q_nope"] + 100, args["w_uk"] + 100
    out = run("mla_bmm_rope_cache", **args)
    want = absorbed(args["q_nope"], args["w_uk"])
    assert ((out[..., :24].double() - want).abs() / want.abs()).max() < 2e-6


def test_scores_are_those_of_attention_with_keys_of_every_head(device):
    """Why the weight may be absorbed: the same scores as from keys that are computed for each head."""
    args = inputs(device, tokens=3, rows=3, slots=torch.tensor([0, 4, 2]))
    q_nope, w_uk, q_pe, k_nope, k_pe, cache, slots, *angles = args.values()
    out = run("mla_bmm_rope_cache", **args)
    scores = torch.einsum("bhd,td->hbt", out.double(), cache[slots, 0].double())
    keys = torch.einsum("hlp,tl->thp", w_uk.double(), k_nope[:, 0].double())
    turned_q, turned_k = (reference.rotate_tokens(x.double(), *angles, "neox") for x in (q_pe, k_pe))
    want = torch.einsum("bhp,thp->hbt", q_nope.double(), keys) + torch.einsum("bhr,tr->hbt", turned_q, turned_k[:, 0])
    assert_close(scores, want, 1e-5)


@styles
def test_what_is_not_finite_stays_where_it_is(style, device, small_gpu):
    """In rows that are cached as they are, in one head of a query, and in a latent."""
    args = inputs(device, tokens=2, rows=4, slots=torch.tensor([5, 0, 3, 6]))
    args["k_pe"][3, 0, 1], args["k_pe"][2, 0, 5] = float("inf"), float("nan")
    args["k_nope"][1, 0, 3], args["k_nope"][2, 0, 0] = float("nan"), -float("inf")
    args["q_nope"][1, 2, 0], args["q_pe"][0, 1, 1] = float("inf"), float("nan")
    out = run("mla_bmm_rope_cache", **args, style=style)
    strange = (~out.isfinite()).any(dim=-1).nonzero().tolist()
    assert strange == [[0, 1], [1, 2]]
    assert (~out.isfinite()).sum() == 2 + 24 and not out[1, 2, 24:].isnan().any()
    where = (~args["kv_cache"].isfinite()).nonzero().tolist()
    assert sorted(where) == [[0, 0, 3], [3, 0, 0], [3, 0, 24 + 5], [6, 0, 24 + 1]]


# ---- a cache of fp8 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.02, torch.tensor([0.05])], ids=["number", "tensor"])
def test_a_latent_cache_of_fp8_holds_what_was_divided_by_the_scale(scale, fp8, dtype, device, small_gpu):
    args = inputs(device, dtype, tokens=3, rows=7)
    wide = run("mla_bmm_rope_cache", **{**args, "kv_cache": args["kv_cache"].clone()})
    args["kv_cache"] = torch.full(args["kv_cache"].shape, 1.5, device=device).to(fp8)
    expected = args["kv_cache"].clone()
    scale = scale.to(device) if isinstance(scale, torch.Tensor) else scale
    out = run("mla_bmm_rope_cache", **args, k_scale=scale)
    assert torch.equal(out, wide), "queries do not depend on the cache"
    reference.mla_bmm_rope_cache(**{**args, "kv_cache": expected}, k_scale=scale)
    got, want = args["kv_cache"].float(), expected.float()
    ulp = torch.maximum(want.abs() / 8, torch.tensor(2.0**-9, device=device))
    assert ((got - want).abs() <= ulp).all() and (got == want).float().mean() > 0.99
    exact = torch.cat([args["k_nope"], args["k_pe"]], dim=-1)[3:].double()  # rows that nobody turns
    written = args["kv_cache"][args["slot_mapping"][3:]].double() if device == "cuda" else got[args["slot_mapping"][3:]]
    limit = torch.finfo(fp8).max * float(scale)
    assert ((written * float(scale) - exact.clamp(-limit, limit)).abs() <= exact.abs() / 16 + 2.0**-9).all()


def test_a_scale_of_16_bits_divides_as_one_of_32(fp8, device):
    """1 / scale is larger than a float16 can be."""
    args, scale = inputs(device, rows=9), torch.tensor([1e-5], dtype=torch.float16, device=device)
    args |= {name: args[name] * 1e-4 for name in ("k_nope", "k_pe")}
    caches = [args["kv_cache"].to(fp8) for _ in range(2)]
    for cache, same in zip(caches, (scale, scale.float())):
        run("mla_bmm_rope_cache", **{**args, "kv_cache": cache}, k_scale=same)
    assert torch.equal(*(cache.view(torch.uint8) for cache in caches))


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_scales_and_caches_of_fp8_belong_together(backend, device, no_launch):
    args = inputs(device)
    with course_kernels.use_backend(backend):
        with pytest.raises(TypeError, match="k_scale belongs to a cache of fp8, got one of torch.float32"):
            course_kernels.mla_bmm_rope_cache(**args, k_scale=1.0)
        args["kv_cache"] = args["kv_cache"].to(course_kernels.fp8_dtype())
        with pytest.raises(TypeError, match="or of fp8 with a k_scale, got torch.float8"):
            course_kernels.mla_bmm_rope_cache(**args)
        with pytest.raises(ValueError, match="k_scale must be finite and above 0, got -1.0"):
            course_kernels.mla_bmm_rope_cache(**args, k_scale=-1)


# ---- what holds for all --------------------------------------------------------------------------------------------


@few_examples
@given(
    st.integers(0, 5), st.integers(1, 4), st.integers(1, 20), st.integers(1, 3), st.integers(1, 70),
    st.integers(1, 70), st.integers(1, 20), st.sampled_from(STYLES), st.sampled_from(DTYPES),
)  # fmt: skip
def test_any_shape(device, small_gpu, tokens, more, q_heads, kv_heads, latent, depth, half, style, dtype):
    sizes = {"heads": (q_heads, kv_heads), "latent": latent, "depth": depth, "rope_dim": 2 * half}
    args = inputs(device, dtype, tokens=tokens, rows=tokens + more, **sizes)
    cache = args["kv_cache"].clone()
    out = check(args, style)
    want = reference.mla_bmm_rope_cache(**{**args, "kv_cache": cache}, style=style)
    assert_close(out, want, TOLERANCE[dtype])
    assert_close(args["kv_cache"], cache, TOLERANCE[dtype])


@few_examples
@given(st.permutations(range(9)), st.integers(0, 6), st.sampled_from(STYLES))
def test_slots_can_be_renamed(device, order, skipped, style):
    args = inputs(device, tokens=2, rows=6, slots=torch.tensor([*range(skipped), *[-1] * (6 - skipped)]))
    names = torch.tensor(order, device=device)
    slots = args["slot_mapping"]
    renamed = torch.where(slots < 0, slots - 7, names[slots.clamp(min=0)])
    other = {**args, "kv_cache": args["kv_cache"][torch.argsort(names)].contiguous(), "slot_mapping": renamed}
    results = [run("mla_bmm_rope_cache", **each, style=style) for each in (args, other)]
    assert torch.equal(*results)
    assert torch.equal(other["kv_cache"][names], args["kv_cache"])


@few_examples
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 20), st.sampled_from(STYLES))
def test_a_rotation_keeps_lengths(device, tokens, heads, half, style):
    args = inputs(device, tokens=tokens, rows=tokens, heads=(heads, 1), rope_dim=2 * half, slots=torch.arange(tokens))
    out = run("mla_bmm_rope_cache", **args, style=style)
    for turned, x in ((out, args["q_pe"]), (args["kv_cache"][:tokens], args["k_pe"])):
        assert_close(turned[..., 24:].norm(dim=-1), x.norm(dim=-1), 1e-5)


# ---- strides, sizes, values at the edge ----------------------------------------------------------------------------


def test_strides_are_honoured(dtype, device, small_gpu):
    """Heads first in memory, the weight a transposed slice of the projection, the cache part of wider rows."""
    args = inputs(device, dtype, tokens=3, rows=4, heads=(3, 2))
    both = randn((3, 12 + 5, 24), dtype, device, seed=7)  # of keys and of values
    wide = randn((14, 2, 40), dtype, device, seed=8)
    args["w_uk"], args["kv_cache"] = both[:, :12].mT, wide[::2, :, 4:36]
    for name in ("q_nope", "q_pe", "k_nope", "k_pe"):
        args[name] = args[name].transpose(0, 1).contiguous().transpose(0, 1)
    args["positions"] = torch.stack([args["positions"], args["positions"] + 99], dim=1)[:, 0]
    before = wide.clone()
    check(args)
    assert torch.equal(wide[1::2], before[1::2])
    assert torch.equal(wide[..., :4], before[..., :4]) and torch.equal(wide[..., 36:], before[..., 36:])


@pytest.mark.parametrize(
    ("name", "dim"),
    [
        *((name, dim) for name in ("q_nope", "q_pe", "k_nope", "k_pe", "kv_cache") for dim in (0, 1)),
        *(("w_uk", dim) for dim in range(3)),
    ],
    ids=str,
)
def test_elements_beyond_two_to_the_31(name, dim, device):
    sizes = {"tokens": 3, "rows": 3, "heads": (3, 3), "latent": 3, "depth": 3, "rope_dim": 2}
    args = inputs(device, torch.float16, **sizes, slots=torch.tensor([2, 0, 1], dtype=torch.int32))
    args["kv_cache"] = args["kv_cache"][:3]
    check({**args, name: far_apart(args[name], dim)})


@pytest.mark.parametrize("table_dtype", DTYPES, ids=short)
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=short)
def test_tables_and_indices_of_another_dtype(table_dtype, index_dtype, dtype, device):
    args = inputs(device, dtype)
    args |= {name: args[name].to(table_dtype) for name in ("cos", "sin")}
    args |= {name: args[name].to(index_dtype) for name in ("slot_mapping", "positions")}
    check(args)


def test_where_values_are_not_checked_nothing_is_written_out_of_bounds(device, monkeypatch):
    """On a GPU nobody looks at slots and positions: a row without a slot goes nowhere, one without angles is NaN."""
    monkeypatch.setattr(course_kernels.checks, "values_are_checked", lambda tensor: False)
    args = inputs(device, tokens=3, rows=4, slots=torch.tensor([7, 2**40, 0, 6]))
    args["positions"] = torch.tensor([64, 3, -1], device=device)
    before = args["kv_cache"].clone()
    out = run("mla_bmm_rope_cache", **args)
    assert out[..., :24].isfinite().all() and out[1].isfinite().all() and out[::2, :, 24:].isnan().all()
    cache = args["kv_cache"]
    assert torch.equal(cache[1:6], before[1:6])
    assert cache[0, :, 24:].isnan().all() and torch.equal(cache[0, :, :24], args["k_nope"][2])
    assert torch.equal(cache[6, :, 24:], args["k_pe"][3])


@pytest.mark.parametrize("empty", ["rows", "heads", "slots"])
def test_empty_tensors(empty, device, no_launch):
    options = {"tokens": 0, "rows": 0} if empty == "rows" else {"heads": (0, 1)} if empty == "heads" else {}
    args = inputs(device, **options)
    if empty == "slots":
        args |= {"kv_cache": args["kv_cache"][:0], "slot_mapping": torch.full((4,), -1, device=device)}
    out = run("mla_bmm_rope_cache", **args)
    assert out.shape == (*args["q_nope"].shape[:2], 32)


@pytest.mark.parametrize(("tokens", "least"), [(1, 256), (32, 256), (512, 1024)])
def test_one_launch_has_a_program_for_nearly_every_compute_unit(tokens, least):
    """16 heads of DeepSeek: 32 columns of the smallest tile make 256 products on the 304 units of MI300X."""
    q = torch.empty((tokens, 16, 128), dtype=torch.bfloat16)
    (programs,), meta = launch.latents(q, 512, 64, tokens, 1)
    assert programs >= least and meta["BLOCK_H"] == 16
    products = -(-tokens // meta["BLOCK_M"]) * (512 // meta["BLOCK_N"]) * 16
    assert programs == products + -(-tokens // meta["BLOCK_T"]) + -(-tokens // meta["BLOCK_R"])


# ---- refusals, each before any launch ------------------------------------------------------------------------------


def changed(**changes):
    """Some arguments replaced by what a function makes of them."""
    return lambda args: {**args, **{name: change(args[name]) for name, change in changes.items()}}


REFUSALS = {
    "float64": (TypeError, "q_nope must be float32", changed(q_nope=lambda q: q.double())),
    "list": (TypeError, "w_uk must be a torch.Tensor, got list", changed(w_uk=lambda w: [1.0])),
    "weight of another dtype": (TypeError, "q_nope and w_uk must have one dtype", changed(w_uk=lambda w: w.half())),
    "cache of another dtype": (
        TypeError,
        "q_nope and kv_cache must have one",
        changed(kv_cache=lambda c: c.bfloat16()),
    ),
    "cache of fp8": (TypeError, "kv_cache must be float32", changed(kv_cache=lambda c: c.to(torch.float8_e4m3fn))),
    "query rank": (ValueError, "q_nope must have 3 dimensions", changed(q_nope=lambda q: q[0])),
    "weight rank": (ValueError, "w_uk must have 3 dimensions", changed(w_uk=lambda w: w[0])),
    "pe rank": (ValueError, "q_pe must have 3 dimensions", changed(q_pe=lambda q: q[0])),
    "key rank": (ValueError, "k_nope must have 3 dimensions", changed(k_nope=lambda k: k[0])),
    "cache rank": (ValueError, "kv_cache must have 3 dimensions", changed(kv_cache=lambda c: c[0])),
    "weight heads": (ValueError, r"w_uk must have shape \(3, 24, 12\)", changed(w_uk=lambda w: w[1:])),
    "weight depth": (
        ValueError,
        r"w_uk must have shape \(3, 24, 12\), got \(3, 24, 11\)",
        changed(w_uk=lambda w: w[..., 1:]),
    ),
    "transposed weight": (ValueError, r"w_uk must have shape \(3, 12, 12\)", changed(w_uk=lambda w: w.mT)),
    "pe heads": (ValueError, r"q_pe must have shape \(2, 3, 8\)", changed(q_pe=lambda q: q[:, 1:])),
    "latent": (ValueError, r"k_nope must have shape \(4, 1, 24\)", changed(k_nope=lambda k: k[..., 1:])),
    "key pe": (ValueError, r"k_pe must have shape \(4, 1, 8\)", changed(k_pe=lambda k: k[1:])),
    "cache width": (ValueError, r"kv_cache must have shape \(7, 1, 32\)", changed(kv_cache=lambda c: c[..., 1:])),
    "odd pe": (
        ValueError,
        "must be even, got width 7",
        changed(q_pe=lambda q: q[..., 1:], k_pe=lambda k: k[..., 1:], kv_cache=lambda c: c[..., 1:]),
    ),
    "fewer rows than queries": (
        ValueError,
        "k_nope has 1 rows but q_nope 2",
        changed(k_nope=lambda k: k[:1], k_pe=lambda k: k[:1], slot_mapping=lambda s: s[:1]),
    ),
    "query strides": (ValueError, "q_nope needs a last dim", changed(q_nope=lambda q: q.mT.contiguous().mT)),
    "cache strides": (ValueError, "kv_cache needs a last dim", changed(kv_cache=lambda c: c.repeat(1, 1, 2)[..., ::2])),
    "shared cache": (ValueError, "kv_cache is written", changed(kv_cache=lambda c: c[:1].expand(7, -1, -1))),
    "slots are float": (TypeError, "slot_mapping must be int32", changed(slot_mapping=lambda s: s.float())),
    "slots": (ValueError, r"slot_mapping must have shape \(4,\)", changed(slot_mapping=lambda s: s[1:])),
    "strided slots": (ValueError, "slot_mapping must be contiguous", changed(slot_mapping=lambda s: s.repeat(2)[::2])),
    "slots elsewhere": (ValueError, "slot_mapping is on meta", changed(slot_mapping=lambda s: s.to("meta"))),
    "positions": (ValueError, r"positions must have shape \(2,\)", changed(positions=lambda p: p[1:])),
    "positions are float": (TypeError, "positions must be int32", changed(positions=lambda p: p.float())),
    "positions elsewhere": (ValueError, "positions is on meta", changed(positions=lambda p: p.to("meta"))),
    "table width": (
        ValueError,
        r"cos must have shape \(64, 4\)",
        changed(cos=lambda t: t[:, 1:], sin=lambda t: t[:, 1:]),
    ),
    "table dtypes": (TypeError, "cos and sin must have one dtype", changed(sin=lambda t: t.half())),
    "elsewhere": (ValueError, "k_pe is on meta", changed(k_pe=lambda k: k.to("meta"))),
    "weight grad": (ValueError, "w_uk requires grad", changed(w_uk=lambda w: w.requires_grad_())),
    "table grad": (ValueError, "cos requires grad", changed(cos=lambda t: t.requires_grad_())),
    "style": (ValueError, "style must be one of neox, gptj; got 'llama'", lambda args: {**args, "style": "llama"}),
}


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize("case", REFUSALS)
def test_bad_arguments_are_named(case, backend, device, no_launch):
    error, message, spoil = REFUSALS[case]
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.mla_bmm_rope_cache(**spoil(inputs(device)))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("slot_mapping", 7, r"slot_mapping\[1\] is 7 but must be below 7, the slots of the cache"),
        ("positions", -1, r"positions\[1\] is -1 but must be in \[0, 64\)"),
        ("positions", 64, r"positions\[1\] is 64 but must be in \[0, 64\)"),
    ],
)
def test_bad_values_are_named(name, value, message, device, no_launch, monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS_CHECKS", "1")  # a GPU looks at them only then
    args = inputs(device)
    args[name][1] = value
    with pytest.raises(ValueError, match=message):
        course_kernels.mla_bmm_rope_cache(**args)
