"""Instruction tests whose expectations were validated on a real RDNA 3 card, run on the simulator.

They are tinygrad's (`test/amd/hw`) and stay there: `make test-simulator` runs them where ORACLE_TREE is the path to a
checkout. Their machine code goes through LLVM's disassembler to the simulator.
"""

import ctypes
import importlib
import os
import re
import sys
import types
import unittest
from pathlib import Path

import numpy as np
import pytest
from oracle import assembler, machine_code

from gfxlab.simulator.core.operands import EXEC

TREE = os.environ.get("ORACLE_TREE")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # two minutes a target on a machine that has nothing else to do
    pytest.mark.skipif(not TREE, reason="ORACLE_TREE does not name a checkout with tests from hardware"),
    pytest.mark.skipif(not assembler.program(), reason="no llvm-mc of LLVM 19 or later is installed"),
]
ARCHS = {"rdna3": "gfx1100", "rdna4": "gfx1201", "cdna": "gfx950"}
REASONS = {  # tests that do not pass, and why
    "test_omod_ignored": "there the card is in IEEE mode, which a wave here is only by its kernel's descriptor",
    "test_denormal_f32_mul_ftz": "there the card flushes denormals, which Triton's kernels keep",
    "test_div_scale_f32_denorm_denom": "there the card flushes denormals, which Triton's kernels keep",
    "test_row_bcast15_materializes_vcc": "gfx11 has no row_bcast: LLVM's disassembler does not know the encoding",
    "test_v_interp": "interpolation is for graphics",
}
_sizes: dict[int, int] = {}
_address_of = ctypes.addressof


def _remembering(value) -> int:
    _sizes[_address_of(value)] = ctypes.sizeof(value)
    return _address_of(value)


def _run_asm(lib, lib_size, gx, gy, gz, lx, ly, lz, args_ptr, rsrc2=0, scratch_size=0, arch="rdna3", *rest, **options):
    """What their helpers call: machine code at an address, a workgroup of lx threads, the address of its arguments."""
    text = machine_code.disassembled(ctypes.string_at(lib, lib_size), ARCHS[arch])
    # their frame, not what they test: an offset of 0 in a scalar register, and a cache instruction
    text = re.sub(r"^(s_load_dwordx2 s\[92:93\], s\[80:81\]), s0$", r"\1, 0x0", text, flags=re.MULTILINE)
    text = text.replace("s_gl1_inv\n", "")
    lanes = 64 if arch == "cdna" else 32
    waves = -(-lx // lanes)
    program, w = machine_code.prepared(text, ARCHS[arch], waves, min(scratch_size, 65536))
    out = ctypes.c_uint64.from_address(args_ptr).value
    size = _sizes[out]
    data = np.zeros(size + (1 << 16), np.uint8)
    data[:size] = np.frombuffer(ctypes.string_at(out, size), np.uint8)
    segment = np.zeros(4096, np.uint8)
    segment[:8] = np.frombuffer(int(w.memory.add_bytes("out", data)).to_bytes(8, "little"), np.uint8)
    arguments = w.memory.add_bytes("arguments", segment)
    w.V[0] = np.arange(waves * lanes).reshape(waves, lanes)
    w.S[:, 0], w.S[:, 1] = arguments & 0xFFFFFFFF, arguments >> 32
    w.write_lane_mask(EXEC, (np.arange(waves * lanes) < lx).reshape(waves, lanes))
    machine_code.run(program, w)
    ctypes.memmove(out, data.tobytes(), size)
    return 0


def _cases(suite):
    for one in suite:
        yield from _cases(one) if isinstance(one, unittest.TestSuite) else [one]


@pytest.fixture
def hardware_tests(monkeypatch):
    """All of their test cases, which then call the simulator."""
    monkeypatch.syspath_prepend(TREE)
    monkeypatch.setattr(ctypes, "addressof", _remembering)
    fake = types.ModuleType("test.mockgpu.amd.emu")
    fake.run_asm = _run_asm
    monkeypatch.setitem(sys.modules, "test.mockgpu.amd.emu", fake)
    for name in [name for name in sys.modules if name == "test" or name.startswith("test.")]:
        if name != "test.mockgpu.amd.emu":
            monkeypatch.delitem(sys.modules, name)  # Python's own tests may be there
    names = sorted(path.stem for path in (Path(TREE) / "test/amd/hw").glob("test_*.py"))
    modules = [importlib.import_module(f"test.amd.hw.{name}") for name in names]
    return [case for module in modules for case in _cases(unittest.defaultTestLoader.loadTestsFromModule(module))]


def test_as_on_the_card(hardware_tests):
    passed, wrong = 0, []
    for case in hardware_tests:
        outcome = unittest.TestResult()
        case.run(outcome)
        if outcome.skipped:
            continue
        problems = [text.strip().splitlines()[-1] for _, text in outcome.failures + outcome.errors]
        if not problems:
            passed += 1
        elif not any(name in case.id() for name in REASONS) and "NotAnInstruction" not in problems[0]:
            wrong.append(f"{case.id()}: {problems[0]}")
    assert not wrong, f"{len(wrong)} of {len(wrong) + passed}:\n" + "\n".join(wrong)
    assert passed > 750
