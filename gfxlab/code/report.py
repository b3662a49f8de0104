"""What the AMD compiler made of a kernel, in figures that a kernel's author can act on.

The figures are read from the compiler's own output.  Instructions are counted as they stand in the code: one inside a
loop counts once, however often the loop runs.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from gfxlab import hardware, transport
from gfxlab.bound import Launch, Specialisation, bind, parameters, unwrap
from gfxlab.code import compiler, isa
from gfxlab.code import work as works
from gfxlab.engine import dual_mode

_UNITS = {"global load": "loads", "global store": "stores"}


@dataclass(frozen=True)
class AmdReport:
    """The machine code of one kernel for one architecture, measured.

    vgprs: vector registers a lane that the hardware sets aside, accumulators included; agprs: the accumulators among
    them (CDNA); sgprs: scalar registers. vgpr_spills, sgpr_spills: registers that did not fit. scratch: bytes of
    private memory a lane. lds: bytes a workgroup, of at most lds_limit. threads: in a workgroup.
    occupancy: waves per SIMD.
    loads, stores: global accesses, {bits per lane: how many}. matrix: {shape: how many}. mix: {class: how many}.
    code_bytes: size of the machine code. work: bytes and FLOPs of the whole launch, where its grid is known.
    """

    name: str
    arch: str
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch: int
    lds: int
    threads: int
    num_warps: int
    num_stages: int
    code_bytes: int
    occupancy: hardware.Occupancy
    asm: str = field(repr=False)
    sources: dict[str, dict[int, str]] = field(repr=False)
    work: works.Work | None = None

    @cached_property
    def program(self) -> isa.Program:
        return isa.parse(self.asm)

    @property
    def limits(self) -> hardware.Limits:
        return hardware.limits(self.arch)

    @property
    def lds_limit(self) -> int:
        return self.limits.lds_per_workgroup

    @property
    def spills(self) -> int:
        return self.vgpr_spills + self.sgpr_spills

    @property
    def instructions(self) -> int:
        return len(self.program.instructions)

    @cached_property
    def loads(self) -> dict[int, int]:
        return isa.widths(self.program.instructions, "global load")

    @cached_property
    def stores(self) -> dict[int, int]:
        return isa.widths(self.program.instructions, "global store")

    @cached_property
    def matrix(self) -> dict[str, int]:
        return isa.matrix_shapes(self.program.instructions)

    @cached_property
    def mix(self) -> dict[str, int]:
        return isa.mix(self.program.instructions)

    def rows(self) -> dict[str, str]:
        """The report as {what: value}, in words."""
        occupancy = self.occupancy
        registers = f"{self.vgprs} of {self.limits.vgprs_per_wave} VGPRs"
        if self.agprs:
            registers += f" ({self.agprs} of them accumulators)"
        rows = {
            "registers": f"{registers}, {self.sgprs} SGPRs",
            "spilled registers": f"{self.spills} ({self.scratch} bytes of private memory a lane)"
            if self.spills
            else "0",
            "LDS": f"{self.lds:,} of {self.lds_limit:,} bytes",
            "workgroup": f"{self.num_warps} waves x {self.limits.wave_size} lanes = {self.threads} threads",
            "waves per SIMD": f"{occupancy.waves:g} of {occupancy.most}, limited by {occupancy.limit}",
            "global loads": format_widths(self.loads),
            "global stores": format_widths(self.stores),
            "matrix": ", ".join(f"{count} x {shape}" for shape, count in self.matrix.items()) or "none",
            "instructions": f"{self.instructions} ({self.code_bytes:,} bytes)",
        }
        rows["of these"] = ", ".join(f"{count} {kind}" for kind, count in self.mix.items())
        return {**rows, **(self.work.rows() if self.work else {})}

    def listing(self, by: str = "line", only: str = ""):
        """The machine code beside the kernel's own lines, each instruction in plain words.

        Args:
            by: 'line' shows each source line once, with all that was made for it; 'address' keeps the code's order.
            only: leave out the source lines that do not contain this text, for example "tl.sum".

        Raises:
            ValueError: `by` is neither.
        """
        from gfxlab.code.listing import Listing

        return Listing.of(self, by, only)

    def __str__(self) -> str:
        rows = self.rows()
        wide = max(map(len, rows))
        return "\n".join([f"{self.name} on {self.arch}", *(f"  {key:{wide}}  {value}" for key, value in rows.items())])

    def as_json(self) -> dict[str, Any]:
        """Everything that `from_json` needs to make the same report in another process."""
        return {
            "name": self.name,
            "arch": self.arch,
            "asm": self.asm,
            "lds": self.lds,
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "sources": {name: [[line, text] for line, text in lines.items()] for name, lines in self.sources.items()},
            "work": asdict(self.work) if self.work else None,
        }

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
        from gfxlab.code import card

        return card.notes(self)

    def _repr_html_(self) -> str:
        from gfxlab.code import card

        return card.report(self)


def format_widths(widths: Mapping[int, int]) -> str:
    """`2 x 128-bit, 1 x 32-bit` for {128: 2, 32: 1}; `none` for an empty mapping."""
    return (
        ", ".join(f"{count} x {bits}-bit" if bits else f"{count} of unknown width" for bits, count in widths.items())
        or "none"
    )


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
    vgprs = _number(compiled.asm, r"\.vgpr_count:\s*(\d+)")
    return AmdReport(
        name=compiled.name,
        arch=compiled.arch,
        vgprs=vgprs,
        agprs=_number(compiled.asm, r"\.agpr_count:\s*(\d+)"),
        sgprs=_number(compiled.asm, r"\.sgpr_count:\s*(\d+)"),
        vgpr_spills=_number(compiled.asm, r"\.vgpr_spill_count:\s*(\d+)"),
        sgpr_spills=_number(compiled.asm, r"\.sgpr_spill_count:\s*(\d+)"),
        scratch=_number(compiled.asm, r"\.private_segment_fixed_size:\s*(\d+)"),
        lds=compiled.lds,
        threads=compiled.num_warps * hardware.limits(compiled.arch).wave_size,
        num_warps=compiled.num_warps,
        num_stages=compiled.num_stages,
        code_bytes=_number(compiled.asm, r"; codeLenInByte = (\d+)"),
        occupancy=hardware.occupancy(compiled.arch, vgprs, compiled.lds, compiled.num_warps),
        asm=compiled.asm,
        sources=compiled.sources,
    )


def _number(asm: str, pattern: str) -> int:
    found = re.search(pattern, asm)
    return int(found[1]) if found else 0
