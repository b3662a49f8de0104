"""Loads and stores as pieces of a picture: runs of elements in a row that one program touches."""

from __future__ import annotations

import numpy as np

from gfxlab.draw.program_maps import Piece
from gfxlab.engine.hooks import Access
from gfxlab.programs import format_program
from gfxlab.strides import Layout


def pieces_of(accesses: list[Access], layout: Layout, grid: tuple[int, int, int]) -> list[Piece]:
    """What each program touches of a tensor, and where its masked lanes point to as far as that lies outside."""
    by_program: dict[tuple[int, int, int], list[Access]] = {}
    for access in accesses:
        by_program.setdefault(access.program, []).append(access)
    pieces: list[Piece] = []
    for program, own in by_program.items():
        name = format_program(program, grid)
        active = np.unique(np.concatenate([a.elements[a.mask] for a in own]))
        pieces += _runs(name, *layout.place(active), masked=False)
        pieces += _masked_runs(name, own, layout)
    return pieces


def _masked_runs(name: str, accesses: list[Access], layout: Layout) -> list[Piece]:
    """Where masked lanes point to, as far as that lies outside the tensor."""
    places: set[tuple[int, int]] = set()
    for access in accesses:
        if access.lanes is None or access.mask.all():
            continue
        rows, columns = _lane_places(access.lanes, layout)
        n_rows, n_columns = (1, *layout.shape)[-2:]
        outside = ~access.mask & ((rows < 0) | (rows >= n_rows) | (columns < 0) | (columns >= n_columns))
        places.update(zip(rows[outside].tolist(), columns[outside].tolist()))
    if not places:
        return []
    rows, columns = np.array(sorted(places)).T
    return _runs(name, rows, columns, masked=True)


def _lane_places(lanes: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every lane, where lanes past a row's end stay in that row instead of entering the next."""
    lines = lanes.reshape(-1, lanes.shape[-1]) if lanes.ndim else lanes.reshape(1, 1)
    if len(layout.shape) == 1 or layout.swapped:
        rows, columns = layout.place(lines)
    else:
        rows, first = layout.place(lines[:, :1])
        columns = first + (lines - lines[:, :1])
        rows = np.broadcast_to(rows, lines.shape)
    return rows.reshape(lanes.shape), columns.reshape(lanes.shape)


def _runs(program: str, rows: np.ndarray, columns: np.ndarray, masked: bool) -> list[Piece]:
    """Consecutive columns of a row as one piece."""
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    if not rows.size:
        return []
    starts = np.flatnonzero(np.r_[True, (np.diff(rows) != 0) | (np.diff(columns) != 1)])
    ends = np.r_[starts[1:], rows.size] - 1
    return [
        Piece(program, int(columns[a]), int(columns[b]) + 1, int(rows[a]), int(rows[a]) + 1, masked)
        for a, b in zip(starts, ends)
    ]
