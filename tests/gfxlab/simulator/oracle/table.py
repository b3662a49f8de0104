"""Writes docs/instructions.md: which instructions the simulator knows, and how each was checked.

    PYTHONPATH=tests/gfxlab/simulator ORACLE_TREE=... python -m oracle.table

A mark says what is checked, not that it passed today: the tests named in the page say that.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from one_instruction import decoded, signature
from oracle import assembler, encodings, memories, pairs, products, scalars
from oracle.texts import of_vector
from test_pseudocode import GUIDES, REASONS, guide_texts

from gfxlab.simulator.core.program import is_control
from gfxlab.simulator.core.values import WIDE
from gfxlab.simulator.instructions import Target
from gfxlab.simulator.instructions.registry import known, plain_name
from gfxlab.simulator.instructions.scalar import TABLE as SCALAR
from gfxlab.simulator.instructions.vector import TABLE as VECTOR
from gfxlab.tables import Table

HERE = Path(__file__).parent.parent
PAGE = HERE.parents[2] / "docs" / "instructions.md"
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
_HEAD = """\
<!-- Written by tests/gfxlab/simulator/oracle/table.py -->
# The simulator, instruction by instruction

How each instruction is checked, by target:

- **p**: against AMD's pseudocode, interpreted exactly, on edge values and random ones, with modifiers and all kinds of
  operands: vector, scalar, packed and paired instructions, loads, stores and atomics (`test_pseudocode.py`, where
  `ORACLE_TREE` names a checkout that holds the pseudocode, and `ORACLE_SEED` draws other operands; gfx90a by the guide
  of gfx942)
- **d**: the pseudocode differs, for a reason that stands below
- **e**: against exact integers and fractions of our own. Of matrix instructions, whose pseudocode is one line, every
  element's lane, register and bits are put by a formula, and the sums are exact: all shapes, types and modifiers
  (`test_products.py`; how sums are rounded on the way is not specified, the simulator adds in float64)
- **c**: in the code of compiled kernels, whose results are compared with PyTorch's
- **n**: known by a table, with no check of its own on this target

783 tests whose expectations were validated on an RDNA 3 card run on gfx1100 and its neighbours besides
(`test_hardware_tests.py`). All
of these passed with the simulator's C extension and without it (November 2026, seed 1).
An empty cell: the target has no such instruction, or nobody has asked for it there.

"""
_TAIL = """
Where guide and simulator differ:

{reasons}

What the targets have beside these (all opcodes of all encodings, as LLVM's disassembler names them; `encodings.py`)
and the simulator has not. Such an instruction stops the launch with a sentence that names it.

{missing}

Of instructions that it has, it refuses in the same way: `blgp:3` of matrix instructions; directed rounding of what is
rounded twice (`v_mac`, `v_mad`, `v_div_fmas`, dot products, the legacy instructions); operands that name an aperture or
a status bit (`src_shared_base`, `src_scc`). Images, exports and interpolation, which only graphics uses, were not
enumerated, nor what gfx1250 adds.

Matrix and dot instructions of float16 and bfloat16 take denormals as 0 on gfx90a, and give 0 for them, float32 sums
too: so an MI200 does (AMD, "MI200 matrix fused multiply-add (MFMA) behavior specifics"; PyTorch, "Numerical accuracy",
for the dot instructions). On gfx942 and gfx950 the simulator keeps them.
"""


_MISSING = {  # in this order: what an instruction is for, by its name
    "graphics: formats": r"t?buffer_(load|store)\w*_format",
    "graphics: cube maps, rays, screens": r"v_cube|v_cvt_off|v_screen|ds_bvh",
    "scalar stores, atomics, private memory, probes": r"s_(buffer_)?(store|atomic|atc_probe)|s_scratch",
    "registers by index": r"[sv]_(movrel|swaprel)|s_set_gpr_idx",
    "products of sparse matrices": r"v_(smfmac|swmmac)",
    "stochastic rounding, which the guides do not define": r"v_cvt_(scalef32_)?sr_",
    "memory by the lane's number, in order, as a queue": r"ds_(append|consume|condxchg|wrap)|\w+_(addtid|ordered)",
    "blocks of memory, transposed loads, private memory to LDS": r"\w+_(load|store)_(block|tr)|scratch_load_lds",
    "named barriers, changing registers": r"s_(get_)?barrier|s_alloc_vgpr",
    "debuggers, traps, forks": r"s_(rfe|cbranch_[cgij]|setvskip|setkill|endpgm_|subvector)",
    "others": r"",
}


def _missing() -> str:
    """Markdown: what `encodings` finds and no table knows, by purpose and by target."""
    where: dict[str, list[str]] = {}
    for arch in ARCHS:
        for name, text in encodings.texts(arch).items():
            if not all(is_control(one) or known(one, Target(arch)) for one in decoded(text)):
                where.setdefault(name, []).append(arch)
    rows: dict[tuple[str, str], list[str]] = {}
    for name, archs in sorted(where.items()):
        purpose = next(purpose for purpose, pattern in _MISSING.items() if re.match(pattern, name))
        targets = "all" if len(archs) == len(ARCHS) else ", ".join(archs)
        rows.setdefault((purpose, targets), []).append(f"`{name}`")
    order = list(_MISSING)
    found = [(purpose, targets, " ".join(names)) for (purpose, targets), names in rows.items()]
    found.sort(key=lambda row: (order.index(row[0]), row[1]))
    return Table(found, ("for", "on", "instructions")).markdown()


def _vector_texts(names: list[str], arch: str, text_of) -> dict[str, str]:
    """By name the plainest text of each vector instruction."""
    found = {}
    for name in names:
        if name.startswith("v_") and (op := VECTOR.get(plain_name(name))):
            trial = next(of_vector(name, op, [False] * len(signature(op)), Target(arch), None))
            found[name] = trial.written(Target(arch))
    return found


def _scalar_texts(names: list[str]) -> dict[str, str]:
    found = {}
    for name in names:
        op = SCALAR.get(plain_name(name))
        if op is None:
            continue
        register = lambda kind, first: f"s[{first}:{first + 1}]" if kind in WIDE else f"s{first}"  # noqa: E731
        for count in (1, 2, 3):
            kinds = op.reads if isinstance(op.reads, tuple) else (op.reads,) * count
            sources = [register(kind, 2 + 2 * i) for i, kind in enumerate(kinds)]
            if op.accumulates:
                sources = sources[1:]
            result = [] if op.scc == "only" else [register(op.result, 10)]
            found[f"{name} {count}"] = f"{name} {', '.join([*result, *sources])}"
            found[f"{name} k"] = f"{name} {'s10, ' if not name.startswith('s_cmpk') else 's2, '}0x1234"
    return found


def _existing(texts: dict[str, str], arch: str) -> set[str]:
    canonical = assembler.canonical(list(texts.values()), arch)
    return {name.split()[0] for name, text in zip(texts, canonical) if text}


def _in_kernels(arch: str) -> set[str]:
    lines = (HERE / "instructions" / f"{arch}.txt").read_text().splitlines()
    return {re.sub(r"_(e32|e64|sdwa|dpp)$", "", line.split()[0]) for line in lines}


def _compared(texts: dict, arch: str) -> set[str]:
    """What `test_pseudocode.py` tries of the scalar, memory and packed instructions and of the pairs."""
    chance, names = random.Random(1), list(texts)
    tried = scalars.trials([name for name in names if name.startswith(("s_", "v_s_"))], arch, chance)
    tried += memories.accesses([name for name in names if name.startswith(("ds_", "global_", "buffer_"))], arch)
    tried += pairs.trials(names, arch, chance)
    found = {trial.name for trial in tried}
    halves = [name.removeprefix("v_dual_").split() for name in found if name.startswith("v_dual_")]
    duals = {f"v_dual_{half}" for pair in halves for half in pair}
    return {name for name in found if not name.startswith("v_dual_")} | duals


def _marks(arch: str, sources: str) -> dict[str, str]:
    texts, text_of = guide_texts(GUIDES[arch])
    vector = _existing(_vector_texts(sorted(texts), arch, text_of), arch)
    scalar = _existing(_scalar_texts(sorted(texts)), arch)
    kernels = _in_kernels(arch)
    compared = _compared(texts, arch)
    marks = {}
    exact = {one.name for one in products.instructions(arch)}
    for name in vector | scalar | kernels | compared | exact:
        mark = ""
        if name in vector | compared:
            mark += "d" if any(re.match(pattern, name) for pattern in REASONS) else "p"
        plain = plain_name(name)
        named = re.search(rf"\b({name}|{plain})(_e32|_e64|_sdwa|_dpp)?\b", sources)
        mark += "e" if named or name in exact else ""
        mark += "c" if name in kernels else ""
        marks[name] = mark or "n"
    return marks


def around() -> tuple[str, str, str]:
    """What stands before the page's table, between it and the list of what is missing, and after that."""
    reasons = "\n".join(f"- `{pattern}`: {reason}" for pattern, reason in REASONS.items())
    return _HEAD, *_TAIL.format(reasons=reasons, missing="{missing}").split("{missing}")


def page() -> str:
    """The whole page; needs ORACLE_TREE and llvm-mc."""
    sources = "\n".join(path.read_text() for path in HERE.glob("test_*.py"))
    by_arch = {arch: _marks(arch, sources) for arch in ARCHS}
    names = sorted(set().union(*by_arch.values()))
    rows = [(f"`{name}`", *(by_arch[arch].get(name, "") for arch in ARCHS)) for name in names]
    before, between, after = around()
    table = Table(rows, ("instruction", *ARCHS)).markdown()
    return f"{before}{table}\n{between}{_missing()}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
