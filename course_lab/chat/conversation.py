"""A chat: messages in, text out token by token, what was said kept in one paged cache."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from course_lab.chat.assembly import YOURS, Assembly
from course_lab.chat.engines import Engine
from course_lab.chat.recorded import RecordedSteps
from course_lab.model import Sampler

PAGE = 16
ROOM = 1024  # tokens of one conversation
_USER = "<|im_start|>user"  # where the template's system prompt ends


@dataclass(frozen=True)
class Said:
    """An answer: how many tokens were read before it, its own, and the seconds until the first and for the others."""

    read: int
    tokens: list[int]
    reading: float
    writing: float
    text: str

    def __str__(self) -> str:
        if not self.tokens:
            return "nothing was written"
        first = f"{self.read} tokens read and 1 written in {self.reading:.2f} s"
        more = len(self.tokens) - 1
        return f"{first}, {more} more in {self.writing:.2f} s: {more / self.writing:.3g} tokens/s" if more else first


class Conversation:
    """Messages and answers on one engine.

    mine: the learner's kernels where they have passed.  sampler: None takes the best token.  room: how many tokens the
    conversation may have; past it the oldest messages are forgotten, each as a whole.

    Raises:
        ValueError: `mine` on an engine that runs no kernels, a sampler where steps are recorded, a step that cannot be
            recorded, or more room than the model's context.
        ModelUnavailable: the weights are not installed.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        mine: bool = False,
        sampler: Sampler | None = None,
        room: int = ROOM,
        progress: bool = True,
    ) -> None:
        if mine and not engine.runs_kernels:
            raise ValueError("the engine torch runs no kernels, so none of yours: choose interpreter, simulator or gpu")
        if sampler and engine.launch != "each":
            raise ValueError("a recorded step takes the most likely token: leave the temperature out, or launch each")
        self.engine, self.sampler, self.room = engine, sampler, room
        self.assembly = Assembly(mine) if engine.runs_kernels else None
        self.llm = engine.load(progress=progress)
        self.said: Said | None = None
        self._turns: list[list[int]] = []  # the tokens of each turn: message and answer
        self._cache = self.llm.new_cache(room, PAGE)
        self._steps = self._recorded() if engine.launch != "each" else None

    def answer(self, message: str, max_new_tokens: int = 128) -> Iterator[str]:
        """The answer, piece by piece as its tokens come; `said` has its figures. What came before a stop is kept.

        Raises:
            ValueError: the message has no room.
        """
        turn = self._message(message)
        self._make_room(len(turn), max_new_tokens)
        self._turns.append(turn)
        read, tokens, shown = self._unread(), [], ""
        begin = first = time.perf_counter()
        try:
            while len(tokens) < max_new_tokens and self._cache.length + len(self._unread()) <= self._cache.capacity:
                tokens.append(self._next())
                turn.append(tokens[-1])
                first = time.perf_counter() if len(tokens) == 1 else first
                if tokens[-1] == self.llm.tokenizer.end_of_text:
                    break
                text = self.llm.tokenizer.decode(tokens)
                if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # half a character waits for its other half
                    yield text[len(shown) :]
                    shown = text
        finally:
            self.said = Said(len(read), tokens, first - begin, time.perf_counter() - first, shown)

    def note(self) -> str:
        """What ran on what, so far."""
        if self.assembly is None:
            return f"All of it ran on {self.engine}: no kernel was launched."
        ran = [number for number, calls in self.assembly.ran.items() if calls]
        mine = sum(self.assembly.whose(number) == YOURS for number in ran)
        launched = f", {self.engine.launches:,} launches" if self.engine.launches else ""
        ran_on = f"It ran on {self.engine}{launched}: {mine} of {len(ran)} kernels yours, the others the course's."
        compiled = self.engine.name in ("simulator", "gpu")
        return ran_on + " Kernels that met new sizes were compiled, which is in the seconds." * compiled

    def _next(self) -> int:
        unread = self._unread()
        if self.assembly is None:
            return self.llm.next_token(unread, self._cache, self.sampler)
        with self.engine.running(self.llm, self.assembly):
            if self._steps is not None and len(unread) == 1:
                return self._steps(unread[0])
            return self.llm.next_token(unread, self._cache, self.sampler)

    def _recorded(self) -> RecordedSteps:
        compiled = self.engine.launch == "compiled"
        try:
            with self.engine.running(self.llm, self.assembly):
                return RecordedSteps(self.llm, self._cache, self.assembly["9.5"], compiled=compiled)
        except Exception as error:  # any kernel may ask the host, or be one that torch.compile does not take
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120]}"
            raise ValueError(f"a step cannot be recorded ({why}): take --launch each") from error

    def _message(self, message: str) -> list[int]:
        """The tokens of a message as the model was trained to read it, behind what was said before."""
        message = message.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # half a pair is no character
        text = self.llm.tokenizer.chat(message)
        if not self._turns:
            return self.llm.tokenizer.encode(text)
        ended = self._turns[-1][-1] == self.llm.tokenizer.end_of_text
        return self.llm.tokenizer.encode(("\n" if ended else "<|im_end|>\n") + text[text.index(_USER) :])

    def _make_room(self, tokens: int, answer: int) -> None:
        """Forget the oldest turns until so many tokens and an answer fit; what is left is then read once more."""
        wanted = tokens + min(answer, self.room // 4)
        if wanted > self.room:
            raise ValueError(f"the message has {tokens} tokens; with an answer they do not fit into {self.room}")
        kept = len(self._turns)
        while self._turns and sum(map(len, self._turns)) + wanted > self.room:
            self._turns.pop(0)
        if len(self._turns) < kept:
            self._cache.length = 0  # its memory stays: a recorded step writes there

    def _unread(self) -> list[int]:
        """The tokens that the cache has not seen: a message, and the last token of the answer before it."""
        return [token for turn in self._turns for token in turn][self._cache.length :]
