"""A script or a module on a pretended GPU, run as Python runs it, and what its launches did."""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gfxlab import user_errors
from gfxlab.pretended import benchmarks
from gfxlab.pretended.gpu import pretend, warn
from gfxlab.simulator.core.progress import line_on
from gfxlab.simulator.show import script
from gfxlab.simulator.show.run import Run
from gfxlab.units import format_count


@dataclass
class Ran:
    """What the launches of a script did.

    launches, instructions: by kernel; hazards: sentences, each once; unfinished: benchmarks whose rest was counted.
    """

    arch: str
    status: int = 0
    launches: Counter[str] = field(default_factory=Counter)
    instructions: Counter[str] = field(default_factory=Counter)
    hazards: dict[str, None] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """Count one launch, and warn of what it did wrong."""
        name = run.compiled.name
        self.launches[name] += 1
        self.instructions[name] += run.instructions
        self.hazards |= dict.fromkeys(f"{name}: {sentence}" for sentence in run.wrong)
        warn(run)

    def __str__(self) -> str:
        found = format_count(len(self.hazards), "hazard") if self.hazards else "nothing wrong found"
        often = f"{format_count(self.launches.total(), 'launch')} of {format_count(len(self.launches), 'kernel')}"
        said = f"{self.arch} pretended: {often}, {self.instructions.total():,} wave-instructions, {found}"
        if not self.unfinished:
            return said
        return f"{said}; of {format_count(len(self.unfinished), 'benchmark')} a part was counted, not executed"

    def as_json(self) -> dict[str, Any]:
        kernels = {
            name: {"launches": count, "instructions": self.instructions[name]} for name, count in self.launches.items()
        }
        found = {"kernels": kernels, "hazards": list(self.hazards), "unfinished": self.unfinished}
        return {"arch": self.arch, "status": self.status, **found}


def run_script(path: Path, arguments: Sequence[str], arch: str, bench_limit: float | None = None) -> Ran:
    """`python path arguments` on a pretended GPU.

    Args:
        bench_limit: seconds of processor time that a benchmark may take besides what it measures; None: a minute for
            a row of a `perf_report`, and no limit for a session of Proton.

    Raises:
        ScriptError: there is no such file, or it raised; CannotPretend: this PyTorch takes no device.
    """
    if not path.is_file():
        raise script.ScriptError(f"There is no file {path}; give a Python file, or -m and a module.")
    ran = Ran(arch)
    with line_on(sys.stderr), pretend(arch, ran.add), _benchmarks(ran, bench_limit):
        ran.status = script.execute(path, arguments)
    return ran


def run_module(name: str, arguments: Sequence[str], arch: str, bench_limit: float | None = None) -> Ran:
    """`python -m name arguments` on a pretended GPU; bench_limit: as for a script.

    Raises:
        ScriptError: there is no such module, or it raised.
    """
    ran, before = Ran(arch), list(sys.argv)
    sys.argv = [name, *arguments]
    sys.path.insert(0, "")
    try:
        with line_on(sys.stderr), pretend(arch, ran.add), _benchmarks(ran, bench_limit):
            runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        ran.status = script.exit_status(end)
    except Exception as error:
        said = None if type(error).__module__.startswith("gfxlab.") else user_errors.sentence(error, Path(name))
        if said is None:
            raise
        raise script.ScriptError(said) from error
    finally:
        sys.argv = before
        with contextlib.suppress(ValueError):
            sys.path.remove("")
    return ran


@contextlib.contextmanager
def _benchmarks(ran: Ran, limit: float | None) -> Iterator[None]:
    seconds = benchmarks.SECONDS if limit is None else limit
    with benchmarks.limited(seconds, sessions=limit is not None) as ran.unfinished:
        yield
