"""Every instruction that Triton was seen to emit is known.

`instructions/ARCH.txt` holds one line for each mnemonic and set of modifiers in the code of the kernel library's
families, in float32, float16 and bfloat16. Add a line when a kernel brings a new one.
"""

from pathlib import Path

import numpy as np
import pytest
from one_instruction import decoded, execute, signature

from gfxlab.simulator import UnknownInstruction
from gfxlab.simulator.core.program import is_barrier
from gfxlab.simulator.instructions import Target, build
from gfxlab.simulator.instructions.registry import Unknown
from gfxlab.simulator.instructions.vector import TABLE

LISTS = sorted((Path(__file__).parent / "instructions").glob("*.txt"))


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_instruction_seen_is_known(path):
    target = Target(path.stem)
    lines = path.read_text()
    instructions = [one for one in decoded(lines) if not is_barrier(one)]
    assert len(decoded(lines)) == len(lines.splitlines())
    assert len(instructions) > 150
    unknown = [one.text for one in instructions if isinstance(build(one, target), Unknown)]
    assert not unknown


def test_an_unknown_one_says_what_and_where():
    (step,) = [build(one, Target("gfx942")) for one in decoded("v_frobnicate_b32 v0, v1")]
    with pytest.raises(UnknownInstruction, match=r"does not know `v_frobnicate_b32 v0, v1`.*Add it to the table"):
        step(None)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_every_entry_of_the_vector_table_leaves_lanes_that_are_off(arch):
    """An entry with too few or too many sources fails here too."""
    lanes = Target(arch).lanes
    on = np.arange(lanes) % 2 == 0
    vcc = "vcc" if lanes == 64 else "vcc_lo"
    for name, op in TABLE.items():
        if name.startswith("v_cmpx"):
            continue
        wide = ("u64", "i64", "f64")
        sources = [
            vcc if kind == "mask" else f"v[{2 + 2 * i}:{3 + 2 * i}]" if kind in wide else f"v{2 + 2 * i}"
            for i, kind in enumerate(signature(op))
        ]
        results = [vcc if kind == "mask" else "v[10:11]" if kind in wide else "v10" for kind in op.results]
        V = {i: np.full(lanes, 0x3F803C00 + i) for i in range(2, 10)} | {10: 77, 11: 78}
        w = execute(f"{name} {', '.join(results + sources)}", arch=arch, V=V, lanes_on=on, vcc=on)
        assert (w.V[10, 0, ~on] == 77).all() and (w.V[11, 0, ~on] == 78).all(), name
