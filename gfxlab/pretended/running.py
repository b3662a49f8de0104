"""A script or a module on a pretended GPU, run as Python runs it, and what its launches did."""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gfxlab import user_errors
from gfxlab.pretended.gpu import pretend, warn
from gfxlab.simulator.show import script
from gfxlab.simulator.show.run import Run
from gfxlab.units import format_count


@dataclass
class Ran:
    """What the launches of a script did. launches, instructions: by kernel; hazards: sentences, each once."""

    arch: str
    status: int = 0
    launches: Counter[str] = field(default_factory=Counter)
    instructions: Counter[str] = field(default_factory=Counter)
    hazards: dict[str, None] = field(default_factory=dict)

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
        return f"{self.arch} pretended: {often}, {self.instructions.total():,} wave-instructions, {found}"

    def as_json(self) -> dict[str, Any]:
        kernels = {
            name: {"launches": count, "instructions": self.instructions[name]} for name, count in self.launches.items()
        }
        return {"arch": self.arch, "status": self.status, "kernels": kernels, "hazards": list(self.hazards)}


def run_script(path: Path, arguments: Sequence[str], arch: str) -> Ran:
    """`python path arguments` on a pretended GPU.

    Raises:
        ScriptError: there is no such file, or it raised; CannotPretend: this PyTorch takes no device.
    """
    if not path.is_file():
        raise script.ScriptError(f"There is no file {path}; give a Python file, or -m and a module.")
    ran = Ran(arch)
    with pretend(arch, ran.add):
        ran.status = script.execute(path, arguments)
    return ran


def run_module(name: str, arguments: Sequence[str], arch: str) -> Ran:
    """`python -m name arguments` on a pretended GPU.

    Raises:
        ScriptError: there is no such module, or it raised.
    """
    ran, before = Ran(arch), list(sys.argv)
    sys.argv = [name, *arguments]
    sys.path.insert(0, "")
    try:
        with pretend(arch, ran.add):
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
