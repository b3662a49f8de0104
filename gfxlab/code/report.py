"""What the AMD compiler made of a kernel, in figures that a kernel's author can act on.

The figures are read from the compiler's own output.  Instructions are counted as they stand in the code: one inside a
loop counts once, however often the loop runs.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from gfxlab import hardware, transport
from gfxlab.bound import Launch, Specialisation, bind, parameters, unwrap
from gfxlab.code import card, compiler, metadata
from gfxlab.code import work as works
from gfxlab.code.figures import Figures
from gfxlab.code.listing import Listing
from gfxlab.engine import dual_mode


class AmdReport(Figures):
    """The machine code of one kernel for one architecture: its `Figures`, as text, as a card, and line by line."""

    def listing(self, by: str = "line", only: str = "") -> Listing:
        """The machine code beside the kernel's own lines, each instruction in plain words.

        Args:
            by: 'line' shows each source line once, with all that was made for it; 'address' keeps the code's order.
            only: leave out the source lines that do not contain this text, for example "tl.sum".

        Raises:
            ValueError: `by` is neither.
        """
        return Listing.of(self, by, only)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AmdReport:
        """A report again, measured anew from its machine code.

        Raises:
            AmdLimitError: it needs more LDS than a workgroup may have.
        """
        compiled = {key: part for key, part in value.items() if key != "work"}
        compiled["sources"] = {name: dict(lines) for name, lines in value["sources"].items()}
        report = measure(compiler.Compiled(**compiled))
        return replace(report, work=works.Work(**value["work"])) if value["work"] else report

    def notes(self) -> list[str]:
        """What its author should look at, worst first; empty when nothing stands out."""
        return card.notes(self)

    def _repr_html_(self) -> str:
        return card.html(self)


def amd_report(
    kernel: Any,
    *args: Any,
    arch: str = "gfx942",
    num_warps: int = 4,
    num_stages: int = 2,
    signature: Mapping[str, str] | None = None,
    constexprs: Mapping[str, Any] | None = None,
    grid: Any = None,
    count: bool = False,
    counted_bytes: int | None = None,
    **kwargs: Any,
) -> AmdReport:
    """Compile a kernel for an AMD GPU, with no GPU here, and report what its machine code needs and does.

    Give it either the arguments of a launch, or types:

        amd_report(add_kernel, x, y, out, n, BLOCK=1024, arch="gfx950")
        amd_report(add_kernel, signature={"x_ptr": "*fp32", ..., "n": "i32"}, constexprs={"BLOCK": 1024})

    With arguments the compiler is told what Triton's launcher would tell it: types, 16-byte alignment, sizes that are
    multiples of 16 or equal to 1. With a signature it is told the types alone, so its loads may be narrower.

    Args:
        args, kwargs: the launch's arguments (tensors on any device) and options such as waves_per_eu.
        arch: LLVM architecture: gfx90a (MI200), gfx942 (MI300), gfx950 (MI350), gfx1100 (RX 7900), gfx1201 (RX 9070).
        grid: the launch's; with it the report says how soon each GPU could be done (`work`).
        count: run the launch on the simulator, on copies of its tensors, to count its FLOPs and bytes.
        counted_bytes: bytes that somebody has counted already, such as `trace`, each touched element once.

    Raises:
        ValueError: `arch` is unknown, or `count` without a grid.
        TypeError: the arguments are not the kernel's.
        AmdError: the kernel does not compile (`.line` is the author's line); AmdLimitError: it would not run.
    """
    if not inspect.isfunction(unwrap(kernel)):
        raise TypeError(f"amd_report takes a @triton.jit function, got {kernel!r}")
    compiler.check_workgroup(unwrap(kernel).__name__, arch, num_warps)
    if signature is None:
        options = {"num_warps": num_warps, "num_stages": num_stages}
        spec = _launched(kernel, args, {**kwargs, **options}, arch)
    elif args:
        raise TypeError("give amd_report either the arguments of a launch or a signature, not both")
    else:
        spec = _typed(kernel, signature, constexprs or {}, kwargs)
    report = measure(compiler.compile(kernel, spec, arch, num_warps=num_warps, num_stages=num_stages))
    if grid is None:
        if count:
            raise ValueError("to count what a launch does, amd_report needs its grid: grid=(4,)")
        return report
    if signature is not None:
        raise TypeError("a grid belongs to the arguments of a launch; a signature has none")
    launch = bind(kernel, args, {**kwargs, "num_warps": num_warps, "num_stages": num_stages}, grid)
    if count:
        return replace(report, work=_simulated(launch, arch))
    waves = math.prod(launch.grid) * num_warps
    tensors = launch.tensors.values()
    lanes, code = report.limits.wave_size, report.program.instructions
    return replace(report, work=works.estimated(code, lanes, waves, tensors, counted_bytes))


def _simulated(launch: Launch, arch: str) -> works.Work:
    """The work of a launch, by running it on the simulator with copies of its tensors."""
    from gfxlab.simulator import simulate

    copies = [_copy(value) for value in launch.positional]
    named = {name: _copy(value) for name, value in launch.keywords.items()}
    return works.of_run(simulate(launch.kernel, launch.grid, copies, arch=arch, **named))


def _copy(value: Any) -> Any:
    return transport.with_strides(value.cpu(), value.stride()) if isinstance(value, torch.Tensor) else value


def _launched(kernel: Any, args: tuple, kwargs: dict[str, Any], arch: str) -> Specialisation:
    """The specialisation of a launch; Triton's own complaints name neither the kernel nor the argument."""
    launch = bind(kernel, args, kwargs)
    try:
        return dual_mode.specialise(kernel, args, kwargs, arch)
    except (TypeError, KeyError) as error:
        raise TypeError(f"{launch.name}({', '.join(launch.args)}): {error.args[0]}") from None


def _typed(
    kernel: Any, signature: Mapping[str, str], constexprs: Mapping[str, Any], options: dict[str, Any]
) -> Specialisation:
    """A specialisation from types alone."""
    names = list(parameters(kernel))
    unknown = [name for name in (*signature, *constexprs) if name not in names]
    missing = [name for name in names if name not in signature and name not in constexprs]
    if unknown or missing:
        raise TypeError(
            f"signature and constexprs must name the arguments {', '.join(names)}"
            + (f"; unknown: {', '.join(unknown)}" if unknown else "")
            + (f"; missing: {', '.join(missing)}" if missing else "")
        )
    full = {name: "constexpr" if name in constexprs else signature[name] for name in names}
    values = {(names.index(name),): value for name, value in constexprs.items()}
    return Specialisation(full, values, {}, {"debug": False, "enable_fp_fusion": True, **options})


def measure(compiled: compiler.Compiled) -> AmdReport:
    """Read the figures of a compiled kernel.

    Raises:
        AmdLimitError: it needs more LDS than a workgroup may have.
    """
    compiler.check_lds(compiled)
    facts = metadata.read(compiled.asm)
    return AmdReport(
        name=compiled.name,
        arch=compiled.arch,
        vgprs=facts["vgpr_count"],
        agprs=facts.get("agpr_count", 0),  # RDNA has no accumulators, and no such field
        sgprs=facts["sgpr_count"],
        vgpr_spills=facts["vgpr_spill_count"],
        sgpr_spills=facts["sgpr_spill_count"],
        scratch=facts["private_segment_fixed_size"],
        lds=compiled.lds,
        threads=compiled.num_warps * hardware.limits(compiled.arch).wave_size,
        num_warps=compiled.num_warps,
        num_stages=compiled.num_stages,
        code_bytes=_code_bytes(compiled.asm),
        occupancy=hardware.occupancy(compiled.arch, facts["vgpr_count"], compiled.lds, compiled.num_warps),
        asm=compiled.asm,
        sources=compiled.sources,
    )


def _code_bytes(asm: str) -> int:
    """Of the kernel and the functions that it calls, as the compiler's comments say.

    Raises:
        ValueError: they do not.
    """
    found = re.findall(r"; codeLenInByte = (\d+)", asm)
    if not found:
        raise ValueError("the assembly text does not say how long its code is")
    return sum(map(int, found))
