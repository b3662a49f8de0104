"""What one call of an answer costs a simulated MI300X, counted in the child: instructions, bytes, cache lines.

Counts, not times: the same input gives the same numbers on every machine, for one version of the compiler.
"""

from __future__ import annotations

from typing import Any

from course_lab.check import child
from gfxlab.simulator.context import using


def count(payload: dict[str, Any]) -> dict[str, Any]:
    """Run an answer on each case of `payload` (see `child.run_cases`) and count.

    Returns:
        {"counts": for each case (instructions of waves, bytes moved, cache lines of 128 bytes), "outputs": for each
        case a tuple of tensors}.
    """
    job = child.start(payload)
    _, entry = child.define(job)
    counts, outputs = [], []
    for args in job.cases:
        with using(payload["arch"], profile=True, quiet=True) as runs:
            result = entry(*args)
        moved = [way for run in runs for way in (run.loads, run.stores, run.atomics)]
        lines, size = sum(way.lines for way in moved), sum(way.bytes for way in moved)
        counts.append((sum(run.instructions for run in runs), size, lines))
        outputs.append((*child.tensors(result)[0], *(args[position] for position in job.inplace)))
    return {"counts": tuple(counts), "outputs": tuple(outputs)}
