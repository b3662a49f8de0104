"""Steps that execute several instructions at once, by the extension."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from gfxlab.simulator.compiled import known as known_accesses
from gfxlab.simulator.compiled.extension import EXTENSION
from gfxlab.simulator.compiled.micro import LOCAL_LOAD, LOCAL_STORE, Micro
from gfxlab.simulator.compiled.translate import Translator, overflows
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.instructions.common import Step, Target
from gfxlab.simulator.instructions.local_data import LocalAccess

Built = tuple[tuple[Decoded, ...], Step]  # instructions, and the step that does them


class Run:
    """A straight line of plain instructions. steps: the same one by one, for a MODE that is not the usual one."""

    def __init__(self, micros: list[Micro], tables: bytes, registers: int, steps: tuple[Step, ...]):
        self._steps = steps
        self._overflows = any(map(overflows, micros))
        self._run = EXTENSION.make(b"".join(one.packed() for one in micros), tables, registers)
        self._execute = EXTENSION.run
        accesses = (step for step in steps if isinstance(step, LocalAccess))
        self._accesses = {n: next(accesses) for n, one in enumerate(micros) if one.kind in (LOCAL_LOAD, LOCAL_STORE)}

    def __call__(self, w) -> None:
        if w.unusual or w.saturates and self._overflows:
            for step in self._steps:
                step(w)
            return
        known = known_accesses.usable(w) if self._accesses else None
        stopped = self._execute(self._run, w.V, w.S, w.SCC, w.mask, w.live, known, w.window.start, 0)
        while stopped >= 0:
            known_accesses.look(w, self._accesses[stopped])
            known = known_accesses.usable(w)
            stopped = self._execute(self._run, w.V, w.S, w.SCC, w.mask, w.live, known, w.window.start, stopped + 1)


def join(built: Iterable[tuple[Decoded, Step]], target: Target, registers: int) -> Iterator[Built]:
    """Put neighbours that have micro-operations together. registers: vector registers of a wave."""
    translator = Translator(target)
    translated = [(instruction, step, translator.micros(instruction, step)) for instruction, step in built]
    for plain, group in groupby(translated, key=lambda one: one[2] is not None):
        if not plain:
            yield from (((instruction,), step) for instruction, step, _ in group)
            continue
        instructions, steps, micros = zip(*group)
        run = Run(sum(micros, []), translator.tables, registers, steps)
        yield instructions, run
