"""The table at the end of a test run: what each kernel became on each AMD architecture that it was compiled for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kernel_testing import AMD_COMPUTE_UNITS

TITLE = "AMD machine code"
LEGEND = "The most of all shapes: VGPRs/AGPRs, KiB of LDS, spills, bits of the widest load, matrix instruction"
LOADS = {128: "dwordx4|b128", 96: "dwordx3|b96", 64: "dwordx2|b64", 32: "dword|b32"}
MATRIX = re.compile(r"\bv_(mfma|wmma)_f32_")
CELL = 23  # characters


def fact(listing: str, name: str) -> int:
    """A number of the listing's metadata."""
    return int(re.search(rf"\.{name}:\s*(\d+)", listing)[1])


def row(arch: str, kernel: str, compiled) -> list[Any]:
    """Kernel, architecture, and the numbers of the legend: plain values, so that xdist can send them."""
    code = compiled.asm["amdgcn"]
    vgprs, spills = fact(code, "vgpr_count"), fact(code, "vgpr_spill_count")
    agprs = fact(code, "agpr_count") if ".agpr_count" in code else 0  # Radeon has none
    widths = [bits for bits, names in LOADS.items() if re.search(rf"(?:global|buffer)_load_(?:{names})\b", code)]
    matrix = MATRIX.search(code)
    numbers = vgprs, agprs, compiled.metadata.shared, spills, max(widths, default=0)
    return [kernel, arch, *numbers, matrix[1] if matrix else "-"]


def lines(rows: Iterable[list[Any]]) -> list[str]:
    """The table: a line for each kernel, a column for each architecture."""
    most: dict[tuple[str, str], list[Any]] = {}
    for kernel, arch, *numbers in rows:
        most[kernel, arch] = [max(pair) for pair in zip(numbers, most.get((kernel, arch), numbers))]
    names = sorted({kernel for kernel, _ in most})
    width = max(map(len, names))
    table = [f"{'':{width}}  " + "".join(f"{arch:{CELL}}" for arch in AMD_COMPUTE_UNITS)]
    for name in names:
        cells = (_cell(*most[name, arch]) if (name, arch) in most else "" for arch in AMD_COMPUTE_UNITS)
        table.append(f"{name:{width}}  " + "".join(f"{cell:{CELL}}" for cell in cells))
    return [LEGEND, *(line.rstrip() for line in table)]


def _cell(vgprs: int, agprs: int, lds: int, spills: int, bits: int, matrix: str) -> str:
    return f"{vgprs:3}/{agprs:<3} {lds / 1024:3.0f} {spills} {bits:3} {matrix}"
