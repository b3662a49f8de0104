"""Text to token numbers and back, with everything taken from the GGUF file: vocabulary, merges and chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from course_lab.model.weights import require

_CONTROL = 3  # the GGUF token type of <|im_start|> and the like (llama.cpp: LLAMA_TOKEN_TYPE_CONTROL)


class HasMetadata(Protocol):
    """A GGUF file, or what was kept of one."""

    def metadata(self, key: str) -> Any: ...


class Tokenizer:
    """SmolLM2's tokenizer: byte-level BPE over 49152 tokens."""

    def __init__(self, file: HasMetadata) -> None:
        self._bpe = _byte_level_bpe(file)
        self._template = _compile_template(file.metadata("tokenizer.chat_template"))
        self.end_of_text: int = file.metadata("tokenizer.ggml.eos_token_id")

    def encode(self, text: str) -> list[int]:
        """The tokens of ``text`` as it stands; control tokens may be spelled out in it."""
        return self._bpe.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int], *, keep_control_tokens: bool = False) -> str:
        """The text of ``tokens``; control tokens are left out unless they are asked for."""
        return self._bpe.decode(list(tokens), skip_special_tokens=not keep_control_tokens)

    def chat(self, message: str) -> str:
        """The text that the model was trained to answer: system prompt, the user's message, and an open reply."""
        messages = [{"role": "user", "content": message}]
        return self._template.render(messages=messages, add_generation_prompt=True)


def _byte_level_bpe(file: HasMetadata):
    """The ``tokenizers.Tokenizer`` with the file's vocabulary, merges and control tokens."""
    tokenizers = require("tokenizers")
    tokens = file.metadata("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ", 1)) for merge in file.metadata("tokenizer.ggml.merges")]
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    bpe.pre_tokenizer = _pre_tokenizer(file.metadata("tokenizer.ggml.pre"))
    bpe.decoder = tokenizers.decoders.ByteLevel()
    types = file.metadata("tokenizer.ggml.token_type")
    bpe.add_special_tokens([token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL])
    return bpe


def _pre_tokenizer(kind: str):
    """How text is cut into pieces before merging; the GGUF file gives only a name for it.

    "smollm" is GPT-2's rule after each digit has been cut out (llama.cpp, ``llama-vocab.cpp``). The order matters:
    in "a  1" the two spaces stay one token, because the digit is gone before GPT-2's rule could claim one of them.
    """
    if kind != "smollm":
        raise ValueError(f"the weights name the pre-tokenizer {kind!r}; only 'smollm' is known here")
    rules = require("tokenizers").pre_tokenizers
    return rules.Sequence([rules.Digits(individual_digits=True), rules.ByteLevel(add_prefix_space=False)])


def _compile_template(source: str):
    """The chat template ready to render. It comes out of a data file, hence the sandbox."""
    sandbox = require("jinja2.sandbox").ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    return sandbox.from_string(source)
