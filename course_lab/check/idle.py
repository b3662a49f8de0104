"""Programs that have nothing to do: no mistake where the text allows them, and yet worth a remark.

Some are part of the work: a padding slot, an empty sequence, a tile above the diagonal.  So only a launch of which more
than half stores nothing is spoken of, in the case with the most programs.
"""

from __future__ import annotations

from collections.abc import Callable

from course_lab.check.verdict import CaseRun


def idle_remark(runs: list[CaseRun], usual: Callable[[CaseRun], int]) -> str:
    """A sentence on the largest launch of a right answer, where most of its programs are idle; "" where they are not.

    runs: every case, as the interpreter ran it.  usual: how many are idle in that case where nobody would object.
    """
    launches = [(launch, run) for run in runs if run.engine == "interpreter" for launch in run.own_launches]
    if not launches:
        return ""
    launch, run = max(launches, key=lambda pair: pair[0].programs)
    if 2 * launch.idle <= launch.programs or launch.idle <= usual(run):
        return ""
    count = f"{launch.idle:,} of {launch.programs:,} programs of {launch.name}"
    return f"{count} have nothing to do (case “{run.case.name}”). How many does it take?"
