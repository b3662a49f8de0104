"""The figures of a kernel's machine code: registers, LDS, memory accesses, instructions; as data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from gfxlab import hardware
from gfxlab.code import isa
from gfxlab.code import work as works

_UNITS = {"global load": "loads", "global store": "stores"}


@dataclass(frozen=True)
class Figures:
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


def format_widths(widths: Mapping[int, int]) -> str:
    """`2 x 128-bit, 1 x 32-bit` for {128: 2, 32: 1}; `none` for an empty mapping."""
    return (
        ", ".join(f"{count} x {bits}-bit" if bits else f"{count} of unknown width" for bits, count in widths.items())
        or "none"
    )
