"""What to try of an instruction of the tables: registers, constants, modifiers, parts of registers, other lanes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from one_instruction import signature

from gfxlab.simulator.core.values import NARROW, WIDE
from gfxlab.simulator.instructions import Target
from gfxlab.simulator.instructions.common import Op

RESULT, MASK = 10, 20  # the result's register, and the scalar registers of a source that is a mask
PARTS = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8)}
PARTS |= {"WORD_0": (0, 16), "WORD_1": (16, 16), "DWORD": (0, 32)}


@dataclass(frozen=True)
class Source:
    """One source: file "v", "s", "mask" or "constant"; what stands before and behind it, and which part is meant."""

    kind: str
    file: str
    register: int = 0
    constant: int | float = 0
    literal: bool = False
    negate: bool = False
    absolute: bool = False
    high: bool = False
    part: str = ""
    extend: bool = False

    def text(self, target: Target) -> str:
        name = self._name(target)
        name = f"|{name}|" if self.absolute else name
        return f"sext({name})" if self.extend else f"-{name}" if self.negate else name

    def _name(self, target: Target) -> str:
        if self.file == "constant":
            return hex(self.constant) if self.literal else str(self.constant)
        if self.file == "mask":
            return "vcc" if target.cdna else "vcc_lo"
        if self.kind in WIDE:
            return f"{self.file}[{self.register}:{self.register + 1}]"
        half = "" if target.cdna or self.kind not in NARROW or self.file == "s" else ".h" if self.high else ".l"
        return f"{self.file}{self.register}{half}"


@dataclass(frozen=True)
class Trial:
    """A text and what it means. parts: the result's part and whether the rest stays (SDWA). dpp: the lane it reads."""

    name: str
    label: str
    sources: tuple[Source, ...]
    op: Op
    suffix: str = ""
    tail: str = ""
    clamp: bool = False
    factor: float = 1.0
    high: bool = False
    part: tuple[str, bool] | None = None
    dpp: str = ""
    text: str = field(default="", compare=False)

    @property
    def results(self) -> tuple[str, ...]:
        return self.op.results

    def written(self, target: Target) -> str:
        """The text as the assembler may print it otherwise."""
        outputs = [self._output(kind, target) for kind in self.results]
        if self.name.startswith("v_cmpx") and not target.cdna:
            outputs = []
        inputs = [source.text(target) for source in self.sources]
        return f"{self.name}{self.suffix} {', '.join(outputs + inputs)} {self.tail}".rstrip()

    def _output(self, kind: str, target: Target) -> str:
        if kind == "mask":
            return "vcc" if target.cdna else "vcc_lo"
        if kind in WIDE:
            return f"v[{RESULT}:{RESULT + 1}]"
        half = "" if target.cdna or kind not in NARROW else ".h" if self.high else ".l"
        return f"v{RESULT}{half}"


def of_vector(name: str, op: Op, floats: list[bool], target: Target, chance: random.Random) -> Iterator[Trial]:
    """Trials of one entry of the vector table. floats: which sources take a sign's modifiers."""
    kinds = signature(op)
    plain = tuple(
        Source(kind, "mask" if kind == "mask" else "v", MASK if kind == "mask" else 2 + 2 * i)
        for i, kind in enumerate(kinds)
    )
    literal = {"fmaak": 2, "madak": 2, "fmamk": 1, "madmk": 1}.get(name.split("_")[1])
    if literal is not None:
        plain = _with(
            plain, literal, file="constant", constant=0x3E01 if kinds[0] == "f16" else 0x3FC01234, literal=True
        )
    first = Trial(name, "registers", plain, op)
    yield first
    for i, kind in enumerate(kinds):
        if kind == "mask" or i == literal:
            continue
        yield from _operands(first, i, chance)
        if floats[i]:
            yield replace(first, label="neg", sources=_with(plain, i, negate=True))
            yield replace(first, label="abs", sources=_with(plain, i, absolute=True))
            yield replace(first, label="neg abs", sources=_with(plain, i, absolute=True, negate=True))
        if kind in NARROW:
            yield _half_of_source(first, i, target)
    yield from _results(first, target)
    if not any(kind in WIDE for kind in (*kinds, *op.results)) and literal is None:
        yield from _lanes(first, target, chance)
        if target.cdna:
            yield from _parts(first, floats, chance)


def _with(sources: tuple[Source, ...], place: int, **changes) -> tuple[Source, ...]:
    return (*sources[:place], replace(sources[place], **changes), *sources[place + 1 :])


def _operands(first: Trial, i: int, chance: random.Random) -> Iterator[Trial]:
    kind = first.sources[i].kind
    yield replace(first, label="scalar register", sources=_with(first.sources, i, file="s", register=4))
    for number in chance.sample([0, 1, 64, -1, -16], 2):
        yield replace(first, label="inline integer", sources=_with(first.sources, i, file="constant", constant=number))
    if kind not in ("u16", "i16"):  # the assembler has none for these
        for number in chance.sample([0.5, -4.0, 1.0], 2):
            yield replace(
                first, label="inline float", sources=_with(first.sources, i, file="constant", constant=number)
            )
    number = 0x4490 if kind in NARROW else chance.choice([0x3F9D70A4, 0xF0123456])
    sources = _with(first.sources, i, file="constant", constant=number, literal=True)
    yield replace(first, label="literal", sources=sources)


def _half_of_source(first: Trial, i: int, target: Target) -> Trial:
    sources = _with(first.sources, i, high=True)
    chosen = ",".join("1" if place == i else "0" for place in range(len(sources) + 1))
    return replace(first, label="high half", sources=sources, tail=f"op_sel:[{chosen}]" if target.cdna else "")


def _results(first: Trial, target: Target) -> Iterator[Trial]:
    kind = first.results[0]
    if kind in NARROW:
        chosen = "0," * len(first.sources) + "1"
        yield replace(first, label="high half", high=True, tail=f"op_sel:[{chosen}]" if target.cdna else "")
    if kind in ("f16", "f32", "f64"):
        yield replace(first, label="clamp", clamp=True, tail="clamp")
        yield replace(first, label="omod", factor=2.0, tail="mul:2")
        yield replace(first, label="omod", factor=0.5, tail="div:2")
        yield replace(first, label="omod and clamp", factor=4.0, clamp=True, tail="clamp mul:4")


def _lanes(first: Trial, target: Target, chance: random.Random) -> Iterator[Trial]:
    controls = ["quad_perm:[1,3,0,2]", "row_shl:3", "row_shr:5", "row_ror:4", "row_mirror", "row_half_mirror"]
    controls += ["row_newbcast:5"] if target.cdna else ["row_share:5", "row_xmask:6"]
    for control in chance.sample(controls, 2):
        bound = chance.choice(["", " bound_ctrl:1"])
        tail = f"{control} row_mask:0xf bank_mask:0xf{bound}"
        yield replace(first, label="DPP", suffix="_dpp", tail=tail, dpp=control + bound)


def _parts(first: Trial, floats: list[bool], chance: random.Random) -> Iterator[Trial]:
    for trial in range(4):
        sources, tail = [], ""
        for place, source in enumerate(first.sources):
            if source.kind != "mask":
                part = chance.choice([*PARTS])
                extend, negate = trial == 3 and not any(floats), trial == 3 and floats[place]
                source = replace(source, part=part, extend=extend, negate=negate)
                tail += f" src{place}_sel:{part}"
            sources.append(source)
        result = None
        if first.results[0] != "mask":
            result = chance.choice([*PARTS]), chance.random() < 0.5
            result = (result[0], result[1] and result[0] != "DWORD")
            unused = "UNUSED_PRESERVE" if result[1] else "UNUSED_PAD"
            tail = f"dst_sel:{result[0]} dst_unused:{unused}{tail}"
        yield replace(first, label="SDWA", suffix="_sdwa", tail=tail.strip(), sources=tuple(sources), part=result)
