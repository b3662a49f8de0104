"""The truth that kernels are tested against: each formula in plain PyTorch, and nothing else.

Sums and means are taken in float64 and rounded once, at the end, to the dtype of the result.  Autograd differentiates
them all.
"""

import torch
from torch import Tensor


def vector_add(x: Tensor, y: Tensor) -> Tensor:
    """x + y"""
    return x + y


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension (Zhang and Sennrich, 2019)"""
    x64 = x.double()
    mean_square = x64.square().mean(dim=-1, keepdim=True)
    return (x64 * torch.rsqrt(mean_square + eps) * weight.double()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """new_residual = x + residual, rounded to their dtype; y = rms_norm(new_residual)"""
    new_residual = x + residual
    return rms_norm(new_residual, weight, eps), new_residual


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias, over the last dimension (Ba, Kiros and Hinton, 2016)"""
    x64 = x.double()
    centred = x64 - x64.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return (centred * torch.rsqrt(variance + eps) * weight.double() + bias.double()).to(x.dtype)


def layer_norm_statistics(x: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """mean(x) and rstd = 1 / sqrt(var(x) + eps) over the last dimension, in float32; no gradient flows to them"""
    x64 = x.detach().double()
    mean = x64.mean(dim=-1, keepdim=True)
    variance = (x64 - mean).square().mean(dim=-1)
    return mean.squeeze(-1).float(), torch.rsqrt(variance + eps).float()


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """new_residual = x + residual, rounded to their dtype; y = layer_norm(new_residual)"""
    new_residual = x + residual
    return layer_norm(new_residual, weight, bias, eps), new_residual


def softmax(x: Tensor) -> Tensor:
    """exp(x - max(x)) / sum(exp(x - max(x))), over the last dimension"""
    return torch.softmax(x.double(), dim=-1).to(x.dtype)


def activation(x: Tensor, kind: str) -> Tensor:
    """silu, gelu, gelu_tanh or relu of x"""
    x64 = x.double()
    functions = {
        "silu": lambda: x64 * torch.sigmoid(x64),
        "gelu": lambda: torch.nn.functional.gelu(x64),
        "gelu_tanh": lambda: torch.nn.functional.gelu(x64, approximate="tanh"),
        "relu": lambda: torch.relu(x64),
    }
    return functions[kind]().to(x.dtype)


def act_and_mul(x: Tensor, kind: str) -> Tensor:
    """activation(gate) * factor, where gate and factor are the halves of the last dimension (Shazeer, 2020)"""
    gate, factor = x.double().chunk(2, dim=-1)
    return (activation(gate, kind) * factor).to(x.dtype)


def philox(seed: int, counter: Tensor) -> Tensor:
    """Four random 32-bit words for each counter: Philox-4x32-10 with the seed as key (Salmon et al., 2011)"""
    low, high = counter & 0xFFFFFFFF, counter >> 32
    words = [low, high, torch.zeros_like(low), torch.zeros_like(low)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57  # 64 bits: wrapped around, but none is lost
        words = [(b >> 32) ^ words[1] ^ key[0], b, (a >> 32) ^ words[3] ^ key[1], a]
        words = [word & 0xFFFFFFFF for word in words]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return torch.stack(words, dim=-1)


def dropout_keeps(x: Tensor, p: float, seed: int) -> Tensor:
    """True where dropout keeps an element: word i % 4 of philox(i // 4) as a number in [0, 1) is not below p"""
    words = philox(seed, torch.arange(-(-x.numel() // 4), device=x.device)).flatten()[: x.numel()]
    return (uniform(words) >= torch.tensor(p, dtype=torch.float32, device=x.device)).view(x.shape)


def uniform(words: Tensor) -> Tensor:
    """32-bit words as float32 in [0, 1), as in Triton"""
    folded = torch.where(words >= 2**31, 2**32 - 1 - words, words)  # 31 bits: the upper half counts down
    return folded.float() * 4.6566127342e-10  # a little less than 2**-31, so that 1 is never reached


def dropout_add(x: Tensor, residual: Tensor, p: float, seed: int, training: bool = True) -> Tensor:
    """residual + x / (1 - p) where kept, residual where dropped (Srivastava et al., 2014)"""
    if not training or p == 0:
        return (residual.double() + x.double()).to(x.dtype)
    scaled = x.double() / (1 - p) if p < 1 else x.double()
    dropped = torch.where(dropout_keeps(x, p, seed), scaled, 0.0)
    return (residual.double() + dropped).to(x.dtype)


def _round_to_fp8(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(q, scale) of each row: scale = amax / largest number of the dtype; amax is at least 1e-10, for rows of zeros"""
    largest = torch.finfo(dtype).max
    amax = torch.nn.functional.pad(x.double().abs(), (0, 1)).amax(dim=-1).clamp(min=1e-10)  # a row may have no element
    scale = amax / largest
    q = (x.double() / scale[..., None]).clamp(-largest, largest)
    return q.float().to(dtype), scale.float()


def quant_fp8_per_token(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(q, scale) with x close to q * scale, one scale for each row"""
    return _round_to_fp8(x, dtype)


def quant_fp8_per_group(x: Tensor, group_size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(q, scale), one scale for each group_size neighbours in a row; the last group may be narrower"""
    cols = x.shape[-1]
    groups = -(-cols // group_size)
    padded = torch.nn.functional.pad(x, (0, groups * group_size - cols))
    q, scale = _round_to_fp8(padded.view(*x.shape[:-1], groups, group_size), dtype)
    return q.flatten(-2)[..., :cols].contiguous(), scale


def act_mul_fp8_quant(x: Tensor, kind: str, group_size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(q, scale) of act_and_mul(x), not rounded in between"""
    return quant_fp8_per_group(act_and_mul(x.double(), kind), group_size, dtype)


def silu_and_mul(x: Tensor) -> Tensor:
    """silu(gate) * factor, for the two halves of the last dimension"""
    return act_and_mul(x, "silu")


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor, style: str) -> Tensor:
    """(a, b) -> (a cos - b sin, b cos + a sin) for every pair of the last dimension; in float64, not rounded"""
    x, cos, sin = x.double(), cos.double(), sin.double()
    a, b = x.chunk(2, dim=-1) if style == "neox" else (x[..., 0::2], x[..., 1::2])
    turned = a * cos - b * sin, b * cos + a * sin
    return torch.cat(turned, dim=-1) if style == "neox" else torch.stack(turned, dim=-1).flatten(-2)


def rotate_tokens(x: Tensor, rows: Tensor, cos: Tensor, sin: Tensor, style: str) -> Tensor:
    """x (..., heads, D), every head turned by the angles in its token's row of the tables; rows: (...)"""
    return rotate_pairs(x, cos[rows].unsqueeze(-2), sin[rows].unsqueeze(-2), style).to(x.dtype)


def rope_rows(
    shape: tuple[int, ...],
    layout: str = "sbhd",
    positions: Tensor | None = None,
    offsets: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
) -> Tensor:
    """The row of the tables that each token of x takes, for an x of this shape, less its last two dimensions"""
    tokens = shape[:-2]
    device = next((index.device for index in (positions, offsets, cu_seqlens) if index is not None), None)
    counted = torch.arange(tokens[layout == "bshd"], device=device)
    if cu_seqlens is not None:
        sequence = torch.searchsorted(cu_seqlens[1:].contiguous(), counted.to(cu_seqlens.dtype), right=True)
        rows = counted - cu_seqlens[sequence]
        return rows if offsets is None else rows + offsets[sequence]
    rows = per_token(counted if positions is None else positions, tokens, layout)
    if offsets is None:
        return rows
    return rows + per_token(offsets, tokens, layout, offsets_of_sequences(shape, layout, positions, offsets))


def per_token(index: Tensor, tokens: tuple[int, ...], layout: str, each_sequence: bool = False) -> Tensor:
    """A view of the index with an element for each token, from one for each place in a sequence, or each sequence"""
    if layout != "thd" and index.ndim == 1 and (layout == "sbhd") != each_sequence:
        index = index[:, None]
    return index.expand(tokens)


def offsets_of_sequences(shape: tuple[int, ...], layout: str, positions: Tensor | None, offsets: Tensor) -> bool:
    """Whether offsets are one for each sequence, (B,), rather than one for each token, shaped like the positions"""
    if offsets.ndim != 1 or (positions is not None and offsets.shape == positions.shape):
        return False
    return len(offsets) == {"sbhd": shape[1], "bshd": shape[0], "thd": 1}[layout]


def rope(
    x: Tensor,
    cos: Tensor,
    sin: Tensor | None,
    *,
    style: str = "neox",
    layout: str = "sbhd",
    positions: Tensor | None = None,
    offsets: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    rotary_dim: int | None = None,
    nope_first: bool = False,
) -> Tensor:
    """x with rotary_dim elements of each head turned, the rest as it was (Su et al., 2021)

    Tables may be of full width. Where sin is None, cos has the frequencies.
    """
    rotary_dim = x.shape[-1] if rotary_dim is None else rotary_dim
    plain = x.shape[-1] - rotary_dim
    rows = rope_rows(x.shape, layout, positions, offsets, cu_seqlens).to(x.device)
    if sin is None:  # a table of its own for each token
        angles = rows.double().flatten()[:, None] * cos.double()
        cos, sin, rows = angles.cos(), angles.sin(), torch.arange(len(angles), device=x.device).view(rows.shape)
    cos, sin = (table[:, : rotary_dim // 2] for table in (cos, sin))
    if nope_first:
        kept, turned = x.split([plain, rotary_dim], dim=-1)
        return torch.cat([kept, rotate_tokens(turned, rows, cos, sin, style)], dim=-1)
    turned, kept = x.split([rotary_dim, plain], dim=-1)
    return torch.cat([rotate_tokens(turned, rows, cos, sin, style), kept], dim=-1)


def rope_2d(x: Tensor, cos_h: Tensor, sin_h: Tensor, cos_w: Tensor, sin_w: Tensor) -> Tensor:
    """x (B, H * W, heads, D): the first half of each head turned by its pixel's row, the second half by its column"""
    pixel = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    by_row, by_column = x.chunk(2, dim=-1)
    by_row = rotate_tokens(by_row, pixel // len(cos_w), cos_h, sin_h, "neox")
    return torch.cat([by_row, rotate_tokens(by_column, pixel % len(cos_w), cos_w, sin_w, "neox")], dim=-1)


def activated(x: Tensor, kind: str | None) -> Tensor:
    """activation(x), or x itself if the kind is None"""
    return x if kind is None else activation(x, kind)


def matmul(a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None, activation: str | None = None) -> Tensor:
    """activation(a @ b), rounded once"""
    return activated(a.double() @ b.double(), activation).to(out_dtype or a.dtype)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T, rounded once"""
    return (x.double() @ weight.double().T).to(x.dtype)


def topk(x: Tensor, k: int, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest, or smallest, elements of the last dimension and their indices: of equals the lowest index first"""
    values, indices = torch.sort(x, dim=-1, descending=largest, stable=True)
    return values[..., :k].contiguous(), indices[..., :k].contiguous()


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, sm_scale: float | None = None, return_lse: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(q k^T * sm_scale) v over the keys each query sees, and log-sum-exp of its scores; none: 0 and -inf"""
    sm_scale = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    k64, v64 = (x.double().repeat_interleave(q.shape[1] // max(x.shape[1], 1), dim=1) for x in (k, v))
    visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)
    if causal:  # the last query sees the last key
        visible = visible.tril(k.shape[2] - q.shape[2])
    sees_any = visible.any(dim=-1, keepdim=True)
    scores = q.double() @ k64.mT * sm_scale
    scores = scores.masked_fill(~visible, -torch.inf).masked_fill(~sees_any, 0.0)
    o = (torch.softmax(scores, dim=-1) * sees_any @ v64).to(q.dtype)
    lse = scores.detach().logsumexp(dim=-1).masked_fill(~sees_any[:, 0], -torch.inf).float()
    return (o, lse) if return_lse else o


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
) -> Tensor:
    """The sum over channels and taps of shifted images times weights, plus bias; one group, nothing is flipped"""
    bias = None if bias is None else bias.double()
    return torch.nn.functional.conv2d(x.double(), weight.double(), bias, stride, padding, dilation).to(x.dtype)


def paged_decode_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    *,
    sm_scale: float | None = None,
    k_scale: float | Tensor | None = None,
    v_scale: float | Tensor | None = None,
    layout: str = "flash",
) -> Tensor:
    """Attention of q[b] to the first seq_lens[b] tokens in the blocks that block_table[b] lists, times their scales"""
    o = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    block_size = k_cache.shape[1 if layout == "flash" else 3]
    for b, length in enumerate(seq_lens.tolist()):
        blocks = block_table[b, : -(-length // max(block_size, 1))].long()
        k = _tokens(k_cache, blocks, layout)[:length] * _each_head(k_scale)
        v = _tokens(v_cache, blocks, layout)[:length] * _each_head(v_scale)
        k, v = (x.transpose(0, 1)[None] for x in (k, v))
        o[b] = flash_attention(q[b, None, :, None], k, v, sm_scale=sm_scale)[0, :, 0]
    return o


def _tokens(cache: Tensor, blocks: Tensor, layout: str) -> Tensor:
    """The tokens in these blocks of a paged cache, (tokens, KH, D), in float64"""
    pages = _storable(cache)[blocks].view(cache.dtype).double()
    if layout == "packed":  # keys (blocks, KH, D / x, block_size, x), values (blocks, KH, D, block_size)
        pages = pages.permute(0, 3, 1, 2, 4).flatten(3) if pages.ndim == 5 else pages.permute(0, 3, 1, 2)
    return pages.flatten(0, 1)


def _each_head(scale: float | Tensor | None) -> float | Tensor:
    """A factor of (tokens, KH, D): none, one, or one for each head"""
    return scale.double().view(-1, 1) if isinstance(scale, Tensor) else 1.0 if scale is None else scale


def split_qkv_rope(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    num_q_heads: int,
    num_kv_heads: int,
    head_dim: int,
    *,
    style: str = "neox",
) -> tuple[Tensor, Tensor, Tensor]:
    """(q, k, v) from rows of [all Q | all K | all V], q and k turned"""
    heads = qkv.view(len(qkv), num_q_heads + 2 * num_kv_heads, head_dim)
    q, k, v = heads.split([num_q_heads, num_kv_heads, num_kv_heads], dim=1)
    return *(rotate_tokens(x, positions, cos, sin, style) for x in (q, k)), v.contiguous()


def concat_qk(q1: Tensor, q2: Tensor, k1: Tensor, k2: Tensor) -> tuple[Tensor, Tensor]:
    """(q, k): the two parts of each head side by side"""
    return torch.cat([q1, q2], dim=-1), torch.cat([k1, k2], dim=-1)


def rope_concat_qk(
    q_nope: Tensor,
    q_pe: Tensor,
    k_nope: Tensor,
    k_pe: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    style: str = "neox",
) -> tuple[Tensor, Tensor]:
    """(q, k): the two parts of each head side by side, the second turned"""
    q_pe, k_pe = (rotate_tokens(x, positions, cos, sin, style) for x in (q_pe, k_pe))
    return concat_qk(q_nope, q_pe, k_nope, k_pe)


def kv_cache_update(
    q: Tensor | None,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    positions: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    *,
    style: str = "neox",
) -> Tensor | None:
    """k, turned, and v into the caches (B, S_max, KH, D) at each token's position; q, turned"""
    if cos is not None:
        q, k = (None if x is None else rotate_tokens(x, positions, cos, sin, style) for x in (q, k))
    sequence = torch.arange(len(positions), device=positions.device)[:, None]
    k_cache[sequence, positions.long()] = k
    v_cache[sequence, positions.long()] = v
    return q


def paged_kv_cache_update(
    q: Tensor | None,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    positions: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    *,
    layout: str = "flash",
    k_scale: float | Tensor | None = None,
    v_scale: float | Tensor | None = None,
    offsets: Tensor | None = None,
    style: str = "neox",
) -> tuple[Tensor | None, Tensor]:
    """k, its first rows turned, and v into the slots of paged caches, none where it is negative; q and k, turned"""
    turned = len(k) if positions is None else len(positions)
    exact = k.double()
    positions = positions if offsets is None else positions + offsets
    if cos is not None:
        q = None if q is None else rotate_tokens(q, positions, cos, sin, style)
        exact = torch.cat([rotate_tokens(exact[:turned], positions, cos, sin, style), exact[turned:]])
    keep = slot_mapping >= 0
    k_rows, v_rows = _to_cache(exact[keep], k_cache, k_scale), _to_cache(v[keep], v_cache, v_scale)
    k_cache, v_cache = _storable(k_cache), _storable(v_cache)
    page_size = k_cache.shape[1 if layout == "flash" else 3]
    page, place = slot_mapping[keep].long() // page_size, slot_mapping[keep].long() % page_size
    if layout == "flash":
        k_cache[page, place], v_cache[page, place] = k_rows, v_rows
    else:
        k_cache[page, :, :, place] = k_rows.unflatten(-1, (-1, k_cache.shape[-1]))
        v_cache[page, :, :, place] = v_rows
    return q, exact[:turned].to(k.dtype)


def _to_cache(x: Tensor, cache: Tensor, scale: float | Tensor | None) -> Tensor:
    """x, or round(clamp(x / scale)), in the dtype of the cache"""
    if scale is not None:
        largest = torch.finfo(cache.dtype).max
        x = (x.double() / float(scale)).clamp(-largest, largest).float()
    return _storable(x.to(cache.dtype))


def _storable(x: Tensor) -> Tensor:
    """x, or its bytes where it is fp8, which PyTorch cannot index"""
    return x.view(torch.uint8) if x.itemsize == 1 else x


def mla_bmm_rope_cache(
    q_nope: Tensor,
    w_uk: Tensor,
    q_pe: Tensor,
    k_nope: Tensor,
    k_pe: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    k_scale: float | Tensor | None = None,
    style: str = "neox",
) -> Tensor:
    """[q_nope w_uk^T | q_pe turned]; and rows [k_nope | k_pe], the first turned, into their slots of the cache"""
    absorbed = torch.einsum("bhp,hlp->bhl", q_nope.double(), w_uk.double()).to(q_nope.dtype)
    q_pe = rotate_tokens(q_pe, positions, cos, sin, style)
    tokens, keep = len(positions), slot_mapping >= 0
    k_pe = torch.cat([rotate_tokens(k_pe[:tokens].double(), positions, cos, sin, style), k_pe[tokens:].double()])
    rows = torch.cat([k_nope.double(), k_pe], dim=-1)[keep]
    _storable(kv_cache)[slot_mapping[keep].long()] = _to_cache(rows, kv_cache, k_scale)
    return torch.cat([absorbed, q_pe], dim=-1)
