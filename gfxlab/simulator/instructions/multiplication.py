"""A matrix product as a step, and a block's products with what they have in common done once.

Compilers multiply tile by tile: the same registers are an operand of several products, and the sum of one is what the
next one adds to. Within a block an operand is turned into a tile once, and a sum goes from tile to tile, not through
the registers. Every product is still rounded by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gfxlab.simulator.core import values
from gfxlab.simulator.core.numbers import F32, F64, I32, I64, without_denormals
from gfxlab.simulator.core.operands import Operand
from gfxlab.simulator.core.program import Decoded, all_operands
from gfxlab.simulator.instructions.common import Step


@dataclass(eq=False)
class Tile:
    """An operand of a product. read: it as float64 [wave, k, row]; of equal registers and form it reads the same."""

    operand: Operand
    form: Hashable
    read: values.Reader


@dataclass(frozen=True)
class Signs:
    """What becomes of the addend's sign."""

    negate: bool = False
    absolute: bool = False

    def __call__(self, c):
        c = np.abs(c) if self.absolute else c
        return -c if self.negate else c


NO_SIGNS = Signs()


@dataclass(frozen=True)
class Shape:
    """A product of whole tiles m x k and k x m. layout: "mfma", "gfx11" or "gfx12", which of them lies where."""

    layout: str
    m: int
    k: int
    kinds: tuple[str, str]


@dataclass(eq=False)
class Multiplication:
    """The step D = A B + C of one product a wave, D and C in so many registers, of float32 or int32.

    view: [register, wave, lane] in the order of [wave, row, column], axes may be split. flushes: denormals of C and D
    count as 0. shape: what is multiplied, where no modifier changes A or B. before: whose D is this one's
    C. stays: D is the C of another, and nothing else wants it.
    """

    a: Tile
    b: Tile
    c: Operand
    result: Operand
    registers: int
    kind: type
    view: Callable[[np.ndarray], np.ndarray]
    clamp: bool = False
    signs: Signs = NO_SIGNS
    flushes: bool = False
    shape: Shape | None = None
    before: Multiplication | None = None
    stays: bool = False

    def __call__(self, w) -> None:
        a, b = self.a.read(w), self.b.read(w)
        product = np.matmul(a.swapaxes(1, 2), b, out=w.room_for_product((len(a), a.shape[2], b.shape[2])))
        total = (self._sum_of_integers if self.kind is I32 else self._sum)(w, product)
        if self.stays:
            w.tiles[self] = total
        else:
            self._write(w, total)

    def _sum(self, w, product: np.ndarray) -> np.ndarray:
        if self.before:
            total = w.tiles.pop(self.before)
            product += total
            np.copyto(total, product, casting="same_kind")  # numpy adds and rounds faster in two steps than in one
        else:
            c = self.signs(self._addend(w, product.shape))
            product += without_denormals(c) if self.flushes else c
            total = product.astype(F32)
        return without_denormals(total) if self.flushes else total

    def _sum_of_integers(self, w, product: np.ndarray) -> np.ndarray:
        c = w.tiles.pop(self.before) if self.before else self._addend(w, product.shape)
        if self.clamp:
            return np.clip(product + c, np.iinfo(I32).min, np.iinfo(I32).max).astype(I64).astype(I32)
        return product.astype(I64).astype(I32) + c

    def _addend(self, w, shape: tuple[int, ...]) -> np.ndarray:
        """C, or the constant that it is; float32 as float64, which is added without a detour."""
        wider = F64 if self.kind is F32 else I32
        if self.c.is_constant:
            return wider(self.c.value)
        return self.view(self._registers(w, self.c)).astype(wider, order="C").reshape(shape)

    def _registers(self, w, operand: Operand) -> np.ndarray:
        return (w.F if self.kind is F32 else w.I)[operand.index : operand.index + self.registers]

    def _write(self, w, total: np.ndarray) -> None:
        """In every lane of the live waves: matrix instructions ignore EXEC."""
        target = self.view(self._registers(w, self.result))
        live = True if w.live is None else w.live.reshape(-1, *[1] * (target.ndim - 1))
        np.copyto(target, total.reshape(target.shape), where=live)


def share(instructions: Iterable[Sequence[Decoded]], steps: Iterable[Step]) -> tuple[Step, ...]:
    """The steps of a block, which are executed from the first to the last; of each the instructions that it does."""
    common = _Common()
    return tuple(common.add(*one) for one in zip(instructions, steps, strict=True))


class _Common:
    """Walks along a block. A register that another instruction names is taken to be written by it."""

    def __init__(self) -> None:
        self._tiles: dict[tuple[int, int, Hashable], _Once] = {}
        self._sums: dict[int, Multiplication] = {}  # by the first register

    def add(self, instructions: Sequence[Decoded], step: Step) -> Step:
        """The step that stands for this one; earlier ones may still change."""
        if not isinstance(step, Multiplication):
            for instruction in instructions:
                self._forget(all_operands(instruction))
            return step
        step = replace(step, a=self._once(step.a), b=self._once(step.b), before=self._sum_for(step))
        if step.before:
            step.before.stays = True
        self._forget([step.result])
        self._forget([step.a.operand, step.b.operand, step.c], tiles=False)
        self._sums[step.result.index] = step
        return step

    def _once(self, tile: Tile) -> Tile:
        key = tile.operand.index, tile.operand.count, tile.form
        once = self._tiles.setdefault(key, _Once(tile.read))
        once.users += 1
        return replace(tile, read=once)

    def _sum_for(self, step: Multiplication) -> Multiplication | None:
        """Whose sum, in the registers where it stays, this step goes on with."""
        found = self._sums.get(step.result.index) if step.c.is_vector and step.c.index == step.result.index else None
        alike = found and (found.registers, found.kind, found.clamp) == (step.registers, step.kind, step.clamp)
        alike = alike and step.signs == NO_SIGNS and found.flushes == step.flushes
        read = any(_meet(one.operand, step.result.index, step.registers) for one in (step.a, step.b))
        return found if alike and not read and found.view == step.view else None

    def _forget(self, operands: Iterable[Operand], tiles: bool = True) -> None:
        for operand in filter(lambda one: one.is_vector, operands):
            if tiles:
                self._tiles = {key: one for key, one in self._tiles.items() if not _meet(operand, *key[:2])}
            self._sums = {i: one for i, one in self._sums.items() if not _meet(operand, i, one.registers)}


def _meet(operand: Operand, first: int, count: int) -> bool:
    return operand.index < first + count and first < operand.index + operand.count


class _Once:
    """A reader for several users, who come one after the other in every run of the block."""

    def __init__(self, read: values.Reader):
        self._read, self.users = read, 0

    def __call__(self, w) -> np.ndarray:
        if self.users == 1:
            return self._read(w)
        value, left = w.tiles.pop(self, None) or (self._read(w), self.users)
        if left > 1:
            w.tiles[self] = value, left - 1
        return value
