"""What the numbers of `course_kernels/launch` are worth in AMD's code: `python -m benchmarks.machine_code.entries`.

Each number is taken smaller and larger than it is, and a kernel that depends on it is compiled and executed with each:
the reason why it stands.  Wave instructions, cache lines, registers and spills of one call, bf16.  About eight minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import course_kernels as ck
from benchmarks.contest import draw
from benchmarks.machine_code.contests import COMPUTE_UNITS
from benchmarks.machine_code.figures import figures_of
from course_kernels import launch
from course_kernels.attention import flash_attention_backward
from course_kernels.rms_norm import rms_norm_backward
from gfxlab.pretended import pretend
from gfxlab.simulator.show.run import Run
from gfxlab.tables import Table

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")  # each that AMD's launches name
STORED = Path(__file__).with_name("entries.json")
AS_IT_IS = "as it is"


@dataclass(frozen=True)
class Entry:
    """A number of `launch.Sizes`, the values that compete, and a call that depends on it. None: what is there now."""

    name: str
    values: tuple[Any, ...]
    size: str
    call: Callable[[], object]


def _decode(width: int = 64, heads: int = 8) -> object:
    pages, table = [draw("cuda", 16, 16, 2, width) for _ in range(2)], torch.arange(16, device="cuda").view(1, 16)
    return ck.paged_decode_attention(draw("cuda", 1, heads, width), *pages, table, torch.tensor([256], device="cuda"))


def _gradients(width: int, dtype: torch.dtype = torch.bfloat16) -> object:
    q, k, v, do = (draw("cuda", 1, 1, 256, width, dtype=dtype, scale=scale) for scale in (1.0, 0.5, 2.0, 0.25))
    lse = torch.zeros(1, 1, 256, device="cuda")
    return flash_attention_backward(do, q, k, v, do, lse, False, width**-0.5)


def _attention(width: int, tokens: int = 512, dtype: torch.dtype = torch.bfloat16) -> object:
    return ck.flash_attention(*(draw("cuda", 1, 1, tokens, width, dtype=dtype, scale=s) for s in (1.0, 0.5, 2.0)))


def _product(dtype: torch.dtype = torch.bfloat16) -> object:
    return ck.matmul(draw("cuda", 256, 512, dtype=dtype), draw("cuda", 512, 256, dtype=dtype))


def _few_rows() -> object:
    return ck.matmul(draw("cuda", 16, 2048), draw("cuda", 2048, 64))


def _linear(rows: int = 1536) -> object:
    return ck.linear(draw("cuda", 1, 576), draw("cuda", rows, 576))


def _norm(function: Callable, rows: int, cols: int) -> object:
    return function(draw("cuda", rows, cols), draw("cuda", cols))


def _norm_gradients(rows: int, cols: int) -> object:
    x, weight = draw("cuda", rows, cols), draw("cuda", cols)
    return rms_norm_backward(x, None, x, weight, 1e-6)


def _rope() -> object:
    return ck.rope(draw("cuda", 1, 256, 9, 64), *ck.rope_tables(256, 64, device="cuda"), layout="bshd")


WITHOUT_FIGURES = {  # numbers that no count of instructions decides
    "max_threads": "what a workgroup of AMD's may have",
    "smallest_tile": "asked for on NVIDIA only",
    "few_rows_hopper": "asked for on NVIDIA only",
}

WHY = {  # (number, call): why what is there stays, though another value executes fewer instructions
    ("tile", "silu_and_mul, 64 x 8192"): "4,096 execute up to 2 % less on Instinct and 4 % more on gfx1100",
    ("tile", "vector_add, 65536"): "1,024 execute 1 % less on gfx942 and more on the others",
    ("programs", "rms_norm, 2048 x 64"): (
        "short rows are packed only while the grid keeps 1,024 programs; with 64 most of 304 compute units would idle"
    ),
    ("resident_threads", "gradients of rms_norm, 64 x 1024"): (
        "half as many waves add up fewer partial sums, but one wave a SIMD has nobody to hide its waiting"
    ),
    ("dot_tiles", "matmul, 256 x 256 x 512"): (
        "a larger tile leaves two of four compute units idle; Instinct takes it for larger products, and on "
        "gfx1100 other "
        "kernels spill with it"
    ),
    ("dot_tiles", "matmul in float32, 256 x 256 x 512"): (
        "128 x 128 takes 241 of gfx1100's 256 registers here, and spills with other operands, or compiled by Triton 3.6"
    ),
    ("max_rounds", "topk, 16 x 576, 16"): "rounds execute up to 4 % less on gfx950 and gfx1100, 7 % more on gfx942",
    ("dot_bytes", "matmul, 256 x 256 x 512"): (
        "256 bytes execute up to 7 % less on gfx950 and gfx1100, 8 % more on gfx942, and take a third more registers"
    ),
    ("few_rows", "matmul, 16 x 64 x 2048"): "undivided, one compute unit would read the whole operand alone",
    ("max_parts", "matmul, 16 x 64 x 2048"): "undivided, one compute unit would read the whole operand alone",
}


def entries() -> list[Entry]:
    """All that AMD's launches depend on."""
    float32, rms_norm = torch.float32, partial(_norm, ck.rms_norm)
    products = ((64, 64, 128),), ((128, 128, 256),), ((256, 128, 512),), None
    precise = ((32, 32, 64),), ((64, 64, 128),), ((128, 128, 256),), None
    tiles = {
        64: ((64, 64, 64, 256), (128, 32, 64, 256), (128, 64, 64, 512), None),
        128: ((64, 16, 128, 128), (64, 32, 128, 256), (128, 16, 128, 256), (128, 64, 128, 256), None),
        256: (
            (32, 16, 256, 256),
            (64, 16, 128, 256),
            (64, 32, 256, 256),
            (128, 16, 128, 256),
            (64, 32, 256, 512),
            None,
        ),
    }
    back = {
        64: ((32, 32, 64, 256), (64, 16, 64, 256), (64, 32, 64, 256), (64, 64, 64, 256), (128, 32, 64, 256), None),
        128: ((64, 16, 64, 256), (32, 32, 128, 256), (64, 32, 128, 256), (64, 16, 128, 512), None),
    }
    wide = {
        64: ((16, 16, 64, 256), (32, 16, 64, 256), (64, 32, 64, 256), None),
        128: ((16, 16, 128, 256), (32, 16, 128, 256), (64, 32, 128, 512), None),
    }
    precise_back = (16, 16, 64, 256), (32, 16, 64, 256), (64, 32, 64, 256), None
    return [
        Entry("elements_per_thread", (8, 16, None, 64), "rms_norm, 64 x 4096", partial(rms_norm, 64, 4096)),
        Entry(
            "elements_per_thread",
            (16, None, 64),
            "gradients of rms_norm, 64 x 4096",
            partial(_norm_gradients, 64, 4096),
        ),
        Entry(
            "tile", (512, 1024, None, 4096), "silu_and_mul, 64 x 8192", lambda: ck.silu_and_mul(draw("cuda", 64, 8192))
        ),
        Entry("tile", (1024, None, 4096), "rope, 256 tokens, 9 heads of 64", _rope),
        Entry(
            "tile",
            (1024, None, 4096),
            "vector_add, 65536",
            lambda: ck.vector_add(*[draw("cuda", 1 << 16)] * 2),
        ),
        Entry("tile", (1024, None, 4096), "rms_norm, 256 x 576", partial(rms_norm, 256, 576)),
        Entry(
            "programs",
            (64, None),
            "rms_norm, 2048 x 64",
            partial(rms_norm, 2048, 64),
        ),
        Entry("max_row", (4096, None), "rms_norm, 16 x 8192", partial(rms_norm, 16, 8192)),
        Entry("max_chosen", (8, None), "topk, 16 x 256, 16", lambda: ck.topk(draw("cuda", 16, 256), 16)),
        Entry("max_rounds", (4, None), "topk, 16 x 576, 8", lambda: ck.topk(draw("cuda", 16, 576), 8)),
        Entry("max_rounds", (None, 64), "topk, 16 x 576, 16", lambda: ck.topk(draw("cuda", 16, 576), 16)),
        Entry(
            "resident_threads", (128, None, 512), "gradients of rms_norm, 64 x 1024", partial(_norm_gradients, 64, 1024)
        ),
        Entry(
            "dot_tiles",
            products,
            "matmul, 256 x 256 x 512",
            _product,
        ),
        Entry(
            "dot_tiles",
            precise,
            "matmul in float32, 256 x 256 x 512",
            partial(_product, float32),
        ),
        Entry(
            "dot_bytes",
            (64, None, 256),
            "matmul, 256 x 256 x 512",
            _product,
        ),
        Entry(
            "few_rows",
            (0, None),
            "matmul, 16 x 64 x 2048",
            _few_rows,
        ),
        Entry(
            "max_parts",
            (1, 4, None),
            "matmul, 16 x 64 x 2048",
            _few_rows,
        ),
        Entry("weight_rows", (16, 32, None), "linear, 1 x 576 by 1536", _linear),
        Entry("attention_tile", tiles[64], "attention, 512 x 64", partial(_attention, 64)),
        Entry("attention_tile", tiles[128], "attention, 512 x 128", partial(_attention, 128)),
        Entry("attention_tile", tiles[256], "attention, 256 x 256", partial(_attention, 256, 256)),
        Entry("attention_tile", wide[64], "attention in float32, 128 x 64", partial(_attention, 64, 128, float32)),
        Entry("attention_tile", wide[128], "attention in float32, 128 x 128", partial(_attention, 128, 128, float32)),
        Entry("attention_tile", back[64], "gradients of attention, 256 x 64", partial(_gradients, 64)),
        Entry("attention_tile", back[128], "gradients of attention, 256 x 128", partial(_gradients, 128)),
        Entry(
            "attention_tile",
            precise_back,
            "gradients of attention in float32, 256 x 64",
            partial(_gradients, 64, float32),
        ),
        Entry("keys_at_a_time", (16, 32, None), "paged decode, 256 keys, 8 / 2 heads of 64", _decode),
        Entry("keys_at_a_time", (16, 32, None), "paged decode, 256 keys, 8 / 2 heads of 128", partial(_decode, 128)),
        Entry("keys_of_a_part", (64, None), "paged decode, 256 keys, 8 / 2 heads of 64", _decode),
        Entry("max_splits", (1, None), "paged decode, 256 keys, 8 / 2 heads of 64", _decode),
    ]


@dataclass(frozen=True)
class Worth:
    """What one value of a number costs: wave instructions, cache lines, registers and spills of one call."""

    call: str
    arch: str
    number: str
    value: str
    instructions: int
    lines: int
    vgprs: int
    spills: int


def worth(entry: Entry, arch: str) -> Iterator[Worth]:
    """Of each value of an entry."""
    for value in entry.values:
        runs: list[Run] = []
        sizes = {} if value is None else {entry.name: value}
        gpu = launch.as_on(launch.Gpu(arch, COMPUTE_UNITS))
        with pretend(arch, seen=runs.append, profile=True), gpu, launch.sizes_as(**sizes), torch.no_grad():
            entry.call()
        found = figures_of(runs, entry.name, entry.size, arch, "ours", 1)
        counts = found.instructions, found.lines, found.vgprs, found.spills
        yield Worth(entry.size, arch, entry.name, _shown(value), *counts)


def _shown(value: Any) -> str:
    """As the table has it."""
    if value is None:
        return AS_IT_IS
    numbers = value[0] if isinstance(value, tuple) and isinstance(value[0], tuple) else value
    return " x ".join(map(str, numbers)) if isinstance(numbers, tuple) else f"{numbers:,}"


def stored() -> list[Worth]:
    """What the last run kept."""
    return [Worth(**one) for one in json.loads(STORED.read_text())]


def unexplained(rows: list[Worth]) -> list[str]:
    """What is there although another value executes fewer instructions and spills no more, and nobody says why."""
    found = []
    for one in rows:
        now = next(x for x in rows if _place(x) == _place(one) and x.value == AS_IT_IS)
        better = one.instructions < now.instructions and one.spills <= now.spills
        if better and (one.number, one.call) not in WHY:
            found.append(f"{one.number} of {one.call} on {one.arch}: {one.value} executes {one.instructions:,}")
    return found


def _place(one: Worth) -> tuple[str, str, str]:
    return one.call, one.arch, one.number


def table() -> str:
    """Markdown: wave instructions with each value, a column for each architecture; then the reasons."""
    rows = stored()
    cells = {(one.call, one.number, one.value): {} for one in rows}
    for one in rows:
        spilled = f" ({one.spills:,} spills)" if one.spills else ""
        cells[one.call, one.number, one.value][one.arch] = f"{one.instructions:,}{spilled}"
    lines = [
        (call, f"`{number}`", f"**{value}**" if value == AS_IT_IS else value, *(counts.get(arch, "") for arch in ARCHS))
        for (call, number, value), counts in cells.items()
    ]
    reasons = [f"- `{number}`, {call}: {why}." for (number, call), why in WHY.items()]
    reasons += [f"- `{number}`: {why}." for number, why in WITHOUT_FIGURES.items()]
    return "\n".join([Table(lines, ("call", "number", "value", *ARCHS), numbers=3).markdown(), "", *reasons])


def store(found: list[Worth]) -> None:
    """Keep these, in place of what was stored of the same call, target and number."""
    again = set(map(_place, found))
    kept = [one for one in stored() if _place(one) not in again] if STORED.exists() else []
    order = {(entry.size, entry.name): place for place, entry in enumerate(entries())}
    rows = sorted(kept + found, key=lambda one: (order.get((one.call, one.number), 999), ARCHS.index(one.arch)))
    STORED.write_text(json.dumps([asdict(one) for one in rows], indent=0) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Execute, print and keep."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine_code.entries", description=__doc__)
    parser.add_argument("names", nargs="*", help="of the numbers, or of the calls; all if none")
    parser.add_argument("--arch", action="append", choices=ARCHS, help="all five if none")
    options = parser.parse_args(arguments)
    for arch in options.arch or ARCHS:
        for entry in entries():
            if not options.names or entry.name in options.names or entry.size in options.names:
                found = list(worth(entry, arch))
                for one in found:
                    print(*asdict(one).values(), sep=" | ", flush=True)
                store(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
