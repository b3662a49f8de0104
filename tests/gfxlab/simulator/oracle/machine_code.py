"""Machine code, disassembled and run as a program on waves whose first state the caller sets."""

from __future__ import annotations

import re

import numpy as np
from assembly import compiled
from oracle import assembler

from gfxlab.simulator.core import program as programs
from gfxlab.simulator.core.executor import Executor
from gfxlab.simulator.core.memory import GlobalMemory, LocalData, Scratch
from gfxlab.simulator.core.program import Program
from gfxlab.simulator.core.state import Waves

REGISTERS = 512


class NotAnInstruction(Exception):
    """LLVM does not know an encoding."""


def disassembled(code: bytes, arch: str) -> str:
    """LLVM's text, a line an instruction, with labels where branches go."""
    text = assembler.run([f"-mcpu={arch}", "--disassemble", "--show-encoding"], ",".join(map(hex, code)))
    rows, at = [], 0
    for found in re.finditer(r"^\s+(\S.*?)\s*; encoding: \[(.*)\]", text, re.MULTILINE):
        rows.append((at, re.sub(r"\blit(?:64)?\(([^)]*)\)", r"\1", found[1])))
        at += found[2].count("0x")
    if at != len(code):
        raise NotAnInstruction(f"{len(code) - at} of {len(code)} bytes")
    goals = {at: goal for at, line in rows if (goal := _goal(at, line)) is not None}
    lines = []
    for at, line in rows:
        lines += [f".LBB0_{at}:"] if at in goals.values() else []
        lines.append(f"{line.split()[0]} .LBB0_{goals[at]}" if at in goals else line)
    return "\n".join(lines)


def _goal(at: int, line: str) -> int | None:
    found = re.match(r"s_c?branch\w* (-?\d+)$", line)
    return at + 4 + 4 * ((int(found[1]) & 0xFFFF ^ 0x8000) - 0x8000) if found else None


def prepared(text: str, arch: str, waves: int, scratch: int) -> tuple[Program, Waves]:
    """A program of one workgroup, and its waves with empty memories."""
    program = programs.parse(compiled(text, arch=arch, scratch=scratch).asm)
    lds, private = LocalData(1, 65536), Scratch(waves * program.lanes, scratch) if scratch else None
    for memory in filter(None, (lds, private)):
        memory.content[:] = 0
    w = Waves(waves, program.lanes, REGISTERS, waves, memory=GlobalMemory(), lds=lds, scratch=private)
    w.S[:, :16] = 0
    return program, w


def run(program: Program, w: Waves) -> None:
    with np.errstate(all="ignore"):
        Executor(program, w, 2_000_000).run()
