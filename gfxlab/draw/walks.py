"""The walk of a matmul over its tiles: what programs that run at the same time load, and how much of it they share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from gfxlab import style
from gfxlab.draw import svg
from gfxlab.draw.frames import Frames
from gfxlab.draw.traced import Traced
from gfxlab.strides import Layout

_LEFT, _TOP, _GAP = 62, 44, 26
_OUTER, _INNER = 280.0, 130.0  # pixels of the longer side of C, and of the dimension K

_Tile = tuple[int, int, int, int]  # first row, end, first column, end


def tile_walk(
    launch: Traced,
    a: str = "a_ptr",
    b: str = "b_ptr",
    c: str = "c_ptr",
    *,
    at_once: int = 8,
    xcds: int = 1,
    xcd: int = 0,
) -> Frames:
    """Draw which tiles of A and B the programs of a matmul load, `at_once` programs a frame.

    Programs that run at the same time share an L2 cache: the fewer *different* tiles they load, the less comes from
    memory. With at_once=1 a frame is one program, and the numbers in the tiles are its steps along K.

        with trace() as launch:
            matmul(a, b)
        draw.tile_walk(launch, at_once=16).slider()

    Args:
        launch: a traced launch, `with trace() as launch:`.
        a, b, c: names of the kernel's arguments: A (M, K) and B (K, N), which it loads, and C (M, N), which it stores.
        at_once: how many programs run at the same time on one L2 cache.
        xcds: over how many dies programs are dealt out in turn (8 on an MI300X), each with an L2 cache of its own.
        xcd: the die to follow.

    Raises:
        ValueError: no such tensor, shapes that are not those of a product, or numbers out of range.
    """
    if at_once < 1 or not 0 <= xcd < xcds:
        raise ValueError(f"at_once must be 1 or more and 0 <= xcd < xcds; got {at_once}, xcd {xcd} of {xcds}")
    walk = _Walk.of(launch, a, b, c)
    mine = [program for program in walk.programs if program % xcds == xcd]
    if not mine:
        raise ValueError(f"{launch.name} has {len(walk.programs)} programs: none of them runs on die {xcd} of {xcds}")
    rounds = [mine[first : first + at_once] for first in range(0, len(mine), at_once)]
    pictures = tuple(walk.picture(rounds, number) for number in range(len(rounds)))
    different = sum(walk.different(programs) for programs in rounds)
    loads = sum(walk.loads(programs) for programs in rounds)
    where = f" on die {xcd} of {xcds}" if xcds > 1 else ""
    programs = "one program" if at_once == 1 else f"{at_once} programs"
    shared = f", {different:,} if a round shares them" if at_once > 1 else ""
    title = f"{launch.name}, {programs} at a time{where}: {loads:,} loads of tiles{shared}"
    return Frames(title, pictures, tuple(walk.warnings()))


@dataclass(frozen=True)
class _Matrix:
    """One matrix: how many rows and columns, the tiles of each program in order, and its place in the picture."""

    name: str
    rows: int
    columns: int
    tiles: dict[int, list[_Tile]]
    x: float
    y: float
    width: float
    height: float

    def box(self, tile: _Tile) -> tuple[float, float, float, float]:
        """x, y, width and height of a tile in the picture."""
        dx, dy = self.width / self.columns, self.height / self.rows
        row, end, column, stop = tile
        return self.x + column * dx, self.y + row * dy, (stop - column) * dx, (end - row) * dy

    def outline(self, canvas: svg.Canvas) -> None:
        canvas.outline(self.x, self.y, self.width, self.height, "o")
        canvas.text(self.x, self.y - 6, f"{self.name} ({self.rows} x {self.columns})", "sq")


@dataclass(frozen=True)
class _Walk:
    name: str
    a: _Matrix
    b: _Matrix
    c: _Matrix
    unwritten: int

    @classmethod
    def of(cls, launch: Traced, a: str, b: str, c: str) -> _Walk:
        m, k = _shape(launch, a)
        (inner, n), outer = _shape(launch, b), _shape(launch, c)
        if inner != k or outer != (m, n):
            raise ValueError(
                f"tile_walk draws a product (M, K) x (K, N) = (M, N); {a}, {b} and {c} are "
                f"{m} x {k}, {inner} x {n} and {outer[0]} x {outer[1]}"
            )
        width, height = (_OUTER * size / max(m, n) for size in (n, m))
        x, y = _LEFT + _INNER + _GAP, _TOP + _INNER + _GAP
        return cls(
            launch.name,
            _Matrix(a, m, k, _tiles(launch, a, "load"), _LEFT, y, _INNER, height),
            _Matrix(b, k, n, _tiles(launch, b, "load"), x, _TOP, width, _INNER),
            _Matrix(c, m, n, _tiles(launch, c, "store"), x, y, width, height),
            int((launch.times(c, "store") == 0).sum()),
        )

    @property
    def programs(self) -> list[int]:
        return sorted({*self.a.tiles, *self.b.tiles, *self.c.tiles})

    def loads(self, programs: list[int]) -> int:
        return sum(len(matrix.tiles.get(p, ())) for matrix in (self.a, self.b) for p in programs)

    def different(self, programs: list[int]) -> int:
        return sum(len({t for p in programs for t in matrix.tiles.get(p, ())}) for matrix in (self.a, self.b))

    def picture(self, rounds: list[list[int]], number: int) -> svg.Picture:
        programs = rounds[number]
        canvas = svg.Canvas()
        for matrix in (self.a, self.b):
            _draw_operand(canvas, matrix, programs)
        self._draw_result(canvas, [p for earlier in rounds[:number] for p in earlier], programs)
        facts = self._facts(programs)
        y = _TOP + 4
        for fact in facts:
            canvas.text(self.c.x + self.c.width + 16, y, fact, "b" if fact == facts[0] else "q")
            y += 17
        meaning = "loaded now, with its step along K" if len(programs) == 1 else "loaded now, by so many programs"
        entries = [
            (svg.colour(1), meaning),
            (svg.colour(0), f"{self.c.name}: computed now (the number is the program)"),
        ]
        canvas.legend(canvas.height + 8, entries)
        return canvas.picture(f"{self.name}: tiles of {facts[0]}", f"  {', '.join(facts)}")

    def _facts(self, programs: list[int]) -> list[str]:
        loads, different = self.loads(programs), self.different(programs)
        if len(programs) == 1:
            return [_numbers(programs), f"{loads} loads of tiles"]
        return [_numbers(programs), f"{loads} loads of tiles", f"{different} different tiles"]

    def warnings(self) -> list[str]:
        """What is wrong with the stores to C, in sentences."""
        owners = Counter(tile for tiles in self.c.tiles.values() for tile in set(tiles))
        twice = sum(count > 1 for count in owners.values())
        found = [f"tiles of {self.c.name} stored by more than one program: {twice}"] if twice else []
        return found + ([f"{self.unwritten:,} elements of {self.c.name} are never written"] if self.unwritten else [])

    def _draw_result(self, canvas: svg.Canvas, before: list[int], now: list[int]) -> None:
        """C, each tile with its program: those of this round strong, those of earlier rounds weak."""
        c = self.c
        known = {tile for tiles in c.tiles.values() for tile in tiles}
        canvas.region((c.box(tile) for tile in sorted(known)), "none", "not yet, or on another die", 0, rims=True)
        done = sorted({tile for p in before for tile in c.tiles.get(p, ())})
        canvas.region((c.box(tile) for tile in done), svg.colour(0), "done in an earlier round", 0.18)
        labels: dict[_Tile, list[str]] = {}
        for program, tiles in c.tiles.items():
            for tile in tiles:
                labels.setdefault(tile, []).append(str(program))
        running = {tile for p in now for tile in c.tiles.get(p, ())}
        for tile in sorted(running):
            canvas.box(*c.box(tile), svg.colour(0), f"program {', '.join(labels[tile])}: {_place(tile)}", 0.5)
        for tile, owners in labels.items():
            fill = style.BAD if len(owners) > 1 else ""
            if fill:
                canvas.box(*c.box(tile), fill, f"programs {', '.join(owners)}: {_place(tile)}", 0.35)
            _label(canvas, c.box(tile), "+".join(owners), "sc" if tile in running else "scq")
        c.outline(canvas)


def _draw_operand(canvas: svg.Canvas, matrix: _Matrix, programs: list[int]) -> None:
    """A or B: the tiles that these programs load, with how often or, for a single program, at which step."""
    everywhere = sorted({tile for tiles in matrix.tiles.values() for tile in tiles})
    canvas.region((matrix.box(tile) for tile in everywhere), "none", "not loaded now", 0, rims=True)
    loads = Counter(tile for p in programs for tile in matrix.tiles.get(p, ()))
    for step, (tile, count) in enumerate(loads.items()):
        alone = len(programs) == 1
        words = f"step {step}" if alone else f"loaded {count} time{'s' if count > 1 else ''}"
        canvas.box(
            *matrix.box(tile), svg.colour(1), f"{words}: {_place(tile)}", 0.25 + 0.25 * count / max(loads.values())
        )
        _label(canvas, matrix.box(tile), str(step) if alone else f"x{count}", "sc")
    matrix.outline(canvas)


def _label(canvas: svg.Canvas, box: tuple[float, float, float, float], words: str, kind: str) -> None:
    """The words in the middle of a box, if need be in smaller letters, or not at all."""
    x, y, width, height = box
    fits = (size for size in (10, 8) if height > size and width > svg.text_width(words, size) + 2)
    if size := next(fits, None):
        canvas.text(x + width / 2, y + height / 2 + 0.35 * size, words, kind, 0 if size == 10 else size)


def _shape(launch: Traced, name: str) -> tuple[int, int]:
    tensor = launch.tensor(name)
    if tensor.dim() != 2 or len(Layout.of(tensor).shape) != 2:
        raise ValueError(
            f"tile_walk needs matrices of two or more rows and columns, one of them contiguous; "
            f"{name} has the shape {tuple(tensor.shape)} and the strides {tensor.stride()}"
        )
    return tuple(tensor.shape)


def _tiles(launch: Traced, name: str, kind: str) -> dict[int, list[_Tile]]:
    """The tiles that each program loads or stores, in its order; programs are numbered as the hardware deals them."""
    layout, (width, height, _) = Layout.of(launch.tensor(name)), launch.grid
    found = {}
    for (x, y, z), accesses in launch.by_program(name, kind).items():
        found[x + width * (y + height * z)] = [_bounds(layout, access.elements[access.mask]) for access in accesses]
    return found


def _bounds(layout: Layout, elements: np.ndarray) -> _Tile:
    rows, columns = layout.place(elements)
    return int(rows.min()), int(rows.max()) + 1, int(columns.min()), int(columns.max()) + 1


def _place(tile: _Tile) -> str:
    row, end, column, stop = tile
    return f"rows {row} to {end - 1}, columns {column} to {stop - 1}"


def _numbers(programs: list[int]) -> str:
    """`program 3`, `programs 0 to 7`, `programs 0, 8, 16 and 24`."""
    if len(programs) == 1:
        return f"program {programs[0]}"
    if programs == list(range(programs[0], programs[-1] + 1)):
        return f"programs {programs[0]} to {programs[-1]}"
    return f"programs {', '.join(map(str, programs[:3]))}{' ...' if len(programs) > 4 else ''} and {programs[-1]}"
