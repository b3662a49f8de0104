"""The sizes of the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """The sizes of the model. Vocabulary 49152, hidden size 576, 9 query heads on 3 key/value heads of 64, ..."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float
    rope_base: float
