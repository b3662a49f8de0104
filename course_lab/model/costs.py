"""What a call costs at least: the bytes it must move and the floating-point operations it must do, from the shapes.

Bytes count each input that is read and each output that is written once, as if caches caught every second look.
Flops count +, -, *, /, exp and square roots as one each; attention counts its two products over visible pairs only.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from course_lab.model.calls import Call
from course_lab.model.operations import signature
from gfxlab import style
from gfxlab.tables import Table


def _embedding(tokens: Tensor, weight: Tensor) -> tuple[int, int]:
    row = weight.shape[1] * weight.element_size()
    return tokens.nbytes + 2 * len(tokens) * row, 0


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[int, int]:
    return 2 * x.nbytes + weight.nbytes, 4 * x.numel()


def _add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[int, int]:
    return 4 * x.nbytes + weight.nbytes, 5 * x.numel()


def _linear(x: Tensor, weight: Tensor) -> tuple[int, int]:
    outputs = len(x) * len(weight)
    return x.nbytes + weight.nbytes + outputs * x.element_size(), 2 * outputs * x.shape[1]


def _split_qkv_rope(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, q_heads: int, kv_heads: int, head_dim: int, style: str
) -> tuple[int, int]:
    tables = 2 * len(positions) * cos.shape[1] * cos.element_size()
    return 2 * qkv.nbytes + tables + positions.nbytes, 3 * len(qkv) * (q_heads + kv_heads) * head_dim


def _kv_cache_update(
    q: None, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, positions: Tensor
) -> tuple[int, int]:
    return 2 * (k.nbytes + v.nbytes) + positions.nbytes, 0


def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[int, int]:
    batch, heads, queries, head_dim = q.shape
    hidden = queries * (queries - 1) // 2 if causal else 0
    visible_pairs = batch * heads * (queries * k.shape[2] - hidden)
    return 2 * q.nbytes + k.nbytes + v.nbytes, 4 * head_dim * visible_pairs


def _paged_kv_cache_update(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    style: str,
) -> tuple[int, int]:
    tables = 2 * len(positions) * cos.shape[1] * cos.element_size()
    moved = 2 * q.nbytes + 3 * k.nbytes + 2 * v.nbytes  # turned keys go to the cache and to the caller
    return moved + tables + positions.nbytes + slot_mapping.nbytes, 3 * (q.numel() + k.numel())


def _paged_decode_attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, seq_lens: Tensor
) -> tuple[int, int]:
    tokens, page_size, (kv_heads, head_dim) = int(seq_lens.sum()), k_cache.shape[1], k_cache.shape[2:]
    entries = int((-(-seq_lens // page_size)).sum()) * block_table.element_size()
    row = kv_heads * head_dim * k_cache.element_size()
    return 2 * q.nbytes + 2 * tokens * row + entries + seq_lens.nbytes, 4 * q.shape[1] * head_dim * tokens


def _silu_and_mul(x: Tensor) -> tuple[int, int]:
    return x.nbytes + x.nbytes // 2, 5 * x.numel() // 2


def _topk(x: Tensor, k: int) -> tuple[int, int]:
    return x.nbytes + len(x) * k * (x.element_size() + 8), 0


def _sample(values: Tensor, indices: Tensor, temperature: float, uniform: Tensor) -> tuple[int, int]:
    return values.nbytes + indices.nbytes + uniform.nbytes + 8 * len(values), 4 * values.numel()


_COSTS: dict[str, Callable[..., tuple[int, int]]] = {
    "embedding": _embedding,
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "linear": _linear,
    "split_qkv_rope": _split_qkv_rope,
    "kv_cache_update": _kv_cache_update,
    "attention": _attention,
    "paged_kv_cache_update": _paged_kv_cache_update,
    "paged_decode_attention": _paged_decode_attention,
    "silu_and_mul": _silu_and_mul,
    "topk": _topk,
    "sample": _sample,
}


@dataclass(frozen=True)
class Cost:
    """All calls of one kind in a forward pass: how many, and what one of them moves and computes."""

    operation: str
    kind: str
    calls: int
    bytes: int
    flops: int


class CostTable:
    """The operations of one forward pass with their signatures and costs; prints as a table, in text and in HTML."""

    def __init__(self, calls: Sequence[Call], tokens: int, context: int) -> None:
        self.tokens, self.context = tokens, context
        self.rows = _by_kind(calls)

    @property
    def bytes(self) -> int:
        """The bytes of the whole forward pass."""
        return sum(row.calls * row.bytes for row in self.rows)

    @property
    def flops(self) -> int:
        """The floating-point operations of the whole forward pass."""
        return sum(row.calls * row.flops for row in self.rows)

    def __repr__(self) -> str:
        return "\n".join([self._title(), "", self._table().text(), "", "Signatures", *self._signatures()])

    def _repr_html_(self) -> str:
        signatures = html.escape("\n".join(self._signatures()))
        return style.card(self._title(), f"{self._table().html()}<pre>{signatures}</pre>")

    def _signatures(self) -> list[str]:
        return [signature(name) for name in dict.fromkeys(row.operation for row in self.rows)]

    def _title(self) -> str:
        tokens = "one token" if self.tokens == 1 else f"{self.tokens} tokens"
        return f"One forward pass of SmolLM2 over {tokens}, {self.context} before"

    def _table(self) -> Table:
        rows = [
            (
                row.operation,
                row.kind,
                f"{row.calls}",
                f"{row.bytes:,}",
                f"{row.flops:,}",
                f"{row.calls * row.bytes / self.bytes:.1%}",
            )
            for row in self.rows
        ]
        total = ("all", "", f"{sum(row.calls for row in self.rows)}", f"{self.bytes:,}", f"{self.flops:,}", "100.0%")
        return Table([*rows, total], _HEAD, numbers=4)


_HEAD = ("operation", "where", "calls", "bytes a call", "flops a call", "share of bytes")


def _by_kind(calls: Sequence[Call]) -> list[Cost]:
    """One row for each kind of call, in the order of the forward pass."""
    counts = Counter((call.operation, call.kind) for call in calls)
    costs = {(call.operation, call.kind): _COSTS[call.operation](*call, **call.keywords) for call in calls}
    return [Cost(operation, kind, counts[operation, kind], *cost) for (operation, kind), cost in costs.items()]
