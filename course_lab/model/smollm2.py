"""SmolLM2-135M-Instruct: a Llama, written as the chain of operations that the course replaces one by one.

One forward pass over T new tokens::

    embedding                        (T,) -> (T, 576)
    30 times
        input_norm     add_rms_norm  (T, 576)             the first is rms_norm: there is nothing to add yet
        qkv            linear        (T, 576) -> (T, 960)
        rope           split_qkv_rope         -> q (T, 9, 64), k and v (T, 3, 64)
        cache          kv_cache_update
        attention      attention              -> (T, 576)
        attention_out  linear        (T, 576) -> (T, 576)
        mlp_norm       add_rms_norm  (T, 576)
        gate_up        linear        (T, 576) -> (T, 3072)
        activation     silu_and_mul           -> (T, 1536)
        down           linear        (T, 1536) -> (T, 576)
    final_norm         add_rms_norm  (T, 576)
    logits             linear        (1, 576) -> (1, 49152)   of the last token only
    next_token         topk

With a paged cache, `rope` and `cache` are one paged_kv_cache_update, and the attention of a single new token is
paged_decode_attention.

The residual stream is never added on its own: each addition is fused into the RMSNorm that follows it. A forward pass
thus has 1 rms_norm and 60 add_rms_norm.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from course_lab.model import diagram
from course_lab.model.calls import Call
from course_lab.model.config import Config
from course_lab.model.costs import CostTable
from course_lab.model.operations import OPERATIONS, PAGED_OPERATIONS, SAMPLING_OPERATIONS, check_names
from course_lab.model.tokenizer import Tokenizer
from course_lab.waiting import progress_bar
from gfxlab.draw.svg import Picture

FRANCE = "What is the capital of France?"


@dataclass(frozen=True)
class LayerWeights:
    """One layer. Projections that read the same input are stored as one matrix, so that one product serves them all."""

    input_norm: Tensor  # (576,)
    qkv: Tensor  # (960, 576): all query heads, then all key heads, then all value heads
    attention_out: Tensor  # (576, 576)
    mlp_norm: Tensor  # (576,)
    gate_up: Tensor  # (3072, 576): gate, then up
    down: Tensor  # (576, 1536)


@dataclass(frozen=True)
class Weights:
    """All parameters. The embedding serves as output matrix too: SmolLM2's are tied."""

    embedding: Tensor  # (49152, 576)
    layers: list[LayerWeights]
    final_norm: Tensor  # (576,)


class KVCache:
    """The keys and values of all earlier tokens, one pair of (1, capacity, KH, D) tensors a layer."""

    def __init__(self, config: Config, capacity: int, like: Tensor) -> None:
        shape = (config.num_layers, 1, capacity, config.num_kv_heads, config.head_dim)
        self.keys = like.new_zeros(shape)
        self.values = like.new_zeros(shape)
        self.capacity = capacity
        self.length = 0


class PagedKVCache:
    """The same in pages of ``page_size`` tokens, (pages, page_size, KH, D) a layer. All layers use the same slots.

    Pages are handed out when a token needs one, in a shuffled order, as if other sequences had come and gone.
    ``block_table`` (1, pages) int32 lists those in use; the rest of it is -1.
    """

    def __init__(self, config: Config, capacity: int, page_size: int, like: Tensor) -> None:
        pages = -(-capacity // page_size)
        shape = (config.num_layers, pages, page_size, config.num_kv_heads, config.head_dim)
        self.keys = like.new_zeros(shape)
        self.values = like.new_zeros(shape)
        self.page_size, self.capacity = page_size, pages * page_size
        self.block_table = torch.full((1, pages), -1, dtype=torch.int32, device=like.device)
        self.length = 0
        self._free = random.Random(0).sample(range(pages), pages)
        self._used = 0

    @classmethod
    def over(cls, keys: Tensor, values: Tensor, pages: Sequence[int]) -> PagedKVCache:
        """A cache of one sequence in these pages, in this order, of a pool (layers, pages, page_size, KH, D)."""
        self = cls.__new__(cls)
        self.keys, self.values, self.page_size = keys, values, keys.shape[2]
        self.capacity = len(pages) * self.page_size
        self.block_table = torch.full((1, len(pages)), -1, dtype=torch.int32, device=keys.device)
        self.length, self._used, self._free = 0, 0, list(reversed(pages))
        return self

    def take_all(self) -> None:
        """Take every page at once: for steps that a GPU repeats without asking the host."""
        while self._free:
            self._take()

    def _take(self) -> None:
        self.block_table[0, self._used] = self._free.pop()
        self._used += 1

    def slots(self, tokens: int) -> Tensor:
        """Where the next ``tokens`` tokens go, (tokens,) int64; takes the pages that they need."""
        while self._used * self.page_size < self.length + tokens:
            self._take()
        positions = torch.arange(self.length, self.length + tokens, device=self.block_table.device)
        return self.block_table[0, positions // self.page_size] * self.page_size + positions % self.page_size

    def rows(self, index: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first ``tokens`` tokens in layer ``index``, gathered: (1, tokens, KH, D)."""
        pages = self.block_table[0, : -(-tokens // self.page_size)]
        keys, values = (cache[index, pages].flatten(0, 1)[None, :tokens] for cache in (self.keys, self.values))
        return keys, values


@dataclass(frozen=True)
class Batch:
    """Where the next token of each of B sequences stands and goes, and the pages that all of them share.

    A row without a token has slot -1 and a length of 0.
    """

    positions: Tensor  # (B,) int64: of the new tokens
    slots: Tensor  # (B,) int64: where their keys and values go
    block_table: Tensor  # (B, n) int32: the pages of each sequence
    seq_lens: Tensor  # (B,) int32: how many tokens each has, the new one among them
    keys: Tensor  # (layers, pages, page_size, KH, D)
    values: Tensor  # likewise


@dataclass
class Sampler:
    """How a next token is drawn: from the `top_k` most likely ones, by the softmax of logits / `temperature`.

    Raises:
        ValueError: a temperature that is not above 0, or a top_k below 1.
    """

    temperature: float = 0.7
    top_k: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; give a number above 0")
        if self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}; give 1 or more")
        self._random = random.Random(self.seed)

    def uniform(self) -> float:
        """The next random number from [0, 1): the same on every engine."""
        return self._random.random()


@dataclass(frozen=True)
class Generation:
    """What the model wrote: the text, its tokens (the end-of-text token too, if it came), and the prompt's tokens."""

    text: str
    tokens: list[int]
    prompt_tokens: list[int]

    def __repr__(self) -> str:
        return f"Generation({self.text!r}, {len(self.tokens)} tokens after a prompt of {len(self.prompt_tokens)})"


class SmolLM2:
    """The model. ``course_lab.model.load()`` makes one."""

    def __init__(self, config: Config, weights: Weights, tokenizer: Tokenizer) -> None:
        self.config = config
        self.weights = weights
        self.tokenizer = tokenizer
        self._functions: dict[str, Callable] = {**OPERATIONS, **PAGED_OPERATIONS, **SAMPLING_OPERATIONS}
        self._observers: list[Callable[[Call], None]] = []
        self._cos, self._sin = rope_tables(config.context_length, config.head_dim, config.rope_base, self.device)

    def __repr__(self) -> str:
        c, dtype = self.config, str(self.dtype).removeprefix("torch.")
        return (
            f"SmolLM2-135M-Instruct in {dtype} on {self.device}: {c.num_layers} layers, "
            f"hidden size {c.hidden_size}, {c.num_q_heads} query heads on {c.num_kv_heads} key/value heads of "
            f"{c.head_dim}, {c.vocab_size} tokens"
        )

    def diagram(self) -> Picture:
        """A picture of one forward pass: the residual stream, and what each layer reads from it and adds."""
        return diagram.draw(self.config)

    @property
    def dtype(self) -> torch.dtype:
        """The data type of the weights and of everything between the operations."""
        return self.weights.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.weights.embedding.device

    # The model.

    def forward(self, tokens: Tensor, cache: KVCache | PagedKVCache) -> Tensor:
        """Read the next tokens (T,) int64 and return the normalised hidden states (T, 576); the cache grows by T.

        Raises:
            ValueError: the cache has no room for them.
        """
        if cache.length + len(tokens) > cache.capacity:
            raise ValueError(f"{cache.length} + {len(tokens)} tokens do not fit into a cache for {cache.capacity}")
        positions = torch.arange(cache.length, cache.length + len(tokens), device=self.device)
        if isinstance(cache, PagedKVCache):
            look = partial(self._paged_attention, positions=positions, cache=cache, slots=cache.slots(len(tokens)))
        else:
            look = partial(self._attention, positions=positions, cache=cache)
        x = self._layers(tokens, look)
        cache.length += len(tokens)
        return x

    @torch.no_grad()
    def step(self, tokens: Tensor, batch: Batch) -> Tensor:
        """Read one new token of each sequence of a batch and return the logits of the next ones, (B, 49152).

        tokens (B,) int64. Everything that changes from step to step is in tensors, so that a GPU can record a step.
        """
        return self.logits(self._layers(tokens, partial(self._batched_attention, batch=batch)))

    def _layers(self, tokens: Tensor, look: Callable[[str, Tensor, int], Tensor]) -> Tensor:
        """All layers over the tokens (T,), which look at others through `look`: the hidden states (T, 576)."""
        op, eps, weights = self._call, self.config.norm_eps, self.weights
        x = op("embedding", "embedding", tokens, weights.embedding)
        for index, layer in enumerate(weights.layers):
            here = f"layers.{index}"
            if index == 0:
                residual = x
                x = op(f"{here}.input_norm", "rms_norm", x, layer.input_norm, eps)
            else:
                x, residual = op(f"{here}.input_norm", "add_rms_norm", x, residual, layer.input_norm, eps)
            x = op(f"{here}.qkv", "linear", x, layer.qkv)
            x = look(here, x, index)
            x = op(f"{here}.attention_out", "linear", x, layer.attention_out)
            x, residual = op(f"{here}.mlp_norm", "add_rms_norm", x, residual, layer.mlp_norm, eps)
            x = self._mlp(here, layer, x)
        return op("final_norm", "add_rms_norm", x, residual, weights.final_norm, eps)[0]

    def _attention(self, here: str, qkv: Tensor, index: int, *, positions: Tensor, cache: KVCache) -> Tensor:
        """Let each token look at the earlier ones: (T, 960) -> (T, 576)."""
        op, c = self._call, self.config
        heads = (c.num_q_heads, c.num_kv_heads, c.head_dim)
        k_cache, v_cache, known = cache.keys[index], cache.values[index], cache.length + len(positions)
        q, k, v = op(f"{here}.rope", "split_qkv_rope", qkv, self._cos, self._sin, positions, *heads, style="neox")
        op(f"{here}.cache", "kv_cache_update", None, k[None], v[None], k_cache, v_cache, positions[None])
        return self._look(here, q[None], k_cache[:, :known], v_cache[:, :known])

    def _paged_attention(
        self, here: str, qkv: Tensor, index: int, *, positions: Tensor, cache: PagedKVCache, slots: Tensor
    ) -> Tensor:
        """The same with a paged cache. A single token looks into the pages; a prompt at keys and values in a row."""
        batch = Batch(positions, slots, cache.block_table, (positions + 1).int(), cache.keys, cache.values)
        if len(positions) == 1:
            return self._batched_attention(here, qkv, index, batch=batch)
        q = self._turn_and_store(here, qkv, index, batch)
        return self._look(here, q[None], *cache.rows(index, cache.length + len(positions)))

    def _batched_attention(self, here: str, qkv: Tensor, index: int, *, batch: Batch) -> Tensor:
        """Each token looks at the pages of its own sequence: (B, 960) -> (B, 576)."""
        q = self._turn_and_store(here, qkv, index, batch)
        pages = batch.keys[index], batch.values[index], batch.block_table, batch.seq_lens
        return self._call(f"{here}.attention", "paged_decode_attention", q, *pages).flatten(1)

    def _turn_and_store(self, here: str, qkv: Tensor, index: int, batch: Batch) -> Tensor:
        """Turn queries and keys, store keys and values in their slots; the turned queries (T, QH, D)."""
        c = self.config
        heads = qkv.view(len(qkv), -1, c.head_dim)  # split without a copy: kernels take strides
        qkv = heads.split([c.num_q_heads, c.num_kv_heads, c.num_kv_heads], dim=1)
        where = batch.keys[index], batch.values[index], batch.slots, batch.positions, self._cos, self._sin
        return self._call(f"{here}.cache", "paged_kv_cache_update", *qkv, *where, style="neox")[0]

    def _look(self, here: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of all heads: q (1, T, QH, D), k and v (1, S, KH, D) -> (T, QH * D)."""
        # From (B, S, heads, D), as stored, to (B, heads, S, D): views, nothing is copied.
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        x = self._call(f"{here}.attention", "attention", q, k, v, causal=q.shape[2] > 1)
        return x.transpose(1, 2).reshape(q.shape[2], -1)

    def _mlp(self, here: str, layer: LayerWeights, x: Tensor) -> Tensor:
        """Work on each token by itself: (T, 576) -> (T, 576)."""
        op = self._call
        x = op(f"{here}.gate_up", "linear", x, layer.gate_up)
        x = op(f"{here}.activation", "silu_and_mul", x)
        return op(f"{here}.down", "linear", x, layer.down)

    def logits(self, hidden: Tensor) -> Tensor:
        """The score of every token of the vocabulary as the next one: (T, 576) -> (T, 49152)."""
        return self._call("logits", "linear", hidden, self.weights.embedding)

    # Using it.

    @torch.no_grad()
    def generate(
        self,
        prompt: str | Sequence[int],
        max_new_tokens: int = 32,
        *,
        page_size: int | None = None,
        progress: bool = True,
    ) -> Generation:
        """Answer ``prompt``, always taking the most likely token, until end-of-text or ``max_new_tokens``.

        Args:
            prompt: what the user says (the chat template goes around it), or tokens, taken as they are.
            max_new_tokens: the most tokens to write.
            page_size: keep keys and values in pages of so many tokens; None: in one piece.
            progress: show a bar while somebody watches.

        Raises:
            ValueError: the prompt is empty, ``max_new_tokens`` is negative, or both together exceed the context.
        """
        prompt_tokens = self.encode(prompt)
        if max_new_tokens < 0:
            raise ValueError(f"max_new_tokens is {max_new_tokens}; give 0 or more")
        cache = self.new_cache(len(prompt_tokens) + max_new_tokens, page_size)
        tokens: list[int] = []
        unread = prompt_tokens
        with progress_bar(max_new_tokens, "writing", "token", progress) as bar:
            while len(tokens) < max_new_tokens and self.tokenizer.end_of_text not in tokens[-1:]:
                tokens.append(self.next_token(unread, cache))
                unread = tokens[-1:]
                bar.update()
        return Generation(self.tokenizer.decode(tokens), tokens, prompt_tokens)

    @torch.no_grad()
    def next_token(self, unread: Sequence[int], cache: KVCache | PagedKVCache, sampler: Sampler | None = None) -> int:
        """Read ``unread`` after what the cache holds, and choose the next token: a step of `generate`.

        The most likely one; with a sampler, one that it draws.

        Raises:
            ValueError: the cache has no room for them.
        """
        hidden = self.forward(torch.tensor(unread, device=self.device), cache)
        return int(self.choose(self.logits(hidden[-1:]), sampler))

    def choose(self, logits: Tensor, sampler: Sampler | None = None) -> Tensor:
        """The next token of each row of logits (B, V): the most likely one, or drawn. (B,) int64."""
        if sampler is None:
            return self._call("next_token", "topk", logits, 1)[1][:, 0]
        best = self._call("best_tokens", "topk", logits, min(sampler.top_k, logits.shape[1]))
        uniform = torch.tensor([sampler.uniform() for _ in logits], dtype=torch.float32, device=logits.device)
        return self._call("next_token", "sample", *best, sampler.temperature, uniform)

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """The tokens of a prompt: a string inside the chat template, or a sequence of tokens as it is."""
        tokens = self.tokenizer.encode(self.tokenizer.chat(prompt)) if isinstance(prompt, str) else list(prompt)
        if not tokens:
            raise ValueError("the prompt has no tokens; give at least one")
        return tokens

    def new_cache(self, capacity: int, page_size: int | None = None) -> KVCache | PagedKVCache:
        """An empty cache for ``capacity`` tokens, in pages of ``page_size`` if that is given.

        Raises:
            ValueError: more than the context, or a page without room for a token.
        """
        if capacity > self.config.context_length:
            raise ValueError(f"{capacity} tokens are asked for; the model's context holds {self.config.context_length}")
        if page_size is None:
            return KVCache(self.config, capacity, self.weights.embedding)
        if page_size < 1:
            raise ValueError(f"page_size is {page_size}; a page holds at least one token")
        return PagedKVCache(self.config, capacity, page_size, self.weights.embedding)

    # Replacing and observing operations.

    @contextmanager
    def using(self, **replacements: Callable) -> Iterator[SmolLM2]:
        """Run the model on other functions while the block lasts: ``with llm.using(rms_norm=f): llm.generate(...)``.

        Blocks nest; ``llm.operations()`` lists the names and signatures.

        Raises:
            ValueError: a name is no operation (the message lists them).
            TypeError: a replacement cannot be called.
        """
        check_names(replacements)
        for name, function in replacements.items():
            if not callable(function):
                raise TypeError(f"{name} must be a function, not {function!r}")
        before = self._functions
        self._functions = {**before, **replacements}
        try:
            yield self
        finally:
            self._functions = before

    @contextmanager
    def watching(self, observer: Callable[[Call], None]) -> Iterator[SmolLM2]:
        """Show each call of an operation to ``observer``, before it runs, while the block lasts."""
        self._observers.append(observer)
        try:
            yield self
        finally:
            self._observers.remove(observer)

    @torch.no_grad()
    def activations(self, place: str, prompt: str | Sequence[int] | None = None) -> Call:
        """The arguments of the call at ``place``, copied, while the model reads ``prompt``: real data for a kernel.

            x, weight, eps = llm.activations("layers.0.input_norm")

        Raises:
            ValueError: there is no such place (the message lists them).
        """
        found: list[Call] = []
        kinds: dict[str, None] = {}  # in the order of the forward pass

        def look(call: Call) -> None:
            kinds[call.kind] = None
            if call.place == place:
                found.append(call.copied())

        self._read(self.encode(FRANCE if prompt is None else prompt), look)
        if not found:
            layers = f"N from 0 to {self.config.num_layers - 1}"
            raise ValueError(f"the model has no call named {place!r}; it has: {', '.join(kinds)} ({layers})")
        return found[0]

    def count_calls(self, page_size: int | None = None) -> dict[str, int]:
        """How often each operation runs to read one token and choose the next, from a cache with pages or without."""
        return dict(Counter(call.operation for call in self._calls(tokens=1, context=0, page_size=page_size)))

    def operations(self, tokens: int = 1, context: int = 0, page_size: int | None = None) -> CostTable:
        """Every operation with its signature, how often it runs, and its bytes and flops for reading ``tokens`` tokens
        at once after ``context`` earlier ones. The figures follow from the shapes of the arguments."""
        return CostTable(self._calls(tokens, context, page_size), tokens, context)

    @torch.no_grad()
    def _calls(self, tokens: int, context: int, page_size: int | None) -> list[Call]:
        """The calls of one forward pass over ``tokens`` tokens after ``context`` others."""
        if tokens < 1 or context < 0:
            raise ValueError(f"tokens is {tokens} and context {context}; give at least 1 and 0")
        calls: list[Call] = []
        self._read([self.tokenizer.end_of_text] * tokens, calls.append, context, page_size)
        return calls

    def _read(
        self, tokens: list[int], observer: Callable[[Call], None], context: int = 0, page_size: int | None = None
    ) -> None:
        """Read ``tokens`` and choose the next one, showing each call to ``observer`` before it runs."""
        cache = self.new_cache(context + len(tokens), page_size)
        cache.length = context  # as if so many zeros had been read: the cost of a call does not depend on values
        with self.watching(observer):
            self.next_token(tokens, cache)

    def _call(self, place: str, operation: str, *args: object, **keywords: object):
        """Run an operation, or what replaces it. ``place`` names this call: "layers.7.mlp_norm"."""
        function = self._functions[operation]
        for observe in self._observers:
            observe(Call(place, operation, args, keywords))
        try:
            return function(*args, **keywords)
        except Exception as error:
            error.add_note(f"This happened in the model, at {place}, where {operation} runs.")
            raise


def rope_tables(max_positions: int, rotary_dim: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of ``position * base ** (-2 i / rotary_dim)``, both (max_positions, rotary_dim / 2) in float32.

    float32 always: an angle of 8000 radians kept in bf16 is off by up to 16, several whole turns.
    """
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32, device=device) / rotary_dim
    positions = torch.arange(max_positions, dtype=torch.float32, device=device)
    angles = torch.outer(positions, 1.0 / base**exponents)
    return angles.cos(), angles.sin()
