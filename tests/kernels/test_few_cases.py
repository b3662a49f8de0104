"""Mistakes that only a case made for them shows: a stride of its own, one lane, one late rounding, a second call."""

import inspect
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from kernel_testing import assert_close, far_apart, randn, run, tables

import course_kernels
from course_kernels import checks, launch, modules, overlap, reference
from course_kernels._column_sum import column_sum, column_sums
from course_kernels._stand_in import triton_importable
from course_kernels.launch import gpu

FP8 = course_kernels.fp8_dtype()
LARGEST = torch.finfo(FP8).max
STATISTICS = {"return_statistics": True}
held_or_walked = pytest.mark.parametrize("max_row", [8192, 64], ids=["held", "walked"])


# ---- strides of their own ------------------------------------------------------------------------------------------


def test_positions_that_lie_apart_and_queries_with_a_stride_of_their_own(device):
    """Queries and keys of separate tensors, and every other element of wider positions."""
    q, k, v = (randn((2, 3, heads, 8), device=device, seed=heads) for heads in (4, 2, 1))
    v = v.expand(2, 3, 2, 8)
    positions = torch.tensor([[5, 9, 2, 9, 0, 9], [1, 9, 4, 9, 3, 9]], device=device)[:, ::2]
    caches, expected = ([torch.zeros(2, 6, 2, 8, device=device) for _ in range(2)] for _ in range(2))
    q_out = run("kv_cache_update", q, k, v, *caches, positions, *tables(device, 8))
    want_q = reference.kv_cache_update(q, k, v, *expected, positions, *tables(device, 8))
    for y, want in zip((q_out, *caches), (want_q, *expected)):
        assert_close(y, want, 1e-5)


def test_places_beyond_two_to_the_31_elements_at_positions_of_32_bits(device):
    k, positions = randn((1, 1, 1, 8), device=device), torch.tensor([[2]], dtype=torch.int32, device=device)
    caches = [far_apart(torch.zeros(1, 3, 1, 8, dtype=torch.float16, device=device), 1) for _ in range(2)]
    run("kv_cache_update", None, k.half(), k.half(), *caches, positions)
    assert all(torch.equal(cache[0, 2], k[0, 0].half()) and not cache[0, 0].any() for cache in caches)


def test_rope_at_positions_that_lie_apart(device):
    x = randn((2, 3, 2, 8), device=device)
    positions = torch.tensor([[5, 9, 2, 9, 0, 9], [1, 9, 4, 9, 3, 9]], device=device)[:, ::2]
    y = run("rope", x, *tables(device, 8), layout="bshd", positions=positions)
    assert_close(y, reference.rope(x, *tables(device, 8), layout="bshd", positions=positions), 1e-5)


def test_rope_of_sequences_beyond_two_to_the_31_elements(device):
    x = randn((3, 1, 1, 8), torch.float16, device)
    y = run("rope", far_apart(x, 0), *tables(device, 8), layout="bshd")
    assert torch.equal(y, run("rope", x, *tables(device, 8), layout="bshd"))


def test_a_head_wider_than_models_have(device):
    x = randn((1, 1, 1, 4096), device=device)
    y = run("rope", x, *tables(device, 4096), positions=torch.tensor([3], device=device))
    assert_close(y, reference.rope(x, *tables(device, 4096), positions=torch.tensor([3], device=device)), 1e-5)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 8192), (7, 64)], ids=["wider", "more"])
def test_pixels_of_wider_heads_than_models_have_and_of_more_than_a_tile_has(heads, head_dim, device):
    x, angles = randn((1, 2, heads, head_dim), device=device), (*tables(device, head_dim // 2, 1),)
    angles += tables(device, head_dim // 2, 2, 100.0)
    with launch.sizes_as(tile=256):
        assert_close(run("rope_2d", x, *angles), reference.rope_2d(x, *angles), 1e-5)


def test_a_part_that_stays_is_copied_in_one_step_as_wide_as_it_is(device, monkeypatch):
    seen, launch_run = [], launch.run
    monkeypatch.setattr(launch, "run", lambda *args, **meta: seen.append(meta["BLOCK_D"]) or launch_run(*args, **meta))
    for plain in (0, 6, 100):
        x = randn((1, 1, 1, 4 + plain), device=device)
        assert torch.equal(run("rope", x, *tables(device, 4), rotary_dim=4), x)  # position 0
    assert seen == [1, 8, 128]


def test_positions_and_offsets_of_32_bits_are_added_in_64(device):
    x, frequencies = randn((1, 2, 1, 4), device=device), torch.tensor([1.0, 0.5], device=device)
    positions, offsets = (torch.tensor([[2**31 - 1, number]], device=device) for number in (5, 9))
    want = run("rope", x, inv_freq=frequencies, layout="bshd", positions=positions + offsets)
    y = run("rope", x, inv_freq=frequencies, layout="bshd", positions=positions.int(), offsets=offsets.int())
    assert torch.equal(y, want)


def pages(device, dtype=torch.float32, lengths=(21, 5)):
    """q, k_cache, v_cache, block_table, seq_lens of sequences of at most two pages, for two heads of the cache."""
    q = randn((2, 4, 8), dtype, device)
    caches = [randn((4, 16, 2, 8), dtype, device, seed=seed) for seed in (1, 2)]
    return q, *caches, torch.tensor([[2, 0], [3, 1]], device=device), torch.tensor(lengths, device=device)


def packed(k_cache, v_cache):
    """The same caches in the layout "packed"."""
    keys = k_cache.unflatten(-1, (-1, 16 // k_cache.itemsize)).permute(0, 2, 3, 1, 4)
    return keys.contiguous(), v_cache.permute(0, 2, 3, 1).contiguous()


def check_decode(*args, **kwargs):
    assert_close(
        run("paged_decode_attention", *args, **kwargs), reference.paged_decode_attention(*args, **kwargs), 1e-5
    )


def test_values_of_a_paged_cache_have_strides_of_their_own(device):
    q, k_cache, v_cache, *rest = pages(device)
    check_decode(q, k_cache, v_cache.repeat_interleave(3, dim=2)[:, :, ::3], *rest)


def test_scales_of_heads_have_strides_of_their_own(device):
    q, k_cache, v_cache, *rest = pages(device)
    k_scale, v_scale = torch.tensor([0.5, 9.0, 2.0, 9.0], device=device)[::2], torch.tensor([3.0, 0.25], device=device)
    check_decode(q, k_cache.to(FP8), v_cache.to(FP8), *rest, k_scale=k_scale, v_scale=v_scale)


def test_packed_keys_whose_groups_of_elements_lie_beyond_two_to_the_31_elements(device):
    q, (k_cache, v_cache) = randn((1, 1, 24), torch.float16, device), randn((2, 2, 16, 1, 24), torch.float16, device)
    rest = torch.tensor([[1, 0]], device=device), torch.tensor([21], device=device)
    keys, values = packed(k_cache, v_cache)
    y = run("paged_decode_attention", q, far_apart(keys, 2), values, *rest, layout="packed")
    assert torch.equal(y, run("paged_decode_attention", q, k_cache, v_cache, *rest))


# ---- numbers that tell ---------------------------------------------------------------------------------------------


def test_keys_past_a_sequence_weigh_nothing_beside_scores_far_below_them(device):
    q, k_cache, v_cache, *rest = pages(device)
    check_decode(torch.full_like(q, -20.0), torch.full_like(k_cache, 5.0), v_cache, *rest)


def test_parts_whose_scores_are_all_far_below_zero_are_merged(device):
    """Lower than 10000 below: two parts of the first sequence, one of the second, and a third without a key."""
    q, k_cache, v_cache, *rest = pages(device, lengths=(32, 5))
    with launch.sizes_as(max_splits=3, keys_of_a_part=1, keys_at_a_time=16):
        check_decode(torch.full_like(q, -200.0), torch.full_like(k_cache, 50.0), v_cache, *rest)


def test_parts_of_a_sequence_beyond_64(device):
    q, cache = randn((1, 1, 8), device=device), randn((65, 16, 1, 8), device=device)
    table, lengths = torch.arange(65, device=device)[None], torch.tensor([1040], device=device)
    with launch.as_on(launch.Gpu("gfx942", 304)), launch.sizes_as(max_splits=65, keys_of_a_part=1, keys_at_a_time=16):
        assert launch.paged_decode(q, 1, 1040)[0] == (1, 65)
        check_decode(q, cache, cache, table, lengths)


def test_a_number_of_keys_that_16_bits_do_not_hold(device):
    """259 equal weights, and values of 1: bfloat16 has 260 instead."""
    q, k = torch.zeros(1, 1, 8, dtype=torch.bfloat16, device=device), randn((1, 512, 1, 8), torch.bfloat16, device)
    table, lengths = torch.zeros(1, 1, dtype=torch.int32, device=device), torch.tensor([259], device=device)
    with launch.sizes_as(max_splits=1):
        y = run("paged_decode_attention", q, k, torch.ones_like(k), table, lengths)
    assert torch.equal(y, torch.ones_like(y))


def test_a_sum_over_many_keys_is_kept_in_float32(device):
    """All weights are equal. After 256 ones their sum has no room for parts of 1 in 16 bits; then the ones go away."""
    values = torch.tensor([1, 2**-8, -1, 0], device=device)[:, None, None, None].expand(4, 256, 1, 8)
    q, cache = torch.zeros(1, 1, 8, dtype=torch.bfloat16, device=device), values.bfloat16().contiguous()
    table, lengths = torch.arange(4, device=device)[None], torch.tensor([1024], device=device)
    with launch.sizes_as(max_splits=1):
        y = run("paged_decode_attention", q, cache, cache, table, lengths)
    assert torch.equal(y, torch.full_like(y, 2**-10))


def test_caches_of_fp8_hold_what_was_scaled_and_clamped(device):
    x = torch.tensor([1e4, -1e4, 2.0, -3.0, 0.0, float("inf"), 96.0, -7.0], device=device).view(1, 1, 8)
    caches = [torch.zeros(1, 16, 1, 8, device=device).to(FP8) for _ in range(2)]
    run("paged_kv_cache_update", None, x, x, *caches, torch.tensor([3], device=device), k_scale=0.5, v_scale=0.25)
    for cache, scale in zip(caches, (0.5, 0.25)):
        assert torch.equal(cache[0, 3, 0].float(), (x / scale).flatten().clamp(-LARGEST, LARGEST))


def test_the_last_element_of_a_walked_row_makes_the_scale(device):
    x = torch.ones(2, 100, device=device)
    x[:, -1] = 89.6
    with launch.sizes_as(max_row=64):
        q, scale = run("quant_fp8_per_token", x, FP8)
    assert_close(scale, torch.full_like(scale, 89.6 / LARGEST), 1e-6)
    assert_close(q[:, -1], torch.full((2,), LARGEST, device=device), 0)


def test_gradients_of_the_last_row_far_from_zero(device):
    """Numbers that float32 holds, and their mean too once the first of the row is taken away."""
    rows = torch.randint(-8, 9, (3, 64), generator=torch.Generator().manual_seed(0)).double().to(device)
    results = []
    for shift in (0, 2**20):
        x = (rows + shift).float().requires_grad_()
        weight, bias = torch.ones(64, device=device), torch.zeros(64, device=device)
        y = run("layer_norm", x, weight, bias)
        results.append(torch.autograd.grad(y, x, randn((3, 64), device=device))[0])
    assert_close(results[1], results[0], 1e-5)


@held_or_walked
def test_a_gradient_of_the_bias_is_summed_in_float32_over_many_rows(max_row, device, small_gpu):
    """In 16 bits 1 has no room for 1 / 256."""
    x, dy = randn((32, 70), torch.bfloat16, device), torch.ones(32, 70, dtype=torch.bfloat16, device=device)
    dy[16:] = 2**-8
    weight, bias = torch.ones(70, device=device), torch.zeros(70, device=device, requires_grad=True)
    with launch.sizes_as(max_row=max_row, resident_threads=32):
        (got,) = torch.autograd.grad(run("layer_norm", x, weight, bias), bias, dy)
    assert torch.equal(got, torch.full_like(got, 16.0625))


def padded(x, width):
    """The same numbers, in rows `width` apart."""
    return torch.nn.functional.pad(x, (0, width - x.shape[1]))[:, : x.shape[1]]


@held_or_walked
@pytest.mark.parametrize("norm", ["layer_norm", "add_layer_norm"])
@pytest.mark.parametrize("total", [0, 25])
def test_each_row_is_centred_by_its_own_first_element(total, norm, max_row, device):
    """Another row's number leaves too few digits. The mean is kept for a gradient: float32 holds it if total is 0."""
    near = torch.randint(-8, 9, (3, 100), generator=torch.Generator().manual_seed(0)).double()
    near[:, -1] += total - near.sum(1)
    shift = 2.0**20 * torch.tensor([1, 3, 7])[:, None]
    weight, bias = randn((100,), device=device, seed=1), randn((100,), device=device, seed=2)
    results = []
    for x, residual in ((near, 0 * near), (near + shift, 0 * near + shift)):
        x, residual = padded(x.float().to(device), 130), padded(residual.float().to(device), 260)
        x = x.requires_grad_()
        with launch.sizes_as(max_row=max_row):
            y = run(norm, x, weight, bias) if norm == "layer_norm" else run(norm, x, residual, weight, bias)[0]
            gradients = () if total else torch.autograd.grad(y, x, randn((3, 100), device=device))
            results.append((y, *gradients))
    for near_zero, far in zip(*results):
        assert_close(far, near_zero, 1e-5)


def test_a_constant_row_has_the_same_gradient_however_large_it_is(device):
    results = []
    for number in (0.0, 1e37):
        x = torch.full((2, 100), number, device=device, requires_grad=True)
        y, *_ = run("layer_norm", x, torch.ones(100, device=device), torch.zeros(100, device=device), **STATISTICS)
        results.append(torch.autograd.grad(y, x, randn((2, 100), device=device))[0])
    assert torch.equal(*results)


@held_or_walked
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
def test_a_gradient_of_float32_weights_has_their_digits_where_x_has_16_bits(norm, max_row, device):
    x, weight = randn((3, 100), torch.bfloat16, device), randn((100,), device=device, seed=1).requires_grad_()
    dy, bias = randn((3, 100), torch.bfloat16, device, seed=2), [torch.zeros(100, device=device)] * (norm != "rms_norm")
    with launch.sizes_as(max_row=max_row):
        (got,) = torch.autograd.grad(run(norm, x, weight, *bias), weight, dy)
    wide = weight.detach().double().requires_grad_()
    y = getattr(reference, norm)(x.double(), wide, *(b.double() for b in bias))
    assert_close(got, torch.autograd.grad(y, wide, dy.double())[0], 1e-5)


@held_or_walked
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
def test_a_gradient_that_joins_is_rounded_with_the_sum_only(norm, max_row, device):
    x, dy, d_sum = (randn((8, 100), torch.bfloat16, device, seed=seed) for seed in range(3))
    x, weight = x.requires_grad_(), randn((100,), device=device, seed=3)
    bias = [torch.zeros(100, device=device)] * (norm != "rms_norm")
    with launch.sizes_as(max_row=max_row):
        (got,) = torch.autograd.grad(run("add_" + norm, x, torch.zeros_like(x), weight, *bias), x, (dy, d_sum))
    wide = x.detach().double().requires_grad_()
    y = getattr(reference, norm)(wide, weight.double(), *(b.double() for b in bias))
    want = torch.autograd.grad(y, wide, dy.double())[0] + d_sum.double()
    assert (got == want.bfloat16()).float().mean() > 0.99


def test_the_last_element_of_a_walked_row_counts_in_its_gradient(device):
    x = randn((2, 65), device=device)
    x[:, -1] = 30.0
    x, weight, dy = x.requires_grad_(), randn((65,), device=device, seed=1), randn((2, 65), device=device, seed=2)
    with launch.sizes_as(max_row=64, tile=64):
        (got,) = torch.autograd.grad(run("rms_norm", x, weight), x, dy)
    wide = x.detach().double().requires_grad_()
    (want,) = torch.autograd.grad(reference.rms_norm(wide, weight.double()), wide, dy.double())
    assert_close(got, want, 1e-5)


def test_sums_of_more_rows_than_a_block_has(device):
    x = randn((700, 5), device=device)
    assert_close(column_sum(x, torch.float32), x.double().sum(0), 1e-4)


def test_sums_of_columns_stay_when_others_are_computed(device):
    pairs = [randn((2, 5, 7), device=device, seed=seed) for seed in (0, 1)]
    types = torch.float32, torch.float32
    sums = [(column_sum(pair[0], torch.float32), *column_sums(pair, types)) for pair in pairs]
    for pair, (alone, *both) in zip(pairs, sums):
        for got, x in zip((alone, *both), (pair[0], *pair)):
            assert_close(got, x.double().sum(0), 1e-5)


def test_causal_gradients_of_few_queries_after_many_keys(device):
    """The first of several tiles of keys is seen by all queries."""
    q, k, v = (randn((1, 1, size, 16), device=device, seed=size).requires_grad_() for size in (5, 301, 302))
    v = v[:, :, 1:]
    do = randn((1, 1, 5, 16), device=device, seed=7)
    got = torch.autograd.grad(run("flash_attention", q, k, v, causal=True), (q, k, v), do)
    want = torch.autograd.grad(reference.flash_attention(q, k, v, causal=True), (q, k, v), do)
    for x, y in zip(got, want):
        assert_close(x, y, 1e-4)


def test_gradients_of_queries_over_several_blocks_of_keys_are_summed_in_float32(device):
    """q is 0: the last query weighs 32 keys alike, 16 of them unmasked. In 16 bits 1 has no room for 1 / 256."""
    k, v, do = (torch.zeros(1, 1, 32, 16, dtype=torch.bfloat16, device=device) for _ in range(3))
    v[..., [0, 1, 16, 17], 0], v[..., [2, 3, 18, 19], 0], do[..., 31, 0] = 32, -32, 1  # weighed: 1 and -1
    k[..., [0, 1, 16], 0] = torch.tensor([1, 2**-8, -1], dtype=k.dtype, device=device)
    k[..., [0, 17], 1] = torch.tensor([1, 2**-8], dtype=k.dtype, device=device)
    q = torch.zeros_like(k).requires_grad_()
    with launch.sizes_as(attention_tile=(16, 16, 256, 64)):
        (dq,) = torch.autograd.grad(run("flash_attention", q, k, v, causal=True, sm_scale=3.0), q, do)
    assert dq[0, 0, 31, :2].tolist() == [3 * 2**-8, 3 + 2**-6]  # the second rounded once: 3 + 3 / 256 lies nearer to it


def test_a_huge_gradient_of_a_query_leaves_alone_the_keys_that_it_does_not_see(device):
    q, k, v, do = (randn((1, 1, 20, 16), device=device, seed=seed) for seed in range(4))
    results = []
    for factor in (1.0, 1e34):
        do[:, :, 0] *= factor
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        results.append(torch.autograd.grad(run("flash_attention", *inputs, causal=True), inputs[1:], do))
    for got, want in zip(*results):
        assert torch.equal(got[:, :, 1:], want[:, :, 1:])  # all but the first key


def test_queries_of_more_heads_and_tokens_than_a_tile_has(device, small_gpu):
    """Each part of the one launch has several tiles both ways."""
    tokens, heads = 4, 40
    q_nope, q_pe = randn((tokens, heads, 4), device=device), randn((tokens, heads, 128), device=device, seed=1)
    w_uk, k = randn((heads, 8, 4), device=device, seed=2), randn((tokens, 1, 136), device=device, seed=3)
    slots, positions = torch.arange(tokens, device=device), torch.arange(tokens, device=device)
    caches = [torch.zeros(tokens, 1, 136, device=device) for _ in range(2)]
    rest = slots, positions, *tables(device, 128)
    got = run("mla_bmm_rope_cache", q_nope, w_uk, q_pe, k[..., :8], k[..., 8:], caches[0], *rest)
    want = reference.mla_bmm_rope_cache(q_nope, w_uk, q_pe, k[..., :8], k[..., 8:], caches[1], *rest)
    assert_close(got, want, 1e-5)
    assert_close(*caches, 1e-5)


# ---- nothing is read out of bounds, which the interpreter refuses --------------------------------------------------


def test_frequencies_and_offsets_end_with_the_last_that_is_needed(device, small_gpu):
    x, offsets = randn((1, 5, 1, 6), device=device), torch.arange(5, device=device)[None]
    frequencies = torch.tensor([1.0, 0.5, 0.25], device=device)
    y = run("rope", x, inv_freq=frequencies, layout="bshd", offsets=offsets)
    assert_close(y, reference.rope(x.double(), frequencies, None, layout="bshd", offsets=offsets), 1e-5)


def test_positions_and_offsets_end_with_the_last_token_of_a_tile_that_is_not_full(device):
    x, positions, offsets = randn((1, 5, 1, 8), device=device), torch.arange(5)[None], torch.arange(9, 14)[None]
    index = {"positions": positions.to(device), "offsets": offsets.to(device)}
    with launch.sizes_as(programs=1):
        y = run("rope", x, *tables(device, 8), layout="bshd", **index)
    assert_close(y, reference.rope(x, *tables(device, 8), layout="bshd", **index), 1e-5)


def test_offsets_end_with_the_last_token_that_is_cached(device):
    q, index = randn((5, 1, 8), device=device), torch.arange(5, device=device)
    caches = [torch.zeros(1, 16, 1, 8, device=device) for _ in range(4)]
    rest = index, index, *tables(device, 8)
    with launch.sizes_as(programs=1):
        got = run("paged_kv_cache_update", q, q, q, *caches[:2], *rest, offsets=index)
    want = reference.paged_kv_cache_update(q, q, q, *caches[2:], index, 2 * index, *tables(device, 8))
    for y, expected in zip((*got, *caches[:2]), (*want, *caches[2:])):
        assert_close(y, expected, 1e-5)


@pytest.mark.parametrize("offset", [None, 3])
def test_tokens_before_the_first_sequence_read_no_start_of_one_and_no_offset(offset, device, monkeypatch):
    """On a GPU nobody looks at the values, and such sequences reach the kernel."""
    monkeypatch.setattr(checks, "values_are_checked", lambda tensor: False)
    starts, x = torch.tensor([2, 5], device=device), randn((5, 1, 8), device=device)
    offsets = None if offset is None else torch.tensor([offset], device=device)
    y = run("rope", x, *tables(device, 8), layout="thd", cu_seqlens=starts, offsets=offsets)
    positions = torch.arange(3, device=device) + (offset or 0)
    assert_close(y[2:], reference.rope(x[2:], *tables(device, 8), layout="thd", positions=positions), 1e-5)


# ---- top-k ---------------------------------------------------------------------------------------------------------


def test_more_rows_than_a_tile_of_the_result_has(device):
    x = randn((40, 30), device=device)
    with launch.sizes_as(tile=64):
        values, indices = run("topk", x, 3)
    assert torch.equal(values, torch.topk(x, 3).values) and torch.equal(x.gather(1, indices), values)


def test_an_odd_number_of_sorted_runs_of_which_the_last_is_not_full(device):
    x = randn((2, 300), device=device)
    for cols in (290, 150):
        with launch.sizes_as(max_rounds=0, max_chosen=0, tile=64):
            values, indices = run("topk", x[:, :cols], cols)
        assert torch.equal(values, x[:, :cols].sort(descending=True).values)
        assert torch.equal(x.gather(1, indices), values)


def test_sorted_runs_of_which_the_last_is_full_and_comes_first(device):
    x = torch.arange(256.0, device=device)[None]
    with launch.sizes_as(max_rounds=0, max_chosen=0, tile=64):
        values, indices = run("topk", x, 256)
    assert torch.equal(values, x.flip(1)) and torch.equal(indices, x.flip(1).long())


@pytest.mark.parametrize(("k", "sizes"), [(100, {"max_rounds": 0, "max_chosen": 0}), (3, {})], ids=["sorted", "chosen"])
def test_two_calls_share_no_memory_between_their_launches(k, sizes, device, monkeypatch):
    """They may run side by side, on two streams."""
    tensors, launch_run = [], launch.run

    def recording(kernel, grid, *args, **meta):
        tensors.extend(x for x in args if isinstance(x, torch.Tensor))
        return launch_run(kernel, grid, *args, **meta)

    monkeypatch.setattr(launch, "run", recording)
    seen = []
    for seed in (0, 1):
        tensors.clear()
        with launch.sizes_as(tile=64, **sizes):
            run("topk", randn((1, 130), device=device, seed=seed), k)
        seen.append([*tensors])
    first, second = ({x.untyped_storage().data_ptr() for x in of_call} for of_call in seen)
    assert len(first) > 3 and not first & second


# ---- the reference -------------------------------------------------------------------------------------------------

FORMULAS = {  # in float64, rounded once
    "softmax": lambda x: (reference.softmax(x), torch.exp(x.double()) / torch.exp(x.double()).sum(-1, keepdim=True)),
    "silu": lambda x: (reference.activation(x, "silu"), x.double() / (1 + torch.exp(-x.double()))),
    "rms_norm": lambda x: (
        reference.rms_norm(x, torch.ones(x.shape[-1])),
        x.double() / (x.double() ** 2).mean(-1, keepdim=True).add(1e-6).sqrt(),
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_reference_is_rounded_once_and_anew_in_each_call(name):
    for seed in (0, 1):
        got, want = FORMULAS[name](randn((20, 300), seed=seed))
        assert got.dtype == torch.float32 and torch.equal(got, want.float())


def test_the_reference_of_two_calls():
    for seed in (0, 1):
        q, k = randn((2, 3, 4), seed=seed), randn((2, 1, 4), seed=seed + 2)
        assert torch.equal(reference.concat_qk(q, q, k, k)[0], torch.cat([q, q], dim=-1))
        q, *rest = pages("cpu", lengths=(1, 1))
        rest[1] = rest[1] + seed
        want = rest[1][rest[2][:, 0].long(), 0].repeat_interleave(2, dim=1)  # one key: its value
        assert_close(reference.paged_decode_attention(q, *rest), want, 1e-6)


def test_the_reference_of_a_paged_cache_returns_keys_in_their_dtype():
    k, caches = randn((1, 1, 8), torch.float16), [torch.zeros(1, 16, 1, 8, dtype=torch.float16) for _ in range(2)]
    index = torch.tensor([3])
    _, k_out = reference.paged_kv_cache_update(None, k, k, *caches, index, index, *tables("cpu", 8))
    assert k_out.dtype == torch.float16


def test_the_reference_takes_half_of_tables_of_full_width():
    x, (cos, sin) = randn((3, 1, 1, 8)), tables("cpu", 8)
    wide = (torch.cat([table, table], dim=-1) for table in (cos, sin))
    assert torch.equal(reference.rope(x, *wide), reference.rope(x, cos, sin))


def test_the_reference_finds_sequences_whose_starts_lie_apart_without_a_warning():
    starts = torch.tensor([0, 9, 2, 9, 5, 9])[::2]
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rows = reference.rope_rows((5, 1, 8), "thd", cu_seqlens=starts)
    finally:
        torch.set_warn_always(False)
    assert rows.tolist() == [0, 1, 0, 1, 2]


def test_random_numbers_are_float32_whatever_a_model_is_made_in():
    """Integers times a number are of the default dtype."""
    words, before = torch.tensor([123456789, 3987654321]), torch.get_default_dtype()
    want = reference.uniform(words)
    torch.set_default_dtype(torch.bfloat16)
    try:
        got = reference.uniform(words)
    finally:
        torch.set_default_dtype(before)
    assert got.dtype == torch.float32 and torch.equal(got, want)


# ---- refusals and what surrounds the kernels -----------------------------------------------------------------------


def test_refusals_name_what_was_given(monkeypatch):
    x = torch.ones(2, 8)
    with pytest.raises(ValueError, match=r"got \(3, 4\)"):
        course_kernels.rms_norm(x, torch.ones(3, 4))
    with pytest.raises(ValueError, match="weight is on meta"):
        course_kernels.rms_norm(x, torch.ones(8, device="meta"))
    with pytest.raises(ValueError, match=r"for shape \(2, 2, 6\); call .contiguous"):
        course_kernels.topk(torch.ones(2, 3, 6)[:, :2], 1)
    with pytest.raises(ValueError, match=r"got shape \(3, 4, 5\)$"):
        course_kernels.matmul(torch.ones(3, 4, 5), x)
    with pytest.raises(ValueError, match=r"filter of \(3, 3\) taps .* image of \(2, 2\) with padding"):
        course_kernels.conv2d(torch.ones(1, 3, 2, 2), torch.ones(4, 3, 3, 3))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(ValueError, match="share elements"):
        checks.no_overlap(x=torch.zeros(3, 1).expand(3, 2))


def test_a_tensor_without_dimensions_shares_memory_too():
    x = torch.ones(3)
    assert overlap.of(x[1], x) and overlap.of(x, x[1])
    assert not overlap.of(x[0], x[1:]) and not overlap.of(x[1:], x[0])


def test_memory_is_shared_where_steps_of_several_lengths_lead():
    memory = torch.ones(60)
    x = memory.as_strided((3, 5), (20, 3))
    for i in range(60):
        shared = i % 20 in (0, 3, 6, 9, 12)
        assert overlap.of(x, memory[i : i + 1]) == shared == overlap.of(memory[i : i + 1], x)


def test_each_tensor_is_asked_whether_it_has_memory():
    x = torch.ones(3)
    assert checks.without_memory(x.to("meta")) and not checks.without_memory(x)


def test_values_on_a_gpu_are_looked_at_while_the_variable_says_so(monkeypatch):
    on_gpu = SimpleNamespace(shape=(3,), dtype=torch.int64, is_meta=False, is_cuda=True, device=torch.device("cuda", 0))
    for value, looked_at in (("0", False), ("1", True), ("", False)):
        monkeypatch.setenv(checks.VARIABLE, value)
        assert checks.values_are_checked(on_gpu) == looked_at


def test_each_gpu_is_asked_once_what_it_is(monkeypatch):
    asked = []

    def properties(index):
        asked.append(index)
        return SimpleNamespace(major=9, minor=index, multi_processor_count=132)

    monkeypatch.setattr(gpu, "_gpus", {})
    monkeypatch.setattr(gpu, "simulated_gpu", lambda: None)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    for index in (0, 1, 0, 1):
        x = SimpleNamespace(shape=(3,), dtype=torch.float32, is_cuda=True, device=torch.device("cuda", index))
        assert launch.gpu_of(x) == launch.Gpu(f"sm_9{index}", 132)
    assert asked == [0, 1]


def test_scaled_angles_are_computed_where_the_tables_are():
    told = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    config = type("Config", (), {"head_dim": 8, "max_position_embeddings": 4, "rope_parameters": told})
    assert modules.RotaryEmbedding.from_config(config, device="meta").cos.is_meta


def test_what_stands_in_for_triton_wraps_nothing(monkeypatch):
    """Else whoever unwraps a function would do so for ever."""
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    with triton_importable():
        stand_in = sys.modules["triton"]
    assert inspect.unwrap(stand_in) is stand_in and stand_in.jit(len) is len
