"""Every instruction of the tables against AMD's pseudocode, in all its forms.

The pseudocode is not ours: `make test-simulator` runs this where ORACLE_TREE is the path to a checkout of tinygrad,
which holds it as extracted from the ISA guides, and where an llvm-mc of LLVM 19 or later is installed.
"""

import importlib
import os
import random
import re
import sys

import pytest
from one_instruction import signature
from oracle import assembler, memories, pairs, scalars
from oracle.bits import Unsupported
from oracle.judge import Judge
from oracle.texts import of_vector

from gfxlab.simulator.instructions import Target
from gfxlab.simulator.instructions.registry import plain_name
from gfxlab.simulator.instructions.vector import TABLE

TREE = os.environ.get("ORACLE_TREE")
SEED = int(os.environ.get("ORACLE_SEED", 1))  # of the operands, literals and modifiers that are drawn
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # two minutes a target on a machine that has nothing else to do
    pytest.mark.skipif(not TREE, reason="ORACLE_TREE does not name a checkout with AMD's pseudocode"),
    pytest.mark.skipif(not assembler.program(), reason="no llvm-mc of LLVM 19 or later is installed"),
]
GUIDES = {"gfx90a": "cdna", "gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
ORDER = ["VOP3Op", "VOP3SDOp", "VOP2Op", "VOP1Op", "VOPCOp", "VOP3POp"]
# Where guide and simulator differ and the simulator is right: why.
REASONS = {
    r"v_div_(scale|fixup)_": "only the operands of a division make sense; VCC as tests on hardware have it",
    r"v_div_fmas_": "the guides print 2 ** 32 and 2 ** 64; hardware scales up or down by 2 ** 64 and 2 ** 128",
    r"v_fract_": "the guides' x - floor(x) rounds up to 1, which the hardware does not",
    r"v_frexp_exp_": "the guides take the exponent field of a denormal and of 0",
    r"v_trig_preop_": "the guides print a mask of the wrong bits of 2 / pi",
    r"v_cvt_pk_[iu]16_[iu]32": "the guides convert without saying that they saturate",
    r"v_cvt_norm|v_cvt_pk_?norm": "the guides do not define the conversion",
    r"v_dot2|v_dot4_f32": "the order in which a sum is rounded is not documented",
    r"v_lerp_u8": "the guides' averages are bytes, of which a shift to their place would leave nothing",
    r"v_(sin|cos)_": "the guides round the angle before the function; hardware does not say how",
    r"(ds|global|buffer)_(atomic_)?(min|max)(_num)?(_rtn)?_f": "of a NaN in memory the guides keep the NaN; LLVM takes "
    "these instructions where a number must win",
}


def guide_texts(guide: str):
    """The pseudocode of every instruction, by name and encoding, and a function that gives it by the name alone."""
    if TREE not in sys.path:
        sys.path.insert(0, TREE)
    module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{guide}.str_pcode")
    texts: dict[str, dict[str, str]] = {}
    for op, text in module.PCODE.items():
        texts.setdefault(re.sub(r"_e(32|64)$", "", op.name.lower()), {})[type(op).__name__] = text

    def text_of(name: str) -> str | None:
        forms = texts.get(name) or texts.get(name.replace("s_ff1_", "s_ctz_")) or {}
        return next((forms[form] for form in ORDER if form in forms), next(iter(forms.values()), None))

    return texts, text_of


def trials(arch: str, names, text_of, chance):
    """What LLVM accepts of everything that is to be tried, a text once."""
    found = []
    for name in sorted(names):
        op = TABLE.get(plain_name(name))
        if op is not None and name.startswith("v_"):
            floats = [kind[0] == "f" for kind in _types(text_of(name), op)]
            found += of_vector(name, op, floats, Target(arch), chance)
    texts = assembler.canonical([trial.written(Target(arch)) for trial in found], arch)
    seen = {}
    for trial, text in zip(found, texts):
        if text:
            object.__setattr__(trial, "text", text)
            seen.setdefault(text, trial)
    return list(seen.values())


def _types(text: str, op) -> list[str]:
    """The sources' types as the pseudocode has them, for a sign's modifiers; else as the table has them."""
    found = []
    for place, kind in enumerate(signature(op)):
        named = re.search(rf"\bS{place}\.([fui]\d+)\b", text)
        found.append(named[1] if named else kind)
    return found


def _compared(judge, trials) -> tuple[int, int]:
    """How many passed, and of how many the pseudocode cannot be followed; fails where one disagrees."""
    wrong, passed, beyond = [], 0, 0
    for trial in trials:
        if any(re.match(pattern, trial.name) for pattern in REASONS):
            continue
        try:
            disagreement = judge.judge(trial)
        except Unsupported:
            beyond += 1
            continue
        passed += disagreement is None
        wrong += [str(disagreement)] if disagreement else []
    assert not wrong, f"{len(wrong)} texts of {len(wrong) + passed}:\n" + "\n".join(wrong[:40])
    return passed, beyond


@pytest.mark.parametrize("arch", GUIDES)
def test_vector_instructions(arch):
    texts, text_of = guide_texts(GUIDES[arch])
    chance = random.Random(SEED)
    passed, beyond = _compared(Judge(arch, text_of, chance), trials(arch, texts, text_of, chance))
    assert passed > 3000 and beyond < 200, (passed, beyond)


@pytest.mark.parametrize("arch", GUIDES)
def test_scalar_instructions(arch):
    texts, text_of = guide_texts(GUIDES[arch])
    chance = random.Random(SEED)
    tried = scalars.trials([name for name in texts if name.startswith(("s_", "v_s_"))], arch, chance)
    passed, beyond = _compared(scalars.ScalarJudge(arch, text_of, chance), tried)
    assert passed > 500 and not beyond, (passed, beyond)


@pytest.mark.parametrize("arch", GUIDES)
def test_loads_stores_and_atomics(arch):
    texts, text_of = guide_texts(GUIDES[arch])
    chance = random.Random(SEED)
    tried = memories.accesses([name for name in texts if name.startswith(("ds_", "global_", "buffer_"))], arch)
    passed, beyond = _compared(memories.MemoryJudge(arch, text_of, chance), tried)
    assert passed > 200 and beyond < 10, (passed, beyond)


@pytest.mark.parametrize("arch", GUIDES)
def test_packed_instructions_and_dual_issue(arch):
    texts, text_of = guide_texts(GUIDES[arch])
    chance = random.Random(SEED)
    passed, beyond = _compared(pairs.PairJudge(arch, text_of, chance), pairs.trials(list(texts), arch, chance))
    assert passed > 100 and beyond < 20, (passed, beyond)  # v_pk_minimum3 calls what no guide has
