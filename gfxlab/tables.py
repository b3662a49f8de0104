"""Tables: rows of text that show as plain text, as HTML in a notebook, and as Markdown in a file.

table = Table([("x_ptr", "4,096"), ("y_ptr", "512")], head=("tensor", "bytes"), numbers=1)
print(table)          # columns lined up
table.html()          # <table>...</table>, for a card (see `style`)
table.markdown()      # | tensor | bytes | ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from gfxlab.units import unbroken


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of text, all equally long.

    head: the names of the columns; empty where they need none. numbers: so many of the last columns align right.
    marked: the rows that stand out, by their place from 0: behind `mark` in text, shaded in HTML; None for a table
    in which no row can stand out. links: where the text of a cell leads, in HTML.

    Raises:
        ValueError: a row is longer or shorter than the others.
    """

    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    numbers: int = 0
    marked: Iterable[int] | None = None
    mark: str = "*"
    links: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != self.columns:
                raise ValueError(f"a row of {len(row)} cells in a table of {self.columns} columns: {tuple(row)}")

    @property
    def columns(self) -> int:
        """How many there are, without that of the marks."""
        return len(self.head or next(iter(self.rows), ()))

    def text(self, indent: str = "") -> str:
        """Plain text, two blanks between columns, each line behind `indent`; empty when there is nothing to show."""
        lines = self._lines()
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))] if lines else []
        return "\n".join((indent + "  ".join(self._padded(line, widths))).rstrip() for line in lines)

    def html(self) -> str:
        """A `<table>` without a style of its own; the first cell of each row is its heading."""
        head = [self._html_row(self.head, ["th"] * self.columns)] if self.head else []
        tags = ["th", *["td"] * (self.columns - 1)]
        marked = set(self.marked or ())
        body = [self._html_row(row, tags, i in marked) for i, row in enumerate(self.rows)]
        return f"<table>{''.join([*head, *body])}</table>"

    def markdown(self) -> str:
        """A Markdown table, which needs a head: empty cells where there is none."""
        rule = ["---"] * (self.columns - self.numbers) + ["---:"] * self.numbers
        rows = (f"| {' | '.join(_markdown_cell(cell) for cell in row)} |" for row in self.rows)
        head = self.head or [""] * self.columns
        return "\n".join([f"| {' | '.join(map(_markdown_cell, head))} |", f"|{'|'.join(rule)}|", *rows])

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _lines(self) -> list[tuple[str, ...]]:
        lines = [tuple(self.head), *map(tuple, self.rows)] if self.head else [*map(tuple, self.rows)]
        if self.marked is None:
            return lines
        marked, first = set(self.marked), 1 if self.head else 0
        return [(self.mark if i - first in marked else "", *line) for i, line in enumerate(lines)]

    def _padded(self, line: tuple[str, ...], widths: list[int]) -> Iterable[str]:
        words = len(line) - self.numbers
        return (cell.ljust(w) if i < words else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths)))

    def _html_row(self, row: Sequence[str], tags: Sequence[str], marked: bool = False) -> str:
        places = range(self.columns)
        cells = (self._html_cell(tags[i], row[i], i >= self.columns - self.numbers) for i in places)
        kind = ' class="on"' if marked else ""
        return f"<tr{kind}>{''.join(cells)}</tr>"

    def _html_cell(self, tag: str, text: str, number: bool) -> str:
        inner = text.lstrip(" ")
        kind = ' class="n"' if number else ""
        shown = escape(unbroken(inner))
        if text in self.links:
            shown = f'<a href="{escape(self.links[text], quote=True)}">{shown}</a>'
        return f"<{tag}{kind}>{'&#160;' * (len(text) - len(inner))}{shown}</{tag}>"


def _markdown_cell(text: str) -> str:
    return text.replace("|", "\\|")
