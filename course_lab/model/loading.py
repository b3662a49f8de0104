"""From the GGUF file to a model in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lab.model.config import Config
from course_lab.model.smollm2 import LayerWeights, SmolLM2, Weights
from course_lab.model.tokenizer import Tokenizer
from course_lab.model.weights import GgufFile, require_weights
from course_lab.waiting import progress_bar
from gfxlab import engines

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
    with progress_bar(None, "reading SmolLM2", "tensor", progress) as bar:
        file = GgufFile(path)
        config, tokenizer = read_config(file), Tokenizer(file)
        bar.reset(total=len(file))
        tensors = {}
        for name, tensor in file.tensors():
            tensors[name] = tensor.to(device, dtype)
            bar.update()
    return SmolLM2(config, assemble(tensors, config), tokenizer)


def read_config(file: GgufFile) -> Config:
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
