"""The frequencies of RoPE that a model's configuration asks for: those of Llama 2, or scaled for longer contexts.

| rope_type | what is done to the frequencies                                                      | by                |
|-----------|--------------------------------------------------------------------------------------|-------------------|
| default   | base^(-2i / dim)                                                                     | Su et al., 2021   |
| linear    | all divided by the factor                                                            | Chen et al., 2023 |
| dynamic   | a larger base, the longer the sequence is beyond the trained length ("NTK-aware")    | emozilla, 2023    |
| yarn      | divided where a pair turns little within the trained length, kept where it does not  | Peng et al., 2023 |
| llama3    | the same with other bounds                                                           | Llama 3.1, 2024   |
| longrope  | a factor of its own for each pair, other ones in sequences beyond the trained length | Ding et al., 2024 |

The names are those of configurations of `transformers`.
"""

import math
from typing import Any

import torch

ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


def settings(config: Any) -> dict[str, Any]:
    """What a configuration says on RoPE, as numbers and lists: enough for `frequencies`.

    Raises:
        ValueError: a rope_type that is none of ROPE_TYPES.
    """
    told = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    of_config = {
        name: getattr(config, name) for name in ("rope_theta", "partial_rotary_factor") if hasattr(config, name)
    }
    found = {"rope_theta": 10000.0, "partial_rotary_factor": 1.0, **of_config, **told}
    found["rope_type"] = found.get("rope_type", found.get("type", "default"))
    if found["rope_type"] not in ROPE_TYPES:
        raise ValueError(
            f"RotaryEmbedding knows rope_type {', '.join(map(repr, ROPE_TYPES))}; got {found['rope_type']!r}"
        )
    found["dim"] = int(head_dim * found["partial_rotary_factor"])
    found["longest"] = config.max_position_embeddings
    found["trained"] = found.get("original_max_position_embeddings") or config.max_position_embeddings
    if found.get("factor") is None:
        found["factor"] = found["longest"] / found["trained"]
    return found


def regime(told: dict[str, Any], length: int, before: int) -> int:
    """Sequences for which this number is the same have the same frequencies; `before` is that of the last one."""
    if told["rope_type"] == "longrope":
        return int(length > told["trained"])
    if told["rope_type"] != "dynamic":
        return 0
    longest = told["longest"]
    return before if longest <= length <= before else max(length, longest)  # a sequence grows: its base stays


def frequencies(told: dict[str, Any], regime: int = 0) -> tuple[torch.Tensor, float]:
    """Radians a position of each pair, (dim / 2,) in float64, and the factor of all cosines and sines."""
    base, dim, factor, kind = told["rope_theta"], told["dim"], told["factor"], told["rope_type"]
    if kind == "dynamic" and regime:
        base *= (factor * regime / told["longest"] - (factor - 1)) ** (dim / (dim - 2))
    radians = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if kind == "linear":
        return radians / factor, 1.0
    if kind == "llama3":
        return _llama3(radians, factor, told), 1.0
    if kind == "yarn":
        return _yarn(radians, factor, told), _yarn_factor(factor, told)
    if kind == "longrope":
        divisors = torch.tensor(told["long_factor" if regime else "short_factor"], dtype=torch.float64)
        default = math.sqrt(1 + math.log(factor) / math.log(told["trained"])) if factor > 1 else 1.0
        return radians / divisors, told.get("attention_factor") or default
    return radians, 1.0


def _llama3(radians: torch.Tensor, factor: float, told: dict[str, Any]) -> torch.Tensor:
    """Pairs with more than `high` turns within the trained length stay, those with less than `low` are divided."""
    low, high = told["low_freq_factor"], told["high_freq_factor"]
    turns = told["trained"] * radians / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return radians * (kept + (1 - kept) / factor)


def _yarn(radians: torch.Tensor, factor: float, told: dict[str, Any]) -> torch.Tensor:
    """As `_llama3`, along a straight line over the numbers of the pairs."""
    dim, base = told["dim"], told["rope_theta"]

    def pair_with(turns: float) -> float:
        return dim * math.log(told["trained"] / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair_with(told.get("beta_fast") or 32), pair_with(told.get("beta_slow") or 1)
    if told.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    divided = ((torch.arange(dim // 2, dtype=torch.float64) - first) / max(last - first, 0.001)).clamp(0, 1)
    return radians * (1 - divided + divided / factor)


def _yarn_factor(factor: float, told: dict[str, Any]) -> float:
    """Scores of a stretched context are sharpened: by the square of this, since queries and keys both are turned."""
    if told.get("attention_factor") is not None:
        return told["attention_factor"]

    def sharper(scale: float) -> float:
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0

    scale, of_all = told.get("mscale"), told.get("mscale_all_dim")
    return sharper(scale) / sharper(of_all) if scale and of_all else sharper(1.0)
