"""A token of SmolLM2, made by PyTorch, by transformers and by the course's kernels: one step of 1 and of 32 sequences.

Each contender decodes after START others, in bfloat16, always the most likely one, its weights and its
cache on the GPU.  A figure is the time of one step, Python's part in it: what a chat waits for.  `graph` in a name says
that a step was captured and is replayed.

Only the first tokens of the contenders are compared.  The START tokens before them are empty, and without a text the
two best logits lie 0.4 to 0.7 apart (in 3 of the first 4 sequences), while bfloat16 moves logits by 0.66 (root mean
square, PyTorch against PyTorch in float32): later tokens part by rounding alone, and each contender rounds elsewhere.
That the kernels give PyTorch's tokens is tested in float32, on real text.

transformers gets the same weights as a `LlamaForCausalLM`: eager with its usual cache, and compiled as its
documentation says, `mode="reduce-overhead"` (captured graphs, too) with a static cache of the same room.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from statistics import quantiles

import torch
import torch.nn.functional as F

from course_lab import bench, model
from course_lab.bench import OURS
from course_lab.check.mine import solution
from course_lab.model import stepping
from course_lab.model.kernels import COURSE

FAMILY = "decode step of SmolLM2"
BATCHES = (1, 32)
START, STEPS, RUNS = 128, 32, 7  # tokens before the first; steps of a run; runs
ROOM = 512  # tokens of each sequence's cache

EAGER, COMPILED = "eager", "torch.compile"
KERNELS, KERNELS_COMPILED = "ours, launched one by one", "ours, torch.compile and graph"
THEIRS, THEIRS_COMPILED = "transformers", "transformers, compiled, static cache"


def measure(device: str) -> list[bench.Measurement]:
    """A figure for each contender that runs here, and for each batch."""
    llm = model.load(torch.bfloat16, device, progress=False)
    figures = []
    for batch in BATCHES:
        first: torch.Tensor | None = None
        for name, make in contenders().items():
            torch._dynamo.reset()
            try:
                steps = make(llm, batch)
                tokens = _run(steps, 8)
                figure = _timed(steps, name, _weights(llm))
            except ImportError as missing:
                print(f"{name}: {missing}")
                continue
            except Exception as failure:  # a contender that fails must not cost the others their figures
                if name == OURS:
                    raise
                print(f"{name}, batch {batch}: {type(failure).__name__}: {str(failure).strip().splitlines()[0][:200]}")
                continue
            first = tokens[0] if first is None else first
            same = (tokens[0] == first).float().mean().item()
            print(f"{name}, batch {batch}: {batch / figure.seconds:,.0f} tokens/s; {same:.0%} first tokens as {EAGER}")
            figures.append(dataclasses.replace(figure, family=FAMILY, size=f"batch {batch}"))
            del steps
            torch.cuda.empty_cache()
    return figures


def contenders() -> dict[str, Callable]:
    """By name: takes the model and the number of sequences, and returns a function that makes one step."""
    return {
        EAGER: lambda llm, batch: ours(llm, batch, PLAIN),
        COMPILED: lambda llm, batch: ours(llm, batch, PLAIN, compiled=True, record=True),
        THEIRS: lambda llm, batch: transformers_steps(llm, batch, compiled=False),
        THEIRS_COMPILED: lambda llm, batch: transformers_steps(llm, batch, compiled=True),
        KERNELS: lambda llm, batch: ours(llm, batch, functions()),
        KERNELS_COMPILED: lambda llm, batch: ours(llm, batch, functions(), compiled=True, record=True),
        OURS: lambda llm, batch: ours(llm, batch, functions(), record=True),
    }


def functions() -> dict[str, Callable]:
    """The course's kernels; a row of the embedding is copied by the solution of exercise 1.4."""
    gather = solution("1.4")
    return {**COURSE, "embedding": lambda tokens, weight: gather(weight, tokens)}


def first_tokens(llm: model.SmolLM2, batch: int) -> torch.Tensor:
    """A different first token for each sequence."""
    return torch.arange(1000, 1000 + batch, device=llm.device)


def ours(llm: model.SmolLM2, batch: int, replaced: dict[str, Callable], *, compiled=False, record=False) -> Callable:
    """Steps of the course's model on these functions."""
    state = stepping.reserved(llm, batch, ROOM, position=START)
    tokens = first_tokens(llm, batch)
    advance = _advance if replaced is PLAIN else solution("9.5")
    steps = stepping.Steps(llm, state, tokens, advance, end=-1, compiled=compiled)

    def step() -> torch.Tensor:
        with llm.using(**replaced):
            return steps()

    with llm.using(**replaced):
        if record:
            steps.record()
    return steps if record else step


def _norm(x, weight, eps):
    return F.rms_norm(x, weight.shape, weight, eps)


def _add_norm(x, residual, weight, eps):
    total = x + residual
    return _norm(total, weight, eps), total


def _turned(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def _into_pages(q, k, v, k_cache, v_cache, slots, positions, cos, sin, style):
    cos, sin = cos[positions][:, None], sin[positions][:, None]
    k_cache.view(-1, *k.shape[1:])[slots] = _turned(k, cos, sin)
    v_cache.view(-1, *v.shape[1:])[slots] = v
    return _turned(q, cos, sin), None


def _look(q, k_cache, v_cache, block_table, seq_lens):
    """PyTorch's own fused attention over the gathered pages, those not in use masked."""
    k, v = (cache[block_table].flatten(1, 2).transpose(1, 2) for cache in (k_cache, v_cache))
    known = torch.arange(k.shape[2], device=q.device) < seq_lens[:, None]
    mask = known[:, None, None]
    return F.scaled_dot_product_attention(q[:, :, None], k, v, attn_mask=mask, enable_gqa=True)[:, :, 0]


def _swiglu(x):
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


PLAIN = {  # as one writes them in PyTorch; none asks the host
    "rms_norm": _norm,
    "add_rms_norm": _add_norm,
    "paged_kv_cache_update": _into_pages,
    "paged_decode_attention": _look,
    "silu_and_mul": _swiglu,
}


def _advance(chosen, tokens, positions, seq_lens, slots, block_table, page, end) -> None:
    """Exercise 9.5 in PyTorch, where no sequence ends."""
    tokens.copy_(chosen)
    positions += 1
    seq_lens.copy_(positions + 1)
    slots.copy_(block_table.gather(1, (positions // page)[:, None])[:, 0] * page + positions % page)


def transformers_steps(llm: model.SmolLM2, batch: int, *, compiled: bool) -> Callable:
    """Steps of transformers' Llama with the same weights."""
    from transformers import DynamicCache, StaticCache

    network = transformers_model(llm)
    config, device = network.config, llm.device
    cache = StaticCache(config=config, max_cache_len=ROOM) if compiled else DynamicCache(config=config)
    zeros = torch.full((batch, START), 0, device=device)
    state = {"tokens": first_tokens(llm, batch)[:, None], "position": START}
    with torch.no_grad():
        network(zeros, past_key_values=cache, use_cache=True)
        _forget(cache)
    forward = torch.compile(network.forward, mode="reduce-overhead", fullgraph=True) if compiled else network.forward

    @torch.no_grad()
    def step() -> torch.Tensor:
        where = torch.full((batch, 1), state["position"], device=device)
        logits = forward(state["tokens"], position_ids=where, past_key_values=cache, use_cache=True).logits
        state["tokens"], state["position"] = logits[:, -1].argmax(-1, keepdim=True), state["position"] + 1
        return state["tokens"][:, 0]

    return step


def _forget(cache) -> None:
    """START tokens of zeros, as the other contenders' caches have them."""
    for layer in cache.layers:
        layer.keys.zero_()
        layer.values.zero_()


def transformers_model(llm: model.SmolLM2):
    """The course's weights in transformers' `LlamaForCausalLM`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    c = llm.config
    config = LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
        num_hidden_layers=c.num_layers, num_attention_heads=c.num_q_heads, num_key_value_heads=c.num_kv_heads,
        max_position_embeddings=c.context_length, rms_norm_eps=c.norm_eps, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_base},
    )  # fmt: skip
    network = LlamaForCausalLM(config).to(llm.device).eval()
    for parameter in network.parameters():  # its angles stay in float32, as where it loads weights itself
        parameter.data = parameter.data.to(llm.dtype)
    network.load_state_dict(_state(llm))
    return network


def _state(llm: model.SmolLM2) -> dict[str, torch.Tensor]:
    """The weights under transformers' names."""
    c, weights = llm.config, llm.weights
    q, kv = c.num_q_heads * c.head_dim, c.num_kv_heads * c.head_dim
    state = {"model.embed_tokens.weight": weights.embedding, "lm_head.weight": weights.embedding}
    state["model.norm.weight"] = weights.final_norm
    for index, layer in enumerate(weights.layers):
        parts = dict(zip(("q_proj", "k_proj", "v_proj"), layer.qkv.split([q, kv, kv])))
        parts = {f"self_attn.{name}": part for name, part in (parts | {"o_proj": layer.attention_out}).items()}
        parts |= {f"mlp.{name}": part for name, part in zip(("gate_proj", "up_proj"), layer.gate_up.chunk(2))}
        parts |= {"mlp.down_proj": layer.down, "input_layernorm": layer.input_norm}
        parts |= {"post_attention_layernorm": layer.mlp_norm}
        state |= {f"model.layers.{index}.{name}.weight": part for name, part in parts.items()}
    return state


def _run(steps: Callable, count: int) -> torch.Tensor:
    """The tokens of so many steps, (count, B)."""
    return torch.stack([steps().clone() for _ in range(count)])


def _weights(llm: model.SmolLM2) -> int:
    """Bytes of all weights: what a step must read at least."""
    layers = (weight for layer in llm.weights.layers for weight in vars(layer).values())
    return sum(weight.nbytes for weight in (llm.weights.embedding, llm.weights.final_norm, *layers))


def _timed(steps: Callable, name: str, nbytes: int) -> bench.Measurement:
    """The median time of a step, over RUNS runs of STEPS."""
    for _ in range(8):  # transformers compiles a second time when it sees its cache again
        steps()
    seconds = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS):
            steps()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - begin) / STEPS)
    fifths = quantiles(seconds, n=5)
    return bench.Measurement(name, quantiles(seconds, n=2)[0], fifths[0], fifths[3], bytes=nbytes)
