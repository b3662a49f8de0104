"""The review of a file: every kernel's launches are executed, the first ones closely, and asked of all engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.code.report import AmdReport, measure
from gfxlab.engine import dual_mode
from gfxlab.pretended import evidence
from gfxlab.pretended.gpu import launch_in_work
from gfxlab.pretended.unwritten import remembered
from gfxlab.programs import format_grid
from gfxlab.review import costs, engines, hazards, overflow, within
from gfxlab.review.findings import COST, HAZARD, NOTE, Finding
from gfxlab.review.pieces import Pieces
from gfxlab.simulator.core.faults import SimulationError
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.show import script
from gfxlab.simulator.show.run import Run


@dataclass(frozen=True)
class Kernel:
    """What was looked at: one kernel's first launch, and how many more there were."""

    name: str
    grid: tuple[int, int, int]
    report: AmdReport | None = None
    instructions: int = 0
    launches: int = 1

    def __str__(self) -> str:
        more = f", {self.launches} launches" if self.launches > 1 else ""
        if self.report is None:
            return f"{self.name}, grid {format_grid(self.grid)}{more}"
        waves, report = self.report.occupancy, self.report
        return (
            f"{self.name}, grid {format_grid(self.grid)}{more}: {self.instructions:,} wave-instructions, "
            f"{report.vgprs} VGPRs, {report.lds:,} bytes of LDS, {waves.waves:g} of {waves.most} waves a SIMD"
        )


@dataclass
class Review:
    """The page. findings: worst first."""

    file: str
    arch: str
    kernels: list[Kernel] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    parameters: set[str] = field(default_factory=set)  # of all its kernels

    def _of(self, level: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == level]

    @property
    def hazards(self) -> list[Finding]:
        """What is wrong."""
        return self._of(HAZARD)

    @property
    def costs(self) -> list[Finding]:
        """What would be slow."""
        return self._of(COST)

    @property
    def notes(self) -> list[Finding]:
        """What is worth knowing, and what was not looked at."""
        return self._of(NOTE)

    def as_json(self) -> dict[str, Any]:
        kernels = [{"kernel": k.name, "grid": list(k.grid), "instructions": k.instructions} for k in self.kernels]
        findings = [finding.as_json() for finding in self.findings]
        return {"file": self.file, "arch": self.arch, "kernels": kernels, "findings": findings}


def review(
    target: str, arch: str = "gfx942", at: Mapping[str, int] | None = None, arguments: Sequence[str] = ()
) -> Review:
    """Run FILE, or FILE:KERNEL, and say what is wrong with its kernels and what they cost.

    Args:
        at: sizes of the kernels' parameters at which offsets are checked for overflow, such as {"N": 2**31}.

    Raises:
        ScriptError: there is no such file, it raised, or it does not launch the kernel.
        AmdError: a kernel does not compile.
    """
    page = Review(Path(target.partition(":")[0]).name, arch)
    look = _Look(page, at or {})
    try:
        evidence.of_file(target, arch, look, arguments)
    except SimulationError as error:
        if not page.hazards and error.compiled is None:  # of a launch that was not looked at
            raise
        if error.compiled is not None:  # while a tuner measured
            page.findings.append(hazards.of_error(error.compiled, error))
    except script.ScriptError as error:
        if not page.kernels:
            raise
        if error.__cause__ is not None:  # else it went on after a launch that failed
            page.findings.append(Finding("failed", page.file, str(error)))
    page.kernels = [
        Kernel(k.name, k.grid, k.report, k.instructions, look.launches.get(k.name, 1)) for k in page.kernels
    ]
    page.findings = sorted(_folded(page.findings), key=lambda finding: (finding.rank, finding.kernel, finding.line))
    return page


def _folded(found: list[Finding]) -> Iterator[Finding]:
    """One finding of each kind for a line of a kernel: the first, with how many more there were."""
    groups: dict[tuple, list[Finding]] = {}
    for finding in found:
        key = finding.kind, finding.kernel, finding.file, finding.line
        group = groups.setdefault(key if finding.line else (*key, finding.evidence), [])
        if all(finding.evidence != other.evidence for other in group):
            group.append(finding)
    for first, *others in groups.values():
        more = f" And {len(others)} more like it." if others else ""
        yield replace(first, evidence=f"{first.evidence}{more}")


_CLOSE = 4  # launches of a kernel that are looked at closely: other sizes have other masks


class _Look:
    """Executes launches; the first of each kernel, and those at other sizes, with everybody looking on."""

    def __init__(self, page: Review, at: Mapping[str, int]):
        self.page, self.at = page, at
        self.launches: dict[str, int] = {}
        self._sizes: dict[str, set[tuple]] = {}

    def __call__(self, compiled: Compiled, grid: tuple[int, int, int], values: list[Value], **options) -> Run:
        name = compiled.name
        self.launches[name] = self.launches.get(name, 0) + 1
        first, closely = self.launches[name] == 1, self._is_new(compiled, grid, values)
        before = engines.copies(values) if closely else []
        try:
            run = remembered(execute, compiled, grid, values, **{**options, "profile": first})
        except SimulationError as error:
            self.page.kernels += [Kernel(name, grid)] if first else []
            self.page.findings.append(hazards.of_error(compiled, error))
            raise
        found = set(self.page.findings)
        self.page.findings += [finding for finding in hazards.of_run(run) if finding not in found]
        if first:
            self._costs(compiled, run, before, options)
        if closely:
            self._closely(compiled, run, before, values, options)
        return run

    def _is_new(self, compiled: Compiled, grid: tuple[int, int, int], values: list[Value]) -> bool:
        """Whether the kernel has not been looked at with these sizes, nor at too many others."""
        sizes = self._sizes.setdefault(compiled.name, set())
        this = (compiled.asm, grid, *((value.name, _size(value.content)) for value in values))
        if this in sizes or len(sizes) >= _CLOSE:
            return False
        sizes.add(this)
        return True

    def _costs(self, compiled: Compiled, run: Run, before: list[Value], options: dict) -> None:
        """Of the first launch alone: at odd sizes anything is narrow and ragged."""
        report = measure(compiled)
        self.page.kernels.append(Kernel(compiled.name, run.grid, report, run.instructions))
        pieces = Pieces(compiled, run.grid, lambda: engines.copies(before), options)
        self.page.findings += costs.of_run(run, report, pieces)

    def _closely(self, compiled: Compiled, run: Run, before: list[Value], values: list[Value], options: dict) -> None:
        launch = launch_in_work()
        self.page.parameters |= {*launch.args, *overflow.AXES} if launch else set()
        if self.at and launch is not None:
            self.page.findings += overflow.of_launch(launch, self.at, compiled.arch)
        after = engines.copies(values)
        if run.instructions <= engines.MOST_INSTRUCTIONS:
            self.page.findings += within.races(compiled, run.grid, engines.copies(before), options)
        if not self._has(compiled.name, "shared"):  # else the order matters, and it is known why
            self.page.findings += engines.by_order(compiled, run, before, after, options)
        if self._has(compiled.name, "beyond"):
            self.page.findings.append(engines.unguarded(compiled.name))
        elif not self._has(compiled.name, "shared", "order", "uncompared"):  # the interpreter has an order of its own
            dual_mode.enable()
            self.page.findings += engines.by_interpreter(launch, compiled, run, before, after)

    def _has(self, kernel: str, *kinds: str) -> bool:
        return any(finding.kind in kinds and finding.kernel == kernel for finding in self.page.findings)


def _size(content: Any) -> Any:
    """What tells one launch from another of the same code."""
    return (content.shape, content.stride()) if isinstance(content, torch.Tensor) else content
