"""The kernels as layers, which take the place of PyTorch's own and of those in Hugging Face's Llama.

| module            | in the state dict                               | takes the place of                 |
|-------------------|-------------------------------------------------|------------------------------------|
| `RMSNorm`         | `weight`                                        | `torch.nn.RMSNorm`, `LlamaRMSNorm` |
| `LayerNorm`       | `weight`, `bias`                                | `torch.nn.LayerNorm`               |
| `SwiGLU`          | `gate_proj`, `up_proj`, `down_proj`             | `LlamaMLP`                         |
| `RotaryEmbedding` | nothing                                         | `LlamaRotaryEmbedding`             |

Layers of other models that are built the same way (Qwen3's, DeepSeek-V3's, Mistral's) can be replaced as well.  Each
loads the state dict of what it replaces, and saves one that loads there.  The kernels compute in float32 and round
once, where Llama's layers round in between as well.
"""

from typing import Any

import torch
from torch import nn

from .activations import silu_and_mul
from .layer_norm import layer_norm
from .rms_norm import rms_norm
from .rope import angle_tables, check_style, rope, rope_tables
from .rope_scaling import frequencies, regime, settings


def _row_width(normalized_shape: int | tuple[int, ...]) -> int:
    """The width of the rows; `normalized_shape` may be a number, or a sequence of one.

    Raises:
        ValueError: it has several dimensions.
    """
    if isinstance(normalized_shape, int):
        return normalized_shape
    if len(normalized_shape) != 1:
        raise ValueError(f"normalized_shape must have one dimension, the last of x; got {tuple(normalized_shape)}")
    return normalized_shape[0]


class _Norm(nn.Module):
    """What both norms share: rows of one width, and a weight that may be absent."""

    def __init__(self, normalized_shape, eps, elementwise_affine, device, dtype):
        super().__init__()
        self.normalized_shape = (_row_width(normalized_shape),)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", self._vector(device, dtype) if elementwise_affine else None)

    def _vector(self, device, dtype) -> nn.Parameter:
        return nn.Parameter(torch.empty(self.normalized_shape, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """A weight of ones and a bias of zeros: the norm alone."""
        for name, parameter in self.named_parameters():
            nn.init.constant_(parameter, 1.0 if name == "weight" else 0.0)

    def _constant(self, x: torch.Tensor, parameter: nn.Parameter | None, value: float) -> torch.Tensor:
        """The parameter; or what the kernel multiplies by or adds where there is none."""
        return x.new_full(self.normalized_shape, value) if parameter is None else parameter

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(_Norm):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension; see `rms_norm`.

    Args:
        normalized_shape: the width of the last dimension; a number, or a sequence of one.
        eps: added to the mean square. None is the machine epsilon of float32, as in `torch.nn.RMSNorm`.
        elementwise_affine: False for no weight.
        device, dtype: of the weight.

    Shapes and dtypes: x (..., cols), float32, float16 or bfloat16, with a weight of any of the three; the result is
    like x.

    Raises:
        ValueError: normalized_shape has several dimensions.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        eps = torch.finfo(torch.float32).eps if self.eps is None else self.eps
        return rms_norm(x, self._constant(x, self.weight, 1.0), eps)


class LayerNorm(_Norm):
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension; see `layer_norm`.

    Args:
        normalized_shape: the width of the last dimension; a number, or a sequence of one.
        eps: added to the variance.
        elementwise_affine: False for neither weight nor bias.
        bias: False for no bias.
        device, dtype: of weight and bias.

    Shapes and dtypes: x (..., cols), float32, float16 or bfloat16, with parameters of any of the three; the result is
    like x.

    Raises:
        ValueError: normalized_shape has several dimensions.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(normalized_shape, eps, elementwise_affine, device, dtype)
        self.register_parameter("bias", self._vector(device, dtype) if elementwise_affine and bias else None)
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return layer_norm(x, self._constant(x, self.weight, 1.0), self._constant(x, self.bias, 0.0), self.eps)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)), the feed-forward layer of Llama; see `silu_and_mul`.

    Gate and up are one matrix here, the gate first: one multiplication writes what `silu_and_mul` reads.  The state
    dict has the two names of Llama.

    Args:
        hidden_size: the width of x and of the result.
        intermediate_size: the width of gate and up.
        bias: whether the three projections add one.
        device, dtype: of the parameters.

    Shapes and dtypes: x (..., hidden_size), in the dtype of the parameters, float32, float16 or bfloat16.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.gate_up_proj = nn.Linear(hidden_size, 2 * intermediate_size, bias, device, dtype)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias, device, dtype)
        self.register_state_dict_post_hook(_split_gate_up)
        self.register_load_state_dict_pre_hook(_join_gate_up)

    @classmethod
    def from_config(cls, config: Any, **kwargs: Any) -> "SwiGLU":
        """The layer for a configuration of `transformers`, with `mlp_bias` or without; device and dtype may follow.

        Raises:
            ValueError: the configuration asks for another activation.
        """
        if config.hidden_act not in ("silu", "swish"):
            raise ValueError(f"SwiGLU computes silu, but the configuration asks for {config.hidden_act!r}")
        return cls(config.hidden_size, config.intermediate_size, getattr(config, "mlp_bias", False), **kwargs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(silu_and_mul(self.gate_up_proj(x)))


def _split_gate_up(module, state_dict, prefix, _local_metadata) -> None:
    """Save the joint matrix under Llama's two names, as views."""
    for name, _ in module.gate_up_proj.named_parameters():
        gate, up = state_dict.pop(f"{prefix}gate_up_proj.{name}").chunk(2)
        state_dict[f"{prefix}gate_proj.{name}"], state_dict[f"{prefix}up_proj.{name}"] = gate, up


def _join_gate_up(module, state_dict, prefix, *_) -> None:
    """Load the joint matrix from Llama's two."""
    for name, _ in module.gate_up_proj.named_parameters():
        keys = f"{prefix}gate_proj.{name}", f"{prefix}up_proj.{name}"
        if all(key in state_dict for key in keys):
            state_dict[f"{prefix}gate_up_proj.{name}"] = torch.cat([state_dict.pop(key) for key in keys])


class RotaryEmbedding(nn.Module):
    """RoPE with tables that are computed once, and again when a longer position comes; see `rope`.

    Called as a model of `transformers` calls its own, with hidden states and `position_ids`, it returns cosines and
    sines, with which that model's attention turns the heads.  Called with heads, it turns them.

    The tables stay in float32, whatever dtype the model is converted to, and are in no state dict.

    Args:
        dim: how many elements of a head turn, from the first; even.
        max_position_embeddings: for how many positions there are tables at first.
        base: of the frequencies (`rope_theta` in a configuration).
        device: of the tables.
        style: "neox" (Llama) or "gptj".

    Raises:
        ValueError: an odd dim, a negative number of positions, or an unknown style.
    """

    def __init__(
        self,
        dim: int,
        max_position_embeddings: int = 2048,
        base: float = 10000.0,
        device: torch.device | str | None = None,
        *,
        style: str = "neox",
    ):
        super().__init__()
        check_style(style)
        self.dim, self.base, self.style = dim, base, style
        self.attention_scaling = 1.0
        self._told, self._regime = None, 0
        cos, sin = rope_tables(max_position_embeddings, dim, base, device)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @classmethod
    def from_config(cls, config: Any, **kwargs: Any) -> "RotaryEmbedding":
        """The module for a configuration of `transformers`, however it scales; device and style may follow.

        Raises:
            ValueError: a rope_type that `rope_scaling` does not know.
        """
        told = settings(config)
        module = cls(told["dim"], told["longest"], told["rope_theta"], **kwargs)
        if told["rope_type"] != "default":
            module._told, module._regime = told, regime(told, 0, 0)
            module._compute(len(module.cos), module.cos.device)
        return module

    def reset_parameters(self) -> None:
        """Compute the tables anew, as after `to_empty`, where they are."""
        self._compute(len(self.cos), self.cos.device)

    def _compute(self, positions: int, device: torch.device) -> None:
        if self._told is None:
            self.cos, self.sin = rope_tables(positions, self.dim, self.base, device)
            return
        radians, self.attention_scaling = frequencies(self._told, self._regime)
        cos, sin = angle_tables(positions, radians.to(device))
        self.cos, self.sin = cos * self.attention_scaling, sin * self.attention_scaling

    def _prepare(self, length: int, device: torch.device) -> None:
        """Tables of so many positions, or more, on the device, with the frequencies for a sequence of this length."""
        rows, now = len(self.cos), self._regime if self._told is None else regime(self._told, length, self._regime)
        if length > rows:
            rows = max(length, 2 * rows)  # twice: a growing sequence must not do it each step
        stale = self.cos.dtype != torch.float32 or self.cos.device != device  # the model was converted or moved
        if stale or rows > len(self.cos) or now != self._regime:
            self._regime = now
            self._compute(rows, device)

    def forward(
        self,
        x: torch.Tensor,
        positions: torch.Tensor | None = None,
        *,
        position_ids: torch.Tensor | None = None,
        layout: str = "bshd",
        length: int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """x with the heads turned, differentiable in x; or cosines and sines.

        Args:
            x: (B, S, heads, D), or as `layout` says; D at least dim. With `position_ids`, or with three dimensions and
                positions in layout "bshd", hidden states (B, S, hidden): only their dtype and device count.
            positions: (S,) or (B, S), as for `rope`; None counts from 0.
            position_ids: (B, S): the positions under the name that `transformers` gives them.
            layout: "bshd", "sbhd" or "thd".
            length: a number above all positions. Without it positions that are given are looked at, for which a GPU has
                to be waited for; and while `torch.compile` traces it is the tables that must be long enough.

        Returns:
            x: its shape and dtype, contiguous. Or (cos, sin), each (B, S, dim) in the dtype of x, every angle twice, in
            two halves, as `LlamaRotaryEmbedding` returns them.

        Raises:
            TypeError, ValueError: as `rope`.
        """
        if position_ids is None and x.ndim == 3 and layout == "bshd" and positions is not None:
            position_ids = positions
        given = positions if position_ids is None else position_ids
        if length is None:
            length = self._length(x, given, layout)
        self._prepare(length, x.device)
        if position_ids is not None:
            return tuple(torch.cat([table[position_ids]] * 2, dim=-1).to(x.dtype) for table in (self.cos, self.sin))
        options = {"style": self.style, "layout": layout, "positions": positions, "rotary_dim": self.dim}
        return rope(x, self.cos, self.sin, **options)

    def _length(self, x: torch.Tensor, positions: torch.Tensor | None, layout: str) -> int:
        """How many positions the tables need."""
        if positions is None:
            return x.shape[1 if layout == "bshd" else 0]
        if torch.compiler.is_compiling() or positions.numel() == 0:
            return 0
        return int(positions.max()) + 1

    def extra_repr(self) -> str:
        scaled = "" if self._told is None else f", rope_type={self._told['rope_type']!r}"
        return f"{self.dim}, base={self.base}, style={self.style!r}, positions={len(self.cos)}{scaled}"
