"""The model put together from kernels: for each of its operations, whose kernel runs.

An operation is one part, or several: a matrix meets one token, a few, or a whole prompt, and each is an exercise of its
own.  The table tells what runs now, from the learner's journal, and how often each part ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape

import torch
from torch import Tensor

from course_lab.chat.split import LONG, split_attention
from course_lab.check.mine import my_kernel, own, solution
from course_lab.model.kernels import COURSE
from gfxlab import style
from gfxlab.tables import Table

FEW = 16  # rows that one matrix instruction takes
YOURS, COURSES = "yours", "the course's"


@dataclass(frozen=True)
class Part:
    """One place where a kernel of the learner's fits.

    number: of the exercise.  operation: as the model calls it, or "" for what stands between its steps.
    course: what runs where the exercise is not solved; None for the exercise's solution.
    fit: makes the learner's function (or the solution) one with the operation's arguments.
    """

    number: str
    operation: str
    task: str
    course: Callable | None = None
    fit: Callable[[Callable], Callable] = lambda function: function


PARTS = (
    Part("1.4", "embedding", "the row of each token", None, lambda f: lambda tokens, weight: f(weight, tokens)),
    Part("2.2", "rms_norm", "the first norm", COURSE["rms_norm"]),
    Part("2.3", "add_rms_norm", "add and norm", COURSE["add_rms_norm"]),
    Part("5.2", "linear", f"matrices, a prompt of more than {FEW} tokens", COURSE["linear"],
         lambda f: lambda x, weight: f(x, weight.t())),
    Part("9.3", "linear", f"matrices, 2 to {FEW} tokens", COURSE["linear"]),
    Part("7.c", "linear", "matrices, one token", COURSE["linear"]),
    Part("7.3", "paged_kv_cache_update", "RoPE, into the pages", COURSE["paged_kv_cache_update"],
         lambda f: lambda *arguments, style: (f(*arguments), None)),
    Part("6.4", "attention", "attention, a prompt", COURSE["attention"], lambda f: lambda q, k, v, causal: f(q, k, v)),
    Part("7.4", "paged_decode_attention", "attention, one token", COURSE["paged_decode_attention"]),
    Part("7.5", "paged_decode_attention", f"attention, one token, {LONG} and more before it", None,
         lambda f: partial(split_attention, f)),
    Part("3.2", "silu_and_mul", "SwiGLU", COURSE["silu_and_mul"]),
    Part("9.1", "topk", "the best tokens", COURSE["topk"]),
    Part("9.2", "sample", "temperature, and the draw"),
    Part("9.4", "", "pages for the next tokens"),
    Part("9.5", "", "from one step to the next"),
)  # fmt: skip


class Assembly:
    """The functions for `llm.using(**assembly.functions)`, and the table of whose they are.

    mine: take the learner's answers, where they have passed; else the course's kernels throughout.
    """

    def __init__(self, mine: bool = True) -> None:
        self.mine, self.ran = mine, Counter()
        self._whose = {}
        self._parts = {part.number: self._made(part) for part in PARTS}

    def __getitem__(self, number: str) -> Callable:
        """What runs in the place of exercise `number`. Raises KeyError where the model has no such place."""
        return self._parts[number]

    @property
    def yours(self) -> int:
        """How many parts are the learner's."""
        return sum(whose == YOURS for whose in self._whose.values())

    @property
    def functions(self) -> dict[str, Callable]:
        """One function for each operation that has a part."""
        single = {part.operation: self._parts[part.number] for part in PARTS if part.operation}
        return single | {"linear": self._linear, "paged_decode_attention": self._decode}

    def whose(self, number: str) -> str:
        """YOURS or COURSES, in the place of exercise `number`."""
        return self._whose[number]

    def _made(self, part: Part) -> Callable:
        self._whose[part.number] = YOURS if self.mine and own(part.number) is not None else COURSES
        if self._whose[part.number] == COURSES and part.course is not None:
            function = my_kernel(part.number, part.course) if self.mine else part.course
        else:
            function = part.fit(my_kernel(part.number) if self.mine else solution(part.number))

        @torch.compiler.assume_constant_result  # traced, a number that grows would have every step compiled anew
        def count() -> bool:
            self.ran[part.number] += 1
            return True

        def counted(*arguments: object, **keywords: object) -> object:
            count()
            return function(*arguments, **keywords)

        return counted

    def _linear(self, x: Tensor, weight: Tensor) -> Tensor:
        number = "7.c" if len(x) == 1 else "9.3" if len(x) <= FEW else "5.2"
        return self._parts[number](x, weight)

    def _decode(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
        number = "7.5" if block_table.shape[1] * k_cache.shape[1] >= LONG else "7.4"
        return self._parts[number](q, k_cache, v_cache, block_table, seq_lens)

    # ---- the table ---------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """A row for each part: operation, task, exercise, whose kernel runs, solved or not, how often it ran."""
        rows = [
            (
                part.operation or "between steps",
                part.task,
                part.number,
                self._whose[part.number],
                "solved" if own(part.number) is not None else "open",
                f"{self.ran[part.number]:,}",
            )
            for part in PARTS
        ]
        return Table(rows, ("operation", "for", "exercise", "whose kernel runs", "", "calls"), numbers=1)

    @property
    def summary(self) -> str:
        """ "your kernels: 3 of 15"."""
        return f"your kernels: {self.yours} of {len(PARTS)}"

    def __repr__(self) -> str:
        return f"{self.table().text()}\n\n{self.summary}"

    def _repr_html_(self) -> str:
        return style.card("Whose kernels run", f"{self.table().html()}<p>{escape(self.summary)}</p>")
