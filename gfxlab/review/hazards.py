"""Hazards that the simulator saw while it executed a launch, as findings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gfxlab.code.compiler import Compiled
from gfxlab.review.findings import Finding
from gfxlab.simulator.core.faults import IllegalAccess, SimulationError, Trapped, UnknownInstruction
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.show.run import Run

_ENDS = {IllegalAccess: "out-of-bounds", Trapped: "assertion"}
_KINDS = {"read too early": "unwritten"}  # the checks' names, where the review has another


def of_run(run: Run) -> Iterator[Finding]:
    """What the checks noted."""
    if not run.checks:
        return
    noted = run.checks.notes.by_kind()
    for what, instruction, sentence in noted:
        yield _finding(_KINDS.get(what, what), run.compiled.name, sentence, instruction)
    known = {sentence for _, _, sentence in noted}
    for sentence in run.wrong:
        if sentence not in known and "never written" not in sentence:
            yield Finding("undefined", run.compiled.name, sentence)


def of_error(compiled: Compiled, error: SimulationError) -> Finding:
    """What ended a launch.

    Raises:
        SimulationError: the error itself, where it is about the simulator and not about the kernel.
    """
    if isinstance(error, UnknownInstruction):
        raise error
    kind = next((kind for of, kind in _ENDS.items() if isinstance(error, of)), "endless")
    where = (error.source.filename, error.source.line) if error.source else place(compiled, str(error))
    return Finding(kind, compiled.name, str(error), *where)


def _finding(kind: str, kernel: str, sentence: str, instruction: Decoded | None) -> Finding:
    source = instruction.source if instruction else None
    return Finding(kind, kernel, sentence, source.filename if source else "", source.line if source else 0)


def place(compiled: Compiled, sentence: str) -> tuple[str, int]:
    """The file and the line that a sentence names as "line 7"; ("", 0) where it names none."""
    found = re.search(r"[(; ]line (\d+)\b", sentence)
    file = next(iter(compiled.sources), "")
    return (file, int(found[1])) if found else ("", 0)
