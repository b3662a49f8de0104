"""The truth itself: each formula of the reference against one of PyTorch's own in float64, or a loop, to the last bit.

Each case is computed twice, for other numbers of the same shapes.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import course_kernels
from course_kernels import reference

FP8 = torch.float8_e4m3fn
LARGEST = 448.0
Results = Iterator[tuple[Tensor, Tensor]]
Draw = Callable[..., Tensor]
COS, SIN = course_kernels.rope_tables(32, 16)


def drawn(generator: torch.Generator, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator).to(dtype)


def turned(x: Tensor, rows: Tensor, cos: Tensor = COS, sin: Tensor = SIN) -> Tensor:
    """Halves of a head as real and imaginary parts, times e^(i angle); not rounded."""
    numbers = torch.complex(*x.double().chunk(2, dim=-1))
    product = numbers * torch.complex(cos.double(), sin.double())[rows].unsqueeze(-2)
    return torch.cat([product.real, product.imag], dim=-1)


def rounded_to_fp8(x: Tensor, scale: float | Tensor) -> Tensor:
    """In float64, which holds what 8 bits hold."""
    return (x.double() / scale).clamp(-LARGEST, LARGEST).to(FP8).double()


def in_groups(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """q and scales of each group of so many columns, one group after the other."""
    scales = [group.double().abs().amax(dim=-1) / LARGEST for group in x.split(size, dim=-1)]
    q = [rounded_to_fp8(group, scale[:, None]) for group, scale in zip(x.split(size, dim=-1), scales)]
    return torch.cat(q, dim=-1).to(FP8), torch.stack(scales, dim=-1).float()


def philox_bits(seed: int, count: int) -> np.ndarray:
    """Philox-4x32-10 in Python's own integers, as int32."""
    words = []
    for counter in range(-(-count // 4)):
        c, key = [counter, 0, 0, 0], [seed % 2**32, seed >> 32]
        for _ in range(10):
            a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [b >> 32 ^ c[1] ^ key[0], b % 2**32, a >> 32 ^ c[3] ^ key[1], a % 2**32]
            key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
        words += c
    return np.array(words[:count], dtype=np.uint32).view(np.int32)


def sums(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    x, y = draw(3, 5), draw(3, 5)
    yield reference.vector_add(x, y), (x.double() + y.double()).to(dtype)


def norms(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    """Of numbers so small that eps shows."""
    x, residual, weight, bias = draw(7, 33) / 512, draw(7, 33) / 512, draw(33), draw(33)
    total = (x.double() + residual.double()).to(dtype)

    def rms(x, *eps):
        return functional.rms_norm(x.double(), (33,), weight.double(), *eps).to(dtype)

    def layer(x, eps):
        return functional.layer_norm(x.double(), (33,), weight.double(), bias.double(), eps).to(dtype)

    yield reference.rms_norm(x, weight), rms(x, 1e-6)
    yield reference.rms_norm(x, weight, 1e-3), rms(x, 1e-3)
    yield reference.layer_norm(x, weight, bias), layer(x, 1e-5)
    yield reference.layer_norm(x, weight, bias, 1e-3), layer(x, 1e-3)
    yield from zip(reference.add_rms_norm(x, residual, weight), (rms(total, 1e-6), total), strict=True)
    yield from zip(reference.add_layer_norm(x, residual, weight, bias), (layer(total, 1e-5), total), strict=True)
    variance, mean = torch.var_mean(x.double(), dim=-1, correction=0)
    want = mean.float(), (1 / (variance + 1e-5).sqrt()).float()
    yield from zip(reference.layer_norm_statistics(x), want, strict=True)


def activations(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    x = draw(5, 22)
    gate, factor = x[:, :11].double(), x[:, 11:].double()
    yield reference.softmax(x), (x.double() - x.double().logsumexp(dim=-1, keepdim=True)).exp().to(dtype)
    yield reference.silu_and_mul(x), (functional.silu(gate) * factor).to(dtype)
    yield reference.act_and_mul(x, "gelu"), (functional.gelu(gate) * factor).to(dtype)
    yield reference.activated(x, None), x
    yield reference.activated(x, "gelu_tanh"), functional.gelu(x.double(), approximate="tanh").to(dtype)


def dropout(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    x, residual = draw(5, 31), draw(5, 31)
    bits = philox_bits(seed, 155)
    number = np.where(bits < 0, -1 - bits, bits).astype(np.float32) * np.float32(4.6566127342e-10)
    kept = torch.from_numpy(number >= np.float32(0.3)).view(5, 31)
    yield reference.dropout_keeps(x, 0.3, seed), kept
    yield reference.dropout_add(x, residual, 0.3, seed), (residual.double() + kept * x.double() / (1 - 0.3)).to(dtype)
    yield reference.dropout_add(x, residual, 0.0, seed), (residual.double() + x.double()).to(dtype)
    yield reference.dropout_add(x, residual, 1.0, seed), residual


def quantized(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    """The last group is narrower."""
    x = draw(6, 50)
    q, scale = in_groups(x, 50)
    yield from zip(reference.quant_fp8_per_token(x, FP8), (q, scale[:, 0]), strict=True)
    yield from zip(reference.quant_fp8_per_group(x, 16, FP8), in_groups(x, 16), strict=True)
    product = functional.silu(x[:, :25].double()) * x[:, 25:].double()
    yield from zip(reference.act_mul_fp8_quant(x, "silu", 16, FP8), in_groups(product, 16), strict=True)


def products(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    a, b = draw(5, 40), draw(40, 7)
    product = torch.einsum("mk,kn->mn", a.double(), b.double())
    yield reference.matmul(a, b), product.to(dtype)
    yield reference.matmul(a, b, torch.float32, "relu"), product.clamp(min=0).float()
    yield reference.linear(a, b.T), product.to(dtype)


def largest(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    x = draw(3, 20).argsort(dim=-1).to(dtype)
    yield from zip(reference.topk(x, 4), torch.topk(x, 4), strict=True)
    yield from zip(reference.topk(x, 4, largest=False), torch.topk(x, 4, largest=False), strict=True)


def convolution(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    """Patches of the image, as columns of a matrix."""
    x, weight, bias = draw(2, 3, 7, 6), draw(4, 3, 3, 2), draw(4)
    patches = functional.unfold(x.double(), (3, 2), padding=1, stride=2)
    want = weight.double().flatten(1) @ patches + bias.double()[:, None]
    yield reference.conv2d(x, weight, bias, stride=2, padding=1), want.view(2, 4, 4, 4).to(dtype)


def attention(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    """Two queries share each key."""
    q, k, v = draw(2, 4, 9, 12), draw(2, 2, 9, 12), draw(2, 2, 9, 12)
    k64, v64 = (x.double()[:, [0, 0, 1, 1]] for x in (k, v))
    scores = (q.double() @ k64.mT / 12**0.5).masked_fill(torch.ones(9, 9).triu(1) > 0, -torch.inf)
    o, lse = reference.flash_attention(q, k, v, causal=True, return_lse=True)
    yield o, functional.scaled_dot_product_attention(q.double(), k64, v64, is_causal=True).to(dtype)
    yield lse, scores.exp().sum(dim=-1).log().float()


def paged_attention(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    """Entries of the table past a sequence name no block at all."""
    q, k_cache, v_cache = draw(2, 4, 12), draw(5, 4, 2, 12), draw(5, 4, 2, 12)
    table = torch.tensor([[3, 0, 10**6, 10**6, 10**6], [4, 1, 2, 10**6, -1]], dtype=torch.int32)
    k_scale, v_scale = torch.tensor([0.3, 0.7]), torch.tensor([1.1, 0.9])
    want = []
    for b, (blocks, length) in enumerate([([3, 0], 5), ([4, 1, 2], 9)]):
        k, v = (cache[blocks].flatten(0, 1)[:length, [0, 0, 1, 1]].double() for cache in (k_cache, v_cache))
        k, v = (x * s.double()[[0, 0, 1, 1], None] for x, s in ((k, k_scale), (v, v_scale)))
        alone = [x.transpose(0, 1) for x in (q[b, None].double(), k, v)]
        want.append(functional.scaled_dot_product_attention(*alone)[:, 0])
    lengths = torch.tensor([5, 9], dtype=torch.int32)
    o = reference.paged_decode_attention(q, k_cache, v_cache, table, lengths, k_scale=k_scale, v_scale=v_scale)
    yield o, torch.stack(want).to(dtype)


def rotations(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    x, image, positions = draw(7, 4, 16), draw(2, 6, 3, 32), torch.tensor([5, 0, 31, 5, 2, 30, 1])
    for index in (torch.int32, torch.int64):
        starts = torch.tensor([0, 3, 3, 7], dtype=index)
        restarted = reference.rope(x, COS, SIN, layout="thd", cu_seqlens=starts)
        yield restarted, turned(x, torch.tensor([0, 1, 2, 0, 1, 2, 3])).to(dtype)
    pixels = torch.arange(6)
    want = [turned(half, rows) for half, rows in zip(image.chunk(2, dim=-1), (pixels // 3, pixels % 3))]
    yield reference.rope_2d(image, COS[:2], SIN[:2], COS[:3], SIN[:3]), torch.cat(want, dim=-1).to(dtype)
    got = reference.split_qkv_rope(x.flatten(1), COS, SIN, positions, 2, 1, 16)
    q, k, v = x.split([2, 1, 1], dim=1)
    yield from zip(got, (turned(q, positions).to(dtype), turned(k, positions).to(dtype), v), strict=True)
    q, k, plain_q, plain_k = draw(7, 2, 16), draw(7, 1, 16), draw(7, 2, 5), draw(7, 1, 5)
    pairs = [torch.cat(pair, dim=-1) for pair in ((plain_q, q), (plain_k, k))]
    yield from zip(reference.concat_qk(plain_q, q, plain_k, k), pairs, strict=True)
    pairs = [torch.cat([one, turned(x, positions).to(dtype)], -1) for one, x in ((plain_q, q), (plain_k, k))]
    yield from zip(reference.rope_concat_qk(plain_q, q, plain_k, k, positions, COS, SIN), pairs, strict=True)


def caches(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    q, k, v, cache = draw(2, 3, 4, 16), draw(2, 3, 2, 16), draw(2, 3, 2, 16), draw(2, 2, 8, 2, 16)
    positions, want = torch.tensor([[7, 0, 5], [6, 3, 1]]), cache.clone()
    for b, row in enumerate(positions):
        for t, position in enumerate(row):
            want[0, b, position], want[1, b, position] = turned(k, positions)[b, t].to(dtype), v[b, t]
    got = reference.kv_cache_update(q, k, v, *cache, positions, COS, SIN)
    yield got, turned(q, positions).to(dtype)
    yield cache, want


def paged_caches(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    """Of 8 bits: what is written there is rounded once, also where k and v have few bits more."""
    q, k, v = draw(60, 4, 16), draw(90, 2, 16), draw(90, 2, 16)
    k_cache, v_cache = (torch.zeros(13, 8, 2, 16).to(FP8) for _ in range(2))
    slots, positions = torch.arange(100, 10, -1), torch.arange(60) * 7 % 32
    slots[::9] = -1
    want = torch.zeros(2, 13, 8, 2, 16, dtype=torch.float64)
    rows = torch.cat([turned(k[:60], positions), k[60:].double()])
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            want[0, slot // 8, slot % 8] = rounded_to_fp8(rows[t], 0.007)
            want[1, slot // 8, slot % 8] = rounded_to_fp8(v[t], 0.003)
    got = reference.paged_kv_cache_update(
        q, k, v, k_cache, v_cache, slots, positions, COS, SIN, k_scale=0.007, v_scale=torch.tensor([0.003]).double()
    )
    yield from zip(got, (turned(q, positions).to(dtype), rows[:60].to(dtype)), strict=True)
    yield from zip((k_cache, v_cache), want.to(FP8), strict=True)


def latent_attention(draw: Draw, dtype: torch.dtype, seed: int) -> Results:
    q, q_pe, w_uk, k, k_pe = draw(40, 3, 10), draw(40, 3, 16), draw(3, 20, 10), draw(60, 1, 20), draw(60, 1, 16)
    cache, positions = torch.zeros(64, 1, 36).to(FP8), torch.arange(40) * 7 % 32
    slots = torch.arange(60, 0, -1)
    slots[::9] = -1
    want = torch.zeros(64, 1, 36, dtype=torch.float64)
    rows = torch.cat([k.double(), torch.cat([turned(k_pe[:40], positions), k_pe[40:].double()])], dim=-1)
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            want[slot] = rounded_to_fp8(rows[t], 0.007)
    absorbed = torch.stack([q[:, h].double() @ w_uk[h].double().T for h in range(3)], dim=1)
    got = reference.mla_bmm_rope_cache(q, w_uk, q_pe, k, k_pe, cache, slots, positions, COS, SIN, k_scale=0.007)
    yield got, torch.cat([absorbed, turned(q_pe, positions)], dim=-1).to(dtype)
    yield cache, want.to(FP8)


CASES = [
    sums, norms, activations, dropout, quantized, products, largest, convolution, attention, paged_attention,
    rotations, caches, paged_caches, latent_attention,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_formula_is_rounded_once(case, dtype):
    for seed in (0, 1):
        draw = partial(drawn, torch.Generator().manual_seed(seed), dtype)
        for i, (got, want) in enumerate(case(draw, dtype, seed)):
            assert got.dtype == want.dtype and got.is_contiguous(), f"result {i}"
            assert torch.equal(got.double(), want.double()), f"result {i} for seed {seed}"


def test_the_gradient_of_a_rotation_is_rounded_once(dtype):
    """It is turned back; each element of x has a share in two of the result."""
    x, dy = (drawn(torch.Generator().manual_seed(seed), dtype, 31, 4, 16) for seed in (0, 1))
    reference.rotate_tokens(x.requires_grad_(), torch.arange(31), COS, SIN, "neox").backward(dy)
    assert torch.equal(x.grad, turned(dy, torch.arange(31), COS, -SIN).to(dtype))


def test_the_upper_half_of_the_words_counts_down():
    for word, steps in ((0, 0), (1, 1), (2**31 - 1, 2**31 - 1), (2**31, 2**31 - 1), (2**32 - 2, 1), (2**32 - 1, 0)):
        number = reference.uniform(torch.tensor([word]))
        assert number.dtype == torch.float32 and number.item() < 1
        assert number.item() == np.float32(steps) * np.float32(4.6566127342e-10), f"word {word}"


def test_places_are_counted_where_the_tokens_are(monkeypatch):
    """A device without numbers stands for a GPU."""

    def tell(x, rows, *angles):
        raise LookupError(f"rows on {rows.device}")

    monkeypatch.setattr(reference, "rotate_tokens", tell)
    with pytest.raises(LookupError, match="rows on meta"):
        reference.rope(torch.empty(3, 2, 4, 16, device="meta"), *torch.empty(2, 3, 8, device="meta"))
