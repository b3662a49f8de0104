"""Read the machine code that the compiler prints: instructions, their source lines, their class, their width.

Works on the text of `compiled.asm["amdgcn"]` for CDNA (gfx9) and RDNA (gfx11, gfx12).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath


@dataclass(frozen=True)
class SourceLine:
    """A line of the kernel's file; `line` is 0 where the compiler names none."""

    filename: str
    line: int


@dataclass(frozen=True)
class Instruction:
    """One instruction: its mnemonic without encoding suffix, operands, class, and the source line it was made for.

    bits: what each lane moves, for a memory instruction; else 0. spill: it saves or restores a spilled register.
    """

    mnemonic: str
    operands: str
    kind: str
    source: SourceLine | None
    bits: int = 0
    spill: bool = False

    @property
    def text(self) -> str:
        return f"{self.mnemonic} {self.operands}".rstrip()


@dataclass
class Program:
    """The instructions of a kernel and of the functions that it calls, in the order of the code.

    labels: an instruction's index to its labels; a function's name is one.
    """

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[int, list[str]] = field(default_factory=dict)


# ---- classes ---------------------------------------------------------------------------------------------------------

# In this order: the first pattern that fits decides.
_KINDS: tuple[tuple[str, str], ...] = (
    ("matrix", r"v_(mfma|smfmac|wmma|swmmac)_"),
    ("scratch", r"scratch_"),
    ("global store", r"(global|buffer|flat)_store_"),
    ("atomic", r"(global|buffer|flat)_atomic_"),
    ("cache", r"(global|buffer)_(gl0_inv|gl1_inv|inv|wb|wbinv|wbl2|wbinvl1)"),
    ("global load", r"(global|buffer|flat)_load_"),
    ("cross-lane", r"ds_(swizzle|bpermute|permute)|v_(permlane|readlane|readfirstlane|writelane)|\w+_dpp$"),
    ("LDS", r"ds_"),
    ("scalar load", r"s_(buffer_)?load_"),
    ("barrier", r"s_barrier"),
    ("wait", r"s_wait|s_nop|s_delay_alu|s_sleep"),
    ("branch", r"s_(cbranch|branch|endpgm|setpc|swappc|call)"),
    (
        "transcendental",
        r"v_(pk_)?(exp|log|rcp|rsq|sqrt|sin|cos|tanh|s_\w+)_(legacy_)?(bf16|f16|f32|f64|iflag_f32)",
    ),
    ("register copy", r"v_(mov|accvgpr_read|accvgpr_write|accvgpr_mov|swap|dual_mov)_"),
    ("vector", r"v_"),
    ("scalar", r"s_"),
)
KINDS: tuple[str, ...] = (*(name for name, _ in _KINDS), "other")
_COMPILED_KINDS = tuple((name, re.compile(pattern)) for name, pattern in _KINDS)

TWO_AT_ONCE = re.compile(r"ds_(read2|write2|load_2addr|store_2addr)")
_WIDTHS = (
    (re.compile(r"dwordx(\d+)"), 32),
    (re.compile(r"dword"), 0),
    (re.compile(r"_(?:pk_add_(?:bf16|f16))"), 0),
    (re.compile(r"_x2$"), -64),
    (re.compile(r"_b(\d+)_tr_"), 1),
    (re.compile(r"_(?:b|u|i|f|bf)(\d+)$"), 1),
    (re.compile(r"_(?:b|u|i)(\d+)(?:_|$)"), 1),
    (re.compile(r"short"), -16),
    (re.compile(r"byte"), -8),
)


def width(mnemonic: str) -> int:
    """Bits that each lane moves with a memory instruction, or 0 when the mnemonic does not say."""
    times = 2 if TWO_AT_ONCE.match(mnemonic) else 1
    for pattern, unit in _WIDTHS:
        if found := pattern.search(mnemonic):
            return times * (unit * int(found[1]) if unit > 0 else -unit or 32)
    return 0


def kind_of(mnemonic: str) -> str:
    """The class of an instruction, one of `KINDS`."""
    for name, pattern in _COMPILED_KINDS:
        if pattern.match(mnemonic):
            return name
    return "other"


# ---- text ------------------------------------------------------------------------------------------------------------

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+\d+[^;]*(?:;\s*(.*))?")
_PLACE = re.compile(r"([^\s\[\]@]+):(\d+):\d+")
_LABEL = re.compile(r"(\.LBB\w+):|\s*([A-Za-z_]\w*)\s*:")
_FUNCTION = re.compile(r"\s*\.type\s+(\S+),@function")
_NAME = re.compile(r"([^\s:;]+):")
_REMARK = re.compile(r"/\*.*?\*/|//.*")  # in assembly that the kernel's author wrote
_CODE = re.compile(r"\s*([a-z]\w+)\s*([^;]*?)\s*(?:;\s*(.*))?$")
_ENCODING = re.compile(r"_(e32|e64|sdwa)$")
_LIBRARY = re.compile(r"[/\\]triton[/\\](language|experimental|tools)\b")


class _Files:
    """The files that `.file` lines name, and which of them belong to Triton rather than to the author."""

    def __init__(self) -> None:
        self.by_number: dict[int, str] = {}
        self.by_name: dict[str, str] = {}

    def add(self, number: int, folder: str, name: str | None) -> None:
        path = str(PurePath(folder) / name) if name else folder
        self.by_number[number] = path
        self.by_name.setdefault(PurePath(path).name, path)

    def source(self, number: int, line: int, comment: str | None) -> SourceLine | None:
        """The author's line: for an instruction of an inlined library function, the line that called it."""
        places = [(self.by_name.get(name, name), int(at)) for name, at in _PLACE.findall(comment or "")]
        places = [(self.by_number.get(number, ""), line), *places[1:]]
        for path, at in places:
            if at and not _LIBRARY.search(path):
                return SourceLine(path, at)
        return None


def _code_lines(asm: str) -> Iterator[tuple[str, bool]]:
    """The lines of all functions, and whether a line is a function's name; nothing of what stands between them."""
    inside, functions = False, set()
    for line in asm.splitlines():
        if found := _FUNCTION.match(line):
            functions.add(found[1])
        elif line.startswith((".Lfunc_begin", ".Lfunc_end")):
            inside = line.startswith(".Lfunc_begin")
        elif (found := _NAME.match(line)) and found[1] in functions:
            yield line, True
        elif inside:
            yield line, False


def parse(asm: str) -> Program:
    """The instructions of a kernel's assembly text."""
    program, files, source, written = Program(), _Files(), None, False
    for line, is_name in _code_lines(asm):
        if "#ASMSTART" in line or "#ASMEND" in line:
            written = "#ASMSTART" in line
        line = _REMARK.sub("", line) if written else line
        if is_name:
            program.labels.setdefault(len(program.instructions), []).append(line.partition(":")[0])
        elif found := _FILE.match(line):
            files.add(int(found[1]), found[2], found[3])
        elif found := _LOC.match(line):
            source = files.source(int(found[1]), int(found[2]), found[3])
        elif found := _LABEL.match(line):
            program.labels.setdefault(len(program.instructions), []).append(found[1] or found[2])
        elif found := _CODE.match(line):
            program.instructions.append(_instruction(found[1], found[2], found[3] or "", source))
        elif written and (words := line.partition(";")[0].split()):  # a directive: no instruction that anybody knows
            program.instructions.append(_instruction(words[0], " ".join(words[1:]), "", source))
    return program


def _instruction(mnemonic: str, operands: str, comment: str, source: SourceLine | None) -> Instruction:
    mnemonic = _ENCODING.sub("", mnemonic)
    kind = kind_of(mnemonic)
    spill = "Folded" in comment and mnemonic != "s_clause"
    if spill and kind in _MEMORY:  # on gfx90a spills are buffer instructions, which look like the kernel's own accesses
        kind = "scratch"
    bits = width(mnemonic) if kind in _MEMORY else 0
    return Instruction(mnemonic, operands, kind, source, bits, spill)


_MEMORY = ("global load", "global store", "atomic", "LDS", "scratch", "scalar load")


# ---- counts ----------------------------------------------------------------------------------------------------------


def mix(instructions: Iterable[Instruction]) -> dict[str, int]:
    """How many instructions of each class, in the order of `KINDS`; classes that do not occur are left out."""
    counts = dict.fromkeys(KINDS, 0)
    for instruction in instructions:
        counts[instruction.kind] += 1
    return {kind: count for kind, count in counts.items() if count}


def widths(instructions: Iterable[Instruction], kind: str) -> dict[int, int]:
    """How many instructions of a memory class move how many bits a lane, widest first: {128: 2}."""
    counts: dict[int, int] = {}
    for instruction in instructions:
        if instruction.kind == kind:
            counts[instruction.bits] = counts.get(instruction.bits, 0) + 1
    return dict(sorted(counts.items(), reverse=True))


_MATRIX_SHAPE = re.compile(r"v_(\w+?)_(\w+?)_(\d+)x(\d+)x(\d+)_?(\w+)")


def matrix_shapes(instructions: Iterable[Instruction]) -> dict[str, int]:
    """How many matrix instructions of each shape: {"mfma 32x32x8 bf16 -> f32": 16}."""
    counts: dict[str, int] = {}
    for instruction in instructions:
        if instruction.kind == "matrix":
            name = matrix_shape(instruction.mnemonic)
            counts[name] = counts.get(name, 0) + 1
    return counts


def matrix_shape(mnemonic: str) -> str:
    """`mfma 32x32x8 bf16 -> f32` for `v_mfma_f32_32x32x8_bf16`."""
    found = _MATRIX_SHAPE.match(mnemonic)
    if not found:
        return mnemonic
    unit, result, m, n, k, operands = found.groups()
    return f"{unit} {m}x{n}x{k} {operands.removesuffix('_1k')} -> {result}"
