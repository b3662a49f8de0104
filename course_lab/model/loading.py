"""From the GGUF file to a model in memory."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from course_lab.model import mapped
from course_lab.model.config import Config
from course_lab.model.smollm2 import LayerWeights, SmolLM2, Weights
from course_lab.model.tokenizer import Tokenizer
from course_lab.model.weights import GgufFile, require_weights
from course_lab.waiting import progress_bar
from gfxlab import engines

METADATA = "metadata"  # the name beside the tensors'
_ASKED = (  # what a GGUF file says of model and tokenizer
    *(f"llama.{name}" for name in ("embedding_length", "feed_forward_length", "block_count", "context_length")),
    *(f"llama.attention.{name}" for name in ("head_count", "head_count_kv", "layer_norm_rms_epsilon")),
    *("llama.vocab_size", "llama.rope.freq_base", "tokenizer.chat_template"),
    *(f"tokenizer.ggml.{name}" for name in ("tokens", "merges", "pre", "token_type", "eos_token_id")),
)
_loaded: dict[tuple[torch.dtype, torch.device], SmolLM2] = {}


def load(
    dtype: torch.dtype = torch.float32, device: torch.device | str | None = None, *, progress: bool = True
) -> SmolLM2:
    """The model, read once in a process and then kept, for each dtype and device.

    Args:
        dtype: float32, bfloat16 or float16.
        device: where to put it; by default the GPU if there is one, else the CPU.
        progress: show a bar while somebody watches.

    Raises:
        ModelUnavailable: the weights or a package are missing; the message has the command that installs them.
        ValueError: another dtype.
    """
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"dtype is {dtype}; the model runs in float32, bfloat16 or float16")
    key = dtype, torch.device(device or engines.device())
    if key not in _loaded:
        _loaded[key] = _read(*key, progress)
    return _loaded[key]


def _read(dtype: torch.dtype, device: torch.device, progress: bool) -> SmolLM2:
    path = require_weights()
    kept = mapped.tensors()
    if kept is None:
        kept = dequantised(GgufFile(path), progress)
        if mapped.keep(kept):
            kept = mapped.tensors() or kept
    about = Metadata(kept.pop(METADATA))
    config = read_config(about)
    tensors = {name: tensor.to(device, dtype) for name, tensor in kept.items()}
    return SmolLM2(config, of_names(tensors, config.num_layers), Tokenizer(about))


class Metadata:
    """What a GGUF file says about its model, as a tensor of bytes that can be kept beside the weights."""

    def __init__(self, content: Tensor) -> None:
        self._values = json.loads(content.numpy().tobytes())

    def metadata(self, key: str) -> Any:
        """As `GgufFile.metadata`."""
        return self._values[key]

    @staticmethod
    def of(file: GgufFile) -> Tensor:
        """The bytes of what the model and its tokenizer ask for."""
        text = json.dumps({key: file.metadata(key) for key in _ASKED}, separators=(",", ":"))
        return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def dequantised(file: GgufFile, progress: bool) -> dict[str, Tensor]:
    """Every tensor of the model by name, and METADATA."""
    with progress_bar(len(file), "reading SmolLM2", "tensor", progress) as bar:
        tensors = {}
        for name, tensor in file.tensors():
            tensors[name] = tensor
            bar.update()
    return named(assemble(tensors, read_config(file))) | {METADATA: Metadata.of(file)}


def named(weights: Weights) -> dict[str, Tensor]:
    """The tensors of the model by name: "embedding", "layers.7.qkv" ..."""
    found = {"embedding": weights.embedding, "final_norm": weights.final_norm}
    for index, layer in enumerate(weights.layers):
        found |= {f"layers.{index}.{field.name}": getattr(layer, field.name) for field in fields(layer)}
    return found


def of_names(tensors: dict[str, Tensor], num_layers: int) -> Weights:
    """The weights whose `named` these are."""
    parts = [field.name for field in fields(LayerWeights)]
    layers = [
        LayerWeights(**{part: tensors[f"layers.{index}.{part}"] for part in parts}) for index in range(num_layers)
    ]
    return Weights(tensors["embedding"], layers, tensors["final_norm"])


def read_config(file: GgufFile | Metadata) -> Config:
    """The model's sizes, as the file states them."""
    of = file.metadata
    hidden_size, num_q_heads = of("llama.embedding_length"), of("llama.attention.head_count")
    return Config(
        vocab_size=of("llama.vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=of("llama.feed_forward_length"),
        num_layers=of("llama.block_count"),
        num_q_heads=num_q_heads,
        num_kv_heads=of("llama.attention.head_count_kv"),
        head_dim=hidden_size // num_q_heads,
        context_length=of("llama.context_length"),
        norm_eps=of("llama.attention.layer_norm_rms_epsilon"),
        rope_base=of("llama.rope.freq_base"),
    )


def assemble(tensors: dict[str, Tensor], config: Config) -> Weights:
    """Sort the file's tensors into the model's places. Takes them out of ``tensors``, so that none is held twice."""
    layers = []
    for index in range(config.num_layers):
        part = {
            name: tensors.pop(f"blk.{index}.{name}.weight")
            for name in (
                "attn_norm",
                "attn_q",
                "attn_k",
                "attn_v",
                "attn_output",
                "ffn_norm",
                "ffn_gate",
                "ffn_up",
                "ffn_down",
            )
        }
        q, k = (halves_from_pairs(part[name], config.head_dim) for name in ("attn_q", "attn_k"))
        layers.append(
            LayerWeights(
                input_norm=part["attn_norm"],
                qkv=torch.cat([q, k, part["attn_v"]]),
                attention_out=part["attn_output"],
                mlp_norm=part["ffn_norm"],
                gate_up=torch.cat([part["ffn_gate"], part["ffn_up"]]),
                down=part["ffn_down"],
            )
        )
    return Weights(tensors.pop("token_embd.weight"), layers, tensors.pop("output_norm.weight"))


def halves_from_pairs(weight: Tensor, head_dim: int) -> Tensor:
    """Put the rows of a query or key matrix (heads * head_dim, inputs) back into the order the model was trained with.

    RoPE turns the elements of a head in pairs. SmolLM2 pairs i with i + head_dim/2 ("neox"); llama.cpp's "llama"
    architecture pairs 2i with 2i + 1 ("gptj"), and the GGUF converter reorders the rows to suit. Undoing that gives
    the style that most kernels, and the lessons, meet first.
    """
    pairs = weight.view(-1, head_dim // 2, 2, weight.shape[1])  # head, pair, member of the pair, input
    return pairs.transpose(1, 2).reshape(weight.shape)
