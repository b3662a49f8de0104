"""The machine code beside the kernel's own lines, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import groupby

from gfxlab import style
from gfxlab.code import isa
from gfxlab.code.explanations import KIND_WORDS, explain
from gfxlab.code.figures import Figures

_COLOURS = {
    "global load": style.PALETTE[0],
    "global store": style.PALETTE[0],
    "atomic": style.PALETTE[0],
    "LDS": style.PALETTE[4],
    "matrix": style.PALETTE[2],
    "transcendental": style.PALETTE[3],
    "cross-lane": style.PALETTE[1],
    "scratch": style.PALETTE[5],
}
_CSS = (
    ".course-card table.listing{width:100%;table-layout:fixed}"
    ".course-card .src td{background:var(--c-soft);padding:.15em .6em}.course-card .src code{white-space:pre-wrap}"
    ".course-card .ins td{padding:0 .8em 0 1.2em}"
    ".course-card .ins td.m{border-left:4px solid var(--k,transparent);white-space:pre-wrap}"
)


@dataclass(frozen=True)
class Group:
    """A line of the kernel and instructions made for it."""

    source: isa.SourceLine | None
    text: str
    instructions: tuple[isa.Instruction, ...]


@dataclass(frozen=True)
class Listing:
    """Print it, or let a notebook show it. `groups` is the same as data."""

    title: str
    groups: tuple[Group, ...]
    labels: dict[int, tuple[str, ...]]  # id() of an instruction -> its labels

    @classmethod
    def of(cls, report: Figures, by: str, only: str = "") -> Listing:
        if by not in ("line", "address"):
            raise ValueError(f"by must be 'line' or 'address', got {by!r}")
        code = report.program.instructions
        ordered = sorted(code, key=_position) if by == "line" else code
        groups = tuple(
            Group(source, _source_text(report, source), tuple(run))
            for source, run in groupby(ordered, lambda i: i.source)
        )
        groups = tuple(group for group in groups if only in group.text)
        shown = sum(len(group.instructions) for group in groups)
        if not groups:
            raise ValueError(f"no line of {report.name} that made machine code contains {only!r}")
        labels = {id(code[i]): tuple(names) for i, names in report.program.labels.items() if i < len(code)}
        count = f"{shown} of {len(code)} instructions" if only else f"{len(code)} instructions"
        return cls(f"{report.name} on {report.arch}: {count}", groups, labels)

    def __str__(self) -> str:
        return "\n".join([self.title, *self._lines()])

    __repr__ = __str__  # stored in notebooks: no file names of this machine

    def _lines(self) -> Iterator[str]:
        for group in self.groups:
            yield f"{_heading(group)}"
            for instruction in group.instructions:
                for label in self.labels.get(id(instruction), ()):
                    yield f"      {label}:"
                yield f"        {instruction.text:<52}  {explain(instruction)}".rstrip()

    def _repr_html_(self) -> str:
        rows = []
        for group in self.groups:
            rows.append(f'<tr class="src"><td colspan="2"><code>{escape(_heading(group))}</code></td></tr>')
            rows += [self._row(instruction) for instruction in group.instructions]
        return style.card(self.title, f'<table class="listing">{"".join(rows)}</table>', _CSS)

    def _row(self, instruction: isa.Instruction) -> str:
        colour = f' style="--k:{_COLOURS[instruction.kind]}"' if instruction.kind in _COLOURS else ""
        hint = escape(f"{instruction.kind}: {KIND_WORDS[instruction.kind]}")
        labels = self.labels.get(id(instruction), ())
        marks = "".join(f'<tr class="ins"><td class="m q" colspan="2">{escape(label)}:</td></tr>' for label in labels)
        return (
            f'{marks}<tr class="ins" title="{hint}"><td class="m"{colour}>{escape(instruction.text)}</td>'
            f'<td class="q">{escape(explain(instruction))}</td></tr>'
        )


def _position(instruction: isa.Instruction) -> tuple[bool, str, int]:
    source = instruction.source
    return (False, source.filename, source.line) if source else (True, "", 0)


def _source_text(report: Figures, source: isa.SourceLine | None) -> str:
    return report.sources.get(source.filename, {}).get(source.line, "") if source else ""


def _heading(group: Group) -> str:
    if group.source is None:
        return "   -  (the compiler names no line)"
    return f"{group.source.line:4}  {group.text}"
