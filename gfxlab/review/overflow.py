"""Offsets that overflow at sizes nobody can allocate here: ranges of integers, followed through Triton's IR.

The kernel is compiled anew for the sizes given. Every 32-bit integer gets the range that it can have, from the grid,
the arguments and the loops; a sum or a product that leaves 32 bits and reaches a pointer or a mask is a finding.  The
grid grows with the sizes: an axis whose programs take BLOCK elements each and compare them with an argument N has
cdiv(N, BLOCK) programs for the new N; where nothing is compared, an axis that was cdiv(N, a constant) stays that.
"""

from __future__ import annotations

import itertools
import linecache
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

import torch

from gfxlab.bound import Launch
from gfxlab.engine import dual_mode
from gfxlab.review.findings import Finding

AXES = ("grid_x", "grid_y", "grid_z")  # programs on an axis, beside the kernel's own parameters
_LOW, _HIGH = -(1 << 31), (1 << 31) - 1
_LINE = re.compile(r"\s*(?:(%\S+?)(?::\d+)? = )?\"?([\w.]+)\"?(.*)")
_NAME = re.compile(r"%[\w#]+")
_ARGUMENT = re.compile(r"(%\w+): ([^,()]*?(?:<[^>]*>)?)\s*(?:\{[^}]*\})? loc\((#\w+|\"\w+\"[^)]*\)?)\)")
_PLACE = re.compile(r"(#loc\d*) = loc\(\"([^\"]*)\":(\d+):\d+\)")
_NAMED = re.compile(r"(#loc\d*) = loc\(\"([^\"]*)\"\((#loc\d*)\)\)")
_CALLED = re.compile(r"(#loc\d*) = loc\(callsite\((#loc\d*) at (#loc\d*)\)\)")
_USED = re.compile(r"loc\((#loc\d*)\)\s*$")


@dataclass(frozen=True)
class Range:
    """Whole numbers from `low` to `high`."""

    low: int
    high: int

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def of_launch(launch: Launch, sizes: Mapping[str, int], arch: str) -> Iterator[Finding]:
    """Findings for a launch at other sizes, by the kernel's parameters."""
    tables = {name: arg for name, arg in launch.args.items() if isinstance(arg, torch.Tensor)}
    wanted = {name: size for name, size in sizes.items() if name in launch.args and name not in tables}
    axes = {name: size for name, size in sizes.items() if name in AXES}
    read = {name: (0, sizes[name]) if name in sizes else _ends(arg) for name, arg in tables.items()}
    if not sizes.keys() & {*launch.args, *AXES}:
        return
    args = {**launch.args, **wanted}
    keywords = {**launch.keywords, **wanted} if not launch.positional else {**args, **launch.meta}
    spec = dual_mode.specialise(launch.kernel, (), keywords, arch)
    text = dual_mode.compile(launch.kernel, spec, arch).asm["ttir"]
    grid = tuple(axes.get(name, size) for name, size in zip(AXES, scaled(launch, wanted, text)))
    numbers = {name: value for name, value in args.items() if isinstance(value, int) and not isinstance(value, bool)}
    at = ", ".join(f"{name}={size:,}" for name, size in sizes.items() if name in {*launch.args, *AXES})
    for found in overflows(text, grid, numbers, {name: ends for name, ends in read.items() if ends}):
        what = "a number of this line" if found.line else f"`{found.words}`"
        evidence = f"At {at} {what} reaches {found.reached:,}; 32 bits hold {_HIGH:,}."
        yield Finding("overflow", launch.name, evidence, found.file, found.line)


def _ends(table: torch.Tensor) -> tuple[int, int] | None:
    """The least and the largest whole number of a tensor; None for others."""
    if table.is_floating_point() or table.is_complex() or table.dtype == torch.bool or not table.numel():
        return None
    return int(table.min()), int(table.max())


def scaled(launch: Launch, wanted: Mapping[str, int], text: str) -> tuple[int, int, int]:
    """The grid at other sizes. text: the kernel in TTIR, whose comparisons say which argument bounds which axis."""
    bounds = _bounds(text)
    return tuple(_scaled_axis(launch, wanted, number, bounds.get(number, {})) for number in range(3))


def _scaled_axis(launch: Launch, wanted: Mapping[str, int], number: int, bounds: Mapping[tuple[str, ...], int]) -> int:
    axis = launch.grid[number]
    sizes = {name: old for name, old in launch.args.items() if type(old) is int and old > 0}
    new = {**sizes, **wanted}
    bounding = {
        names: step
        for names, step in bounds.items()
        if all(name in sizes for name in names) and -(-prod(sizes[name] for name in names) // step) == axis
    }
    if bounding:
        return max(axis, *(-(-prod(new[name] for name in names) // step) for names, step in bounding.items()))
    if axis == 1:
        return axis
    constants = {1, *(size for size in sizes.values() if size > 1)}
    constants |= {a * b for a in constants for b in constants if a * b < 1 << 20}
    grown = [axis]
    for name in wanted.keys() & sizes.keys():
        steps = [c for c in constants if -(-sizes[name] // c) == axis and c != sizes[name]]
        grown += [-(-wanted[name] // max(steps))] if steps else []
    if grown == [axis]:
        grown += _products(axis, sizes, wanted, constants)
    return max(grown)


def _products(axis: int, sizes: Mapping[str, int], wanted: Mapping[str, int], constants: set[int]) -> Iterator[int]:
    """An axis of cdiv(M, a) * cdiv(N, b) programs at the new sizes."""
    for first, second in itertools.combinations(sizes, 2):
        if {first, second} & wanted.keys():
            for a, b in itertools.product(constants - {1}, repeat=2):
                if -(-sizes[first] // a) * -(-sizes[second] // b) == axis:
                    yield -(-wanted.get(first, sizes[first]) // a) * -(-wanted.get(second, sizes[second]) // b)


def _bounds(text: str) -> dict[int, dict[tuple[str, ...], int]]:
    """Of each axis: arguments whose product its programs' elements are compared with, and how many a program takes."""
    walk = _Walk(text, (1, 1, 1), {})
    found: dict[int, dict[tuple[str, ...], int]] = {}
    for pair in walk.compared:
        for one, other in (pair, pair[::-1]):
            below, bounding = walk.below([one]), walk.below([other])
            axes = {walk.programs[name] for name in below & walk.programs.keys()}
            names = bounding & walk.arguments
            product = len(names) == 1 or bounding - names <= walk.products
            if len(axes) == 1 and names and product and not bounding & walk.programs.keys():
                step = max([1, *(walk.steps[name] for name in below & walk.steps.keys())])
                found.setdefault(axes.pop(), {})[tuple(sorted(name[1:] for name in names))] = step
    return found


# ---- the ranges of Triton's IR ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overflow:
    """An operation on 32-bit integers whose result needs more bits, and reaches a pointer or a mask."""

    words: str
    reached: int
    file: str
    line: int


def overflows(
    text: str,
    grid: tuple[int, int, int],
    numbers: Mapping[str, int],
    read: Mapping[str, tuple[int, int]] | None = None,
) -> list[Overflow]:
    """Every operation of TTIR that overflows, the first on each line, in their order.

    read: what the elements of tensors lie between, by the parameters that point to them.
    """
    walk = _Walk(text, grid, numbers, read or {})
    counts = walk.that_count()
    found: dict[tuple[str, int], Overflow] = {}
    for name, (words, reached, place) in walk.too_large.items():
        if name in counts:
            file, line = place
            found.setdefault((file, line), Overflow(words, reached, file, line))
    return list(found.values())


class _Walk:
    """One pass over the operations; loops are entered once with the range of their counter."""

    def __init__(
        self,
        text: str,
        grid: tuple[int, int, int],
        numbers: Mapping[str, int],
        read: Mapping[str, tuple[int, int]] = MappingProxyType({}),
    ):
        self._read = read
        self.ranges: dict[str, Range] = {}
        self.uses: dict[str, list[str]] = {}  # a result: what it is made of
        self.offsets: list[str] = []  # what is added to pointers
        self.too_large: dict[str, tuple[str, int, tuple[str, int]]] = {}
        self.arguments: set[str] = set()
        self.programs: dict[str, int] = {}  # a program's number: on which axis
        self.steps: dict[str, int] = {}  # a program's number times a constant: the constant
        self.products: set[str] = set()
        self.compared: list[tuple[str, str]] = []
        self._grid = grid
        self._places = {key: (file, int(line)) for key, file, line in _PLACE.findall(text)}
        for key, _, inner in _NAMED.findall(text):
            self._places[key] = self._places.get(inner, ("", 0))
        for key, _, caller in _CALLED.findall(text):  # of a function of Triton's: the line of the kernel that calls it
            self._places[key] = self._places.get(caller, ("", 0))
        self._bodies = _bodies(text)
        for line in text.splitlines():
            if "tt.func" in line:
                self._function(line, numbers)
            elif found := _LINE.match(line):
                self._operation(*found.groups(), line)

    def _function(self, line: str, numbers: Mapping[str, int]) -> None:
        for name in re.findall(r"(%\w+):", line):
            self.arguments.add(name)
            if name[1:] in numbers:
                self.ranges[name] = Range(numbers[name[1:]], numbers[name[1:]])

    def _place(self, line: str) -> tuple[str, int]:
        found = _USED.search(line)
        return self._places.get(found[1], ("", 0)) if found else ("", 0)

    def _operation(self, result: str | None, op: str, rest: str, line: str) -> None:
        if op == "scf.for":
            self._loop(line)
            return
        if result is None:
            return
        operands = _NAME.findall(rest.split(" : ")[0].split("loc(")[0])
        self.uses[result] = operands
        if op == "tt.addptr" and len(operands) > 1:
            self.offsets.append(operands[1])
        if op in ("arith.muli", "tt.splat", "arith.extsi"):
            self.products.add(result)
        if op == "arith.cmpi" and len(operands) == 2:
            self.compared.append((operands[0], operands[1]))
        if op == "arith.muli" and len(operands) == 2:
            self._step(result, *operands)
        made = self._made(result, op, operands, rest)
        if made is None:
            return
        narrow = re.search(r"[<x ]i32[> ]|: i32", rest.split("loc(")[0]) and op in (
            "arith.addi",
            "arith.muli",
            "arith.subi",
        )
        if narrow and (made.low < _LOW or made.high > _HIGH):
            reached = made.high if made.high > _HIGH else made.low
            if all(name not in self.too_large for name in self.below(operands)):
                self.too_large[result] = (self._words(line), reached, self._place(line))
            made = Range(*(min(max(end, _LOW), _HIGH) for end in (made.low, made.high)))
        self.ranges[result] = made

    def _step(self, result: str, first: str, second: str) -> None:
        for program, constant in ((first, second), (second, first)):
            size = self.ranges.get(constant)
            if program in self.programs and size and size.low == size.high > 0:
                self.steps[result] = size.low

    def _words(self, line: str) -> str:
        file, number = self._place(line)
        return linecache.getline(file, number).strip() or line.split("loc(")[0].strip()

    def _made(self, result: str, op: str, operands: list[str], rest: str) -> Range | None:
        known = [self.ranges.get(name) for name in operands]
        if op == "arith.constant":
            found = re.search(r"(?:dense<)?(-?\d+)>? : (?:tensor<.*i\d+>|i\d+|index)", rest)
            return Range(int(found[1]), int(found[1])) if found else None
        if op == "tt.get_program_id":
            axis = self.programs[result] = "xyz".index(re.search(r"\b([xyz])\b", rest)[1])
            return Range(0, self._grid[axis] - 1)
        if op == "tt.get_num_programs":
            axis = "xyz".index(re.search(r"\b([xyz])\b", rest)[1])
            return Range(self._grid[axis], self._grid[axis])
        if op == "tt.make_range":
            end, start = (int(re.search(rf"{word} = (\d+)", rest)[1]) for word in ("end", "start"))
            return Range(start, end - 1)
        if op in ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.unsplat") and known:
            return known[0]
        if op in ("arith.extsi", "arith.extui", "arith.index_cast", "arith.trunci") and known:
            return known[0]
        if op == "tt.load" and operands:
            ends = self._read.get(self._origin(operands[0])[1:])
            return Range(*ends) if ends else None
        if op == "arith.select" and len(known) == 3 and known[1] and known[2]:
            return known[1] | known[2]
        return _calculated(op, *known) if len(known) == 2 and all(known) else None

    def _loop(self, line: str) -> None:
        found = re.search(r"scf\.for (%\w+) = (%\S+) to (%\S+) step (%\S+)", line)
        if not found:
            return
        counter, low, high, step = found.groups()
        self.uses[counter] = [low, high, step]
        first, last = self.ranges.get(low), self.ranges.get(high)
        if first and last:
            self.ranges[counter] = Range(first.low, max(first.low, last.high - 1))
        self._carried(line, first, last, self.ranges.get(step))

    def _carried(self, line: str, first: Range | None, last: Range | None, step: Range | None) -> None:
        """What a loop hands from turn to turn: where it begins, and how far equal steps take it."""
        given = re.search(r"iter_args\(([^)]*)\)", line)
        carried = re.findall(r"(%\w+) = (%[\w#]+)", given[1]) if given else []
        body = self._bodies.get(line, {})
        result = re.match(r"\s*(%\w+)", line)
        for i, (name, start) in enumerate(carried):
            end = body["yield"][i] if i < len(body.get("yield", ())) else start
            self.uses[name] = [start, end]
            if result:
                self.uses[f"{result[1]}#{i}" if len(carried) > 1 else result[1]] = [start, end]
            more = _NAME.findall(body.get(end, ""))
            by = self.ranges.get(more[1]) if len(more) == 2 and more[0] == name and "arith.addi" in body[end] else None
            begin = self.ranges.get(start)
            if begin and end == name:
                self.ranges[name] = begin
            elif begin and by and first and last and step and step.low > 0:
                turns = max(0, -(-(last.high - first.low) // step.low) - 1)
                self.ranges[name] = Range(begin.low + min(0, by.low * turns), begin.high + max(0, by.high * turns))

    def _origin(self, pointer: str) -> str:
        """The argument that a pointer begins with."""
        while self.uses.get(pointer):
            pointer = self.uses[pointer][0]
        return pointer

    def below(self, names: list[str]) -> set[str]:
        """Everything that these are made of, themselves included."""
        seen: set[str] = set()
        left = list(names)
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                left += self.uses.get(name, [])
        return seen

    def that_count(self) -> set[str]:
        """Whatever an offset of a pointer is made of, or a comparison, which makes masks."""
        return self.below([*self.offsets, *(name for pair in self.compared for name in pair)])


def _bodies(text: str) -> dict[str, dict[str, Any]]:
    """Of each loop, by its first line: what defines each result in it, and under "yield" the names that it hands on."""
    found: dict[str, dict[str, Any]] = {}
    open_: list[tuple[str, dict[str, Any]]] = []
    for line in text.splitlines():
        name, words = re.match(r"\s*(%\w+) = ", line), line.split(" : ")[0].split("loc(")[0]
        if name:
            for _, body in open_:
                body[name[1]] = words.partition("=")[2]
        if "scf.for" in line or "scf.if" in line or "scf.while" in line:
            open_.append((line, {}))
        elif open_ and line.strip().startswith("scf.yield"):
            open_[-1][1]["yield"] = _NAME.findall(words)
        elif open_ and line.strip().startswith("}") and "else" not in line and " do {" not in line:
            first, body = open_.pop()
            found[first] = body
    return found


def _calculated(op: str, a: Range, b: Range) -> Range | None:
    if op == "arith.addi":
        return Range(a.low + b.low, a.high + b.high)
    if op == "arith.subi":
        return Range(a.low - b.high, a.high - b.low)
    if op == "arith.muli":
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return Range(min(corners), max(corners))
    if op in ("arith.divsi", "arith.divui") and b.low > 0:
        corners = [int(x / y) if abs(x) < 1 << 50 else x // y for x in (a.low, a.high) for y in (b.low, b.high)]
        return Range(min(corners), max(corners))
    if op in ("arith.remsi", "arith.remui") and b.low > 0:
        return Range(0 if a.low >= 0 else 1 - b.high, min(b.high - 1, max(a.high, 0)))
    if op in ("arith.minsi", "arith.minui"):
        return Range(min(a.low, b.low), min(a.high, b.high))
    if op in ("arith.maxsi", "arith.maxui"):
        return Range(max(a.low, b.low), max(a.high, b.high))
    return None


def sizes_of(words: list[str]) -> dict[str, int]:
    """`["N=2**31", "M=4096"]` as numbers.

    Raises:
        ValueError: one is no name with a number, or a power of numbers, or below 1.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        number = re.fullmatch(r"(\d+)(?:\s*(\*\*|\*|<<)\s*(\d+))?(?:\s*([+-]\s*\d+))?", value.strip().replace("_", ""))
        if not name.strip().isidentifier() or not number:
            raise ValueError(f"--at takes a parameter and a size, such as N=2**31; got {word!r}")
        first, sign, second = int(number[1]), number[2], int(number[3] or 0)
        if sign in ("**", "<<") and second > 62:
            raise ValueError(f"--at {word}: sizes stay below 2**63")
        size = {"**": first**second, "*": first * second, "<<": first << second, None: first}[sign]
        found[name.strip()] = size + int((number[4] or "0").replace(" ", ""))
        if found[name.strip()] < 1:
            raise ValueError(f"--at {word}: a size is 1 or more")
    return found
