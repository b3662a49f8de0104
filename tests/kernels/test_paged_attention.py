"""Attention to a paged cache: values, the split of a sequence, block tables in any order, unread entries, refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import assert_close, far_apart

import course_kernels
from course_kernels import launch, paged_attention, reference

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}  # p is rounded, and then o
few_examples = settings(
    max_examples=4, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def inputs(device, dtype=torch.float32, *, lengths=(5, 40), heads=(4, 2), head_dim=16, block_size=16, seed=0):
    """q, k_cache, v_cache, block_table, seq_lens: shuffled blocks, -1 past each sequence, NaN in what none uses."""
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-length // block_size) for length in lengths]
    order = torch.randperm(sum(needed) + 3, generator=generator)
    table = torch.full((len(lengths), max(needed, default=0) + 2), -1)
    for b, (start, count) in enumerate(zip([sum(needed[:i]) for i in range(len(needed))], needed)):
        table[b, :count] = order[start : start + count]
    shape = len(order), block_size, heads[1], head_dim
    caches = [torch.randn(shape, generator=generator) for _ in range(2)]
    for cache in caches:
        cache[order[sum(needed) :]] = float("nan")
        for b, length in enumerate(lengths):
            if length % block_size:
                cache[table[b, needed[b] - 1], length % block_size :] = float("nan")
    q = torch.randn((len(lengths), heads[0], head_dim), generator=generator)
    numbers = [x.to(device, dtype) for x in (q, *caches)]
    return *numbers, table.to(device, torch.int32), torch.tensor(lengths, dtype=torch.int32, device=device)


def decode(*args, **kwargs):
    with course_kernels.use_backend("triton"):
        return course_kernels.paged_decode_attention(*args, **kwargs)


def check(args, **kwargs):
    q, k_cache, v_cache, *rest = args
    o = decode(*args, **kwargs)
    assert o.shape == q.shape and o.dtype == q.dtype and o.is_contiguous()
    want = reference.paged_decode_attention(q.double(), k_cache.double(), v_cache.double(), *rest, **kwargs)
    assert not want.isnan().any()
    assert_close(o, want, TOLERANCE[q.dtype])


@pytest.fixture(params=[1, 2, 7])
def splits(request):
    """So many parts of each sequence, some of them empty, and no more than there are tokens."""
    with launch.sizes_as(max_splits=request.param, keys_of_a_part=1, keys_at_a_time=16):
        yield


@pytest.mark.parametrize("lengths", [(1,), (16,), (17, 300), (0, 64, 33), (0,)], ids=str)
def test_values(lengths, dtype, device):
    check(inputs(device, dtype, lengths=lengths))


@pytest.mark.parametrize("lengths", [(1, 16, 17, 130, 0)], ids=str)
def test_parts_of_a_sequence(lengths, dtype, device, splits):
    check(inputs(device, dtype, lengths=lengths))


@pytest.mark.parametrize("heads", [(1, 1), (8, 2), (9, 3), (48, 8), (80, 1)], ids=str)
def test_groups_of_heads(heads, device):
    check(inputs(device, lengths=(20, 3), heads=heads))


@pytest.mark.parametrize("head_dim", [1, 80, 128, 256])
def test_head_dimensions(head_dim, dtype, device):
    check(inputs(device, dtype, lengths=(20, 7), head_dim=head_dim))


@pytest.mark.parametrize("block_size", [1, 3, 64])
def test_block_sizes(block_size, device):
    check(inputs(device, lengths=(50, 7), block_size=block_size))


@few_examples
@given(st.lists(st.integers(0, 90), min_size=1, max_size=3), st.integers(1, 20), st.integers(1, 40), st.integers(0, 99))
def test_any_lengths(device, splits, lengths, block_size, head_dim, seed):
    check(inputs(device, lengths=tuple(lengths), block_size=block_size, head_dim=head_dim, seed=seed))


def test_one_long_sequence_has_many_programs(device):
    args = inputs(device, lengths=(3000,), heads=(2, 1))
    (programs, splits), _ = launch.paged_decode(args[0], 1, 3000)
    assert programs == 1 and splits == 12
    check(args)


def test_an_order_of_the_blocks_changes_nothing(device, splits):
    q, k_cache, v_cache, table, lengths = inputs(device, lengths=(50, 70))
    order = torch.randperm(len(k_cache), generator=torch.Generator().manual_seed(1)).to(device)
    place = torch.argsort(order).to(table.dtype)
    moved = torch.where(table >= 0, place[table.clamp(min=0).long()], table)
    assert torch.equal(
        decode(q, k_cache, v_cache, table, lengths), decode(q, k_cache[order], v_cache[order], moved, lengths)
    )


@pytest.mark.parametrize("garbage", [-1, 10**9])
def test_unused_entries_are_not_read(garbage, device, splits):
    q, k_cache, v_cache, table, lengths = inputs(device, lengths=(50, 0, 16))
    expected = decode(q, k_cache, v_cache, table, lengths)
    assert torch.equal(decode(q, k_cache, v_cache, table.masked_fill(table < 0, garbage), lengths), expected)


def test_it_is_attention_to_the_last_row(dtype, device):
    q, k_cache, v_cache, table, lengths = inputs(device, dtype, lengths=(30,), block_size=30)
    k, v = (cache[table[0, :1].long()].transpose(1, 2) for cache in (k_cache, v_cache))
    with course_kernels.use_backend("triton"):
        o = course_kernels.flash_attention(q[:, :, None], k, v, causal=True)
    assert_close(decode(q, k_cache, v_cache, table, lengths), o[:, :, 0], TOLERANCE[dtype])


@pytest.mark.parametrize("sm_scale", [0.0, 2.0, -0.5])
def test_scale_is_the_callers(sm_scale, device, splits):
    check(inputs(device), sm_scale=sm_scale)


def test_scores_thirty_times_as_large(device, splits):
    q, *rest = inputs(device, torch.bfloat16, lengths=(100, 3), head_dim=64)
    check((q * 30, *rest))


def test_strided_caches_and_indices_of_64_bits(device):
    q, k_cache, v_cache, table, lengths = inputs(device)
    both = torch.stack([k_cache, v_cache], dim=2)  # k and v of a token side by side
    wide = torch.cat([q, q], dim=-1)[..., : q.shape[-1]]
    check((wide, both[:, :, 0], both[:, :, 1], table.long(), lengths.long()))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_caches_beyond_two_to_the_31_elements(dim, device):
    """Blocks, their tokens and heads far apart."""
    q, k_cache, v_cache, table, lengths = inputs(device, torch.float16, lengths=(7,), heads=(3, 3), block_size=3)
    assert min(k_cache.shape[:3]) >= 3
    check((q, far_apart(k_cache[:3], dim), far_apart(v_cache[:3], dim), table.clamp(max=2), lengths))


@pytest.mark.parametrize("dim", [0, 1])
def test_queries_beyond_two_to_the_31_elements(dim, device):
    q, *rest = inputs(device, torch.float16, lengths=(7, 1, 5), heads=(3, 3))
    check((far_apart(q, dim), *rest))


@pytest.mark.parametrize("spoil", [lambda a: a[0][:0], lambda a: a[0][:, :0]], ids=["no sequence", "no head"])
def test_empty_tensors_give_empty_tensors(spoil, device):
    args = inputs(device)
    q = spoil(args)
    assert decode(q, *args[1:3], args[3][: len(q)], args[4][: len(q)]).shape == q.shape


# ---- caches of fp8, and packed ones --------------------------------------------------------------------------------


def packed(k_cache, v_cache):
    """The same caches in the layout "packed"."""
    x = 16 // k_cache.itemsize
    keys = k_cache.unflatten(-1, (-1, x)).permute(0, 2, 3, 1, 4).contiguous()
    return keys, v_cache.permute(0, 2, 3, 1).contiguous()


def to_fp8(cache, scale, fp8):
    largest = torch.finfo(fp8).max
    return (cache.float() / scale).clamp(-largest, largest).to(fp8)


def scales(kind, heads, device):
    """k_scale and v_scale: numbers, tensors of one element, or one for each head; and these as tensors."""
    given = {
        "numbers": (0.02, 0.5),
        "one element": (torch.tensor(0.02, device=device), torch.tensor([0.5], device=device).half()),
        "each head": tuple(torch.linspace(0.01, 0.5, 2 * heads, device=device).view(2, heads)),
    }[kind]
    return given, [torch.as_tensor(s, device=device).double().reshape(-1, 1) for s in given]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", ["numbers", "one element", "each head"])
@pytest.mark.parametrize("layout", ["flash", "packed"])
def test_a_cache_of_fp8_is_multiplied_by_its_scales(layout, kind, fp8, dtype, device, splits):
    q, k_cache, v_cache, *rest = inputs(device, dtype, lengths=(17, 100, 0), heads=(6, 3), head_dim=32)
    (k_scale, v_scale), wide = scales(kind, 3, device)
    caches = [to_fp8(cache.nan_to_num(), scale, fp8) for cache, scale in zip((k_cache, v_cache), wide)]
    given = packed(*caches) if layout == "packed" else caches
    o = decode(q, *given, *rest, k_scale=k_scale, v_scale=v_scale, layout=layout)
    exact = [cache.double() * scale for cache, scale in zip(caches, wide)]
    assert o.dtype == dtype
    assert_close(o, reference.paged_decode_attention(q.double(), *exact, *rest), TOLERANCE[dtype])
    with course_kernels.use_backend("torch"):
        slow = course_kernels.paged_decode_attention(q, *given, *rest, k_scale=k_scale, v_scale=v_scale, layout=layout)
    assert_close(o, slow, 2 * TOLERANCE[dtype])


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("block_size", "head_dim"), [(1, 16), (3, 80), (64, 64)])
def test_packed_caches_give_the_same_bits(block_size, head_dim, dtype, device, splits):
    q, k_cache, v_cache, *rest = inputs(device, dtype, lengths=(50, 7), block_size=block_size, head_dim=head_dim)
    o = decode(q, *packed(k_cache, v_cache), *rest, layout="packed")
    assert torch.equal(o, decode(q, k_cache, v_cache, *rest))


def test_packed_caches_of_other_heads_than_those_of_the_call_before(device):
    for kv_heads in (1, 2):
        q, *caches, table, lengths = inputs(device, lengths=(5,), heads=(2, kv_heads))
        o = decode(q, *packed(*caches), table, lengths, layout="packed")
        assert torch.equal(o, decode(q, *caches, table, lengths))


def test_the_operator_without_scales_multiplies_by_none(device):
    args = inputs(device)
    assert torch.equal(paged_attention.paged_decode_forward(*args, 0.25), decode(*args, sm_scale=0.25))


@pytest.mark.parametrize("layout", ["flash", "packed"])
def test_what_was_written_is_read(layout, fp8, device):
    """`paged_kv_cache_update`, and then attention to it: that of the rounded keys and values."""
    q, k_cache, v_cache, table, lengths = inputs(device, lengths=(40, 3), head_dim=16)
    shapes = [cache.shape for cache in (packed(k_cache.byte(), v_cache) if layout == "packed" else (k_cache, v_cache))]
    caches = [torch.zeros(shape, device=device).to(fp8) for shape in shapes]
    k, v = torch.randn((2, 40, 2, 16), generator=torch.Generator().manual_seed(1)).to(device)
    slots = (table[0, :3, None].long() * 16 + torch.arange(16, device=device)).flatten()[:40]
    options = {"layout": layout, "k_scale": 0.01, "v_scale": 0.02}
    with course_kernels.use_backend("triton"):
        course_kernels.paged_kv_cache_update(None, k, v, *caches, slots, **options)
    o = decode(q[:1], *caches, table[:1], lengths[:1], **options)
    k, v = (to_fp8(x, scale, fp8).double() * scale for x, scale in ((k, 0.01), (v, 0.02)))
    want = reference.flash_attention(q[:1, :, None].double(), *(x.transpose(0, 1)[None] for x in (k, v)))[:, :, 0]
    assert_close(o, want, 1e-5)


FP8 = torch.float8_e4m3fn


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "dtype", "options"),
    [
        (TypeError, "needs k_scale", FP8, {}),
        (TypeError, "needs v_scale", FP8, {"k_scale": 1.0}),
        (TypeError, "k_scale belongs to a cache of fp8", torch.float32, {"k_scale": 1.0}),
        (TypeError, "k_scale must be a float or a tensor", FP8, {"k_scale": "1", "v_scale": 1.0}),
        (ValueError, "of one element or of 2, one for each head, got shape", FP8, {"k_scale": torch.ones(3)}),
        (ValueError, "v_scale must be finite and above 0, got 0.0", FP8, {"k_scale": 1.0, "v_scale": 0.0}),
        (ValueError, "v_scale must be finite", FP8, {"k_scale": 1.0, "v_scale": torch.tensor([1.0, -1.0])}),
        (ValueError, "layout must be one of flash, packed; got 'paged'", torch.float32, {"layout": "paged"}),
        (ValueError, "k_cache must have 5 dimensions", torch.float32, {"layout": "packed"}),
        (TypeError, "k_cache must be float32, float16 or bfloat16, got torch.float8_e5m2", torch.float8_e5m2, {}),
    ],
)
def test_bad_scales_and_layouts_are_named(error, message, dtype, options, backend, no_launch):
    q, k_cache, v_cache, *rest = inputs("cpu")
    if dtype != torch.float32:
        k_cache, v_cache = k_cache.to(dtype), v_cache.to(dtype)
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.paged_decode_attention(q, k_cache, v_cache, *rest, **options)


# ---- refusals ------------------------------------------------------------------------------------------------------


def spoilt(index, change):
    return lambda args: [change(x) if i == index else x for i, x in enumerate(args)]


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "spoil"),
    [
        (TypeError, "q must be float32", spoilt(0, lambda q: q.double())),
        (TypeError, "q and k_cache must have one dtype", spoilt(0, lambda q: q.half())),
        (TypeError, "k_cache and v_cache must have one dtype", spoilt(2, lambda v: v.half())),
        (TypeError, "block_table must be int32", spoilt(3, lambda table: table.float())),
        (TypeError, "seq_lens must be int32", spoilt(4, lambda lengths: lengths.short())),
        (ValueError, "q must have 3 dimensions", spoilt(0, lambda q: q[0])),
        (ValueError, "k_cache must have 4 dimensions", spoilt(1, lambda k: k[0])),
        (ValueError, "block_table must have 2 dimensions", spoilt(3, lambda table: table[0])),
        (ValueError, "q and k_cache must have one shape", spoilt(0, lambda q: q[..., 1:])),
        (ValueError, "3 heads must be a multiple of the 2", spoilt(0, lambda q: q[:, :3])),
        (
            ValueError,
            "at most 256, got 272",
            lambda args: [*(x.repeat_interleave(17, -1) for x in args[:3]), *args[3:]],
        ),
        (ValueError, "block_table must have shape", spoilt(3, lambda table: table[:1])),
        (ValueError, "seq_lens must have shape", spoilt(4, lambda lengths: lengths[:1])),
        (ValueError, "q needs a last dimension of stride 1", spoilt(0, lambda q: q.mT.contiguous().mT)),
        (ValueError, "q requires grad", spoilt(0, lambda q: q.clone().requires_grad_())),
    ],
)
def test_bad_arguments_are_named(error, message, spoil, backend, device, no_launch):
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.paged_decode_attention(*spoil(inputs(device)))


@pytest.mark.parametrize(
    ("index", "place", "value", "message"),
    [
        (4, 0, -1, r"seq_lens\[0\] is -1"),
        (4, 1, 81, r"seq_lens\[1\] is 81 but must be in \[0, 81\)"),
        (3, (1, 2), -1, r"block_table\[1, 2\] is -1"),
        (3, (0, 0), 7, r"block_table\[0, 0\] is 7 but must be in \[0, 7\)"),
    ],
)
def test_bad_values_are_named(index, place, value, message, device, no_launch, monkeypatch):
    monkeypatch.setenv("COURSE_KERNELS_CHECKS", "1")
    args = inputs(device)
    args[index][place] = value
    with pytest.raises(ValueError, match=message):
        course_kernels.paged_decode_attention(*args)
