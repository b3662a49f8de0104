"""The machine code of one kernel, ready to be executed: instructions, blocks between jumps, and its launch facts.

The text is the compiler's own (`compiled.asm["amdgcn"]`); `gfxlab.code.isa` reads the instructions and their source
lines, this module reads what only an execution needs: operands, jump targets and the kernel descriptor.
Kernel descriptor: LLVM, "User Guide for AMDGPU Backend", code object V5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from gfxlab import hardware
from gfxlab.code import isa, metadata
from gfxlab.simulator.core import constants, operands
from gfxlab.simulator.core.operands import Modifiers, Operand

_UNPARSED = re.compile(r"s_(wait\w*|nop|delay_alu|sendmsg(?!_rtn)|clause|sethalt|sleep|setprio|code_end)")
_JUMP = re.compile(r"s_c?branch")


@dataclass(frozen=True, eq=False)
class Decoded:
    """One instruction with its operands.

    index: its place in the program. line: of the kernel's source, or None. second: what is issued together with it.
    reaches_beyond: it accesses the word around a 16-bit element, the other half of which need not belong to the tensor.
    """

    index: int
    mnemonic: str
    text: str
    kind: str
    operands: tuple[Operand, ...]
    modifiers: Modifiers
    source: isa.SourceLine | None
    second: Decoded | None = None
    reaches_beyond: bool = False

    @property
    def line(self) -> int | None:
        return self.source.line if self.source else None

    @property
    def loads_to_lds(self) -> bool:
        """It loads from global memory straight into LDS; its first operand is the address, no result."""
        return "lds" in self.modifiers or "_load_lds_" in self.mnemonic


@dataclass(frozen=True, eq=False)
class Argument:
    """One kernel argument in the argument segment: where, how many bytes, and what it is (`value_kind`)."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True, eq=False)
class Block:
    """Instructions `start` to `stop` (exclusive): entered only at its first, left only after its last."""

    start: int
    stop: int


_MODE_FIELDS = {  # of the kernel descriptor, and where they stand in MODE
    "float_round_mode_32": 0,
    "float_round_mode_16_64": 2,
    "float_denorm_mode_32": 4,
    "float_denorm_mode_16_64": 6,
    "dx10_clamp": 8,
    "ieee_mode": 9,
    "fp16_overflow": 23,
}


@dataclass(frozen=True, eq=False)
class Program:
    """A kernel's code, and that of the functions which it calls.

    registers: vector registers a lane, accumulators included. scratch: private bytes a lane. entry: the instruction
    where the kernel begins. constants: data beside the code (see `constants`).
    """

    name: str
    arch: str
    text: str
    instructions: tuple[Decoded, ...]
    labels: dict[str, int]
    blocks: tuple[Block, ...]
    arguments: tuple[Argument, ...]
    argument_bytes: int
    registers: int
    scratch: int
    descriptor: dict[str, int]
    entry: int = 0
    constants: bytes = b""

    @property
    def lanes(self) -> int:
        """Lanes in a wave."""
        return hardware.wave_size(self.arch)

    @property
    def mode(self) -> int:
        """The MODE register as a wave begins."""
        kept = {"float_denorm_mode_32": 3, "float_denorm_mode_16_64": 3}  # where the text does not say: all denormals
        return sum(self.descriptor.get(name, kept.get(name, 0)) << place for name, place in _MODE_FIELDS.items())

    @cached_property
    def block_at(self) -> dict[int, int]:
        """Number of the block that begins at an instruction."""
        return {block.start: number for number, block in enumerate(self.blocks)}

    def target(self, instruction: Decoded) -> int:
        """The block that a jump goes to."""
        return self.block_at[self.labels[instruction.operands[0].text]]

    def following(self, number: int) -> Iterator[int]:
        """The blocks that may come after this one; calls are taken to come back."""
        last = self.instructions[self.blocks[number].stop - 1]
        if is_jump(last):
            yield self.target(last)
        if not is_end(last) and last.mnemonic != "s_branch" and number + 1 < len(self.blocks):
            yield number + 1


@lru_cache(maxsize=128)
def parse(text: str) -> Program:
    """Read the compiler's assembly text; remembered by the text."""
    arch = re.search(r'\.amd\w+_target "[^"]*?(gfx[0-9a-f]+)', text)[1]
    descriptor = {name: int(value) for name, value in re.findall(r"\.amdhsa_(\w+) (\d+)\s*$", text, re.MULTILINE)}
    facts = metadata.read(text)
    parsed = isa.parse(text)
    accumulators = descriptor.get("accum_offset", 256)
    labels = {label: index for index, names in parsed.labels.items() for label in names}
    data, addresses = constants.read(text)
    addresses |= {label: constants.code_address(index) for label, index in labels.items()}
    instructions = tuple(_relocated(decoded(parsed, accumulators), addresses))
    return Program(
        name=facts["name"],
        arch=arch,
        text=text,
        instructions=instructions,
        labels=labels,
        blocks=_blocks(instructions, set(labels.values())),
        entry=labels.get(facts["name"], 0),
        constants=data,
        arguments=tuple(Argument(a[".offset"], a[".size"], a[".value_kind"]) for a in facts["args"]),
        argument_bytes=facts["kernarg_segment_size"],
        registers=max((o.index + o.count for i in instructions for o in all_operands(i) if o.is_vector), default=1),
        scratch=facts["private_segment_fixed_size"],
        descriptor=descriptor,
    )


def decoded(parsed: isa.Program, accumulators: int = 256) -> tuple[Decoded, ...]:
    """The instructions with their operands; accumulator register a0 is vector register number `accumulators`."""
    return _with_words_around(tuple(_decode(i, one, accumulators) for i, one in enumerate(parsed.instructions)))


def _decode(index: int, instruction: isa.Instruction, accumulators: int) -> Decoded:
    mnemonic, text = instruction.mnemonic, instruction.operands
    text, both, rest = text.partition("::")
    second = _second(index, instruction, rest.strip(), accumulators) if both else None
    pieces, modifiers = ([], Modifiers()) if _UNPARSED.match(mnemonic) else operands.split(text)
    if _JUMP.match(mnemonic):
        pieces, modifiers = [text], Modifiers()  # a label of inline assembly may look like a modifier
    read = tuple(operands.operand(piece, accumulators) for piece in pieces)
    return Decoded(index, mnemonic, instruction.text, instruction.kind, read, modifiers, instruction.source, second)


_WORD_LOADS = ("global_load_dword", "global_load_b32", "s_load_dword", "s_load_b32")
_SWAPS = ("global_atomic_cmpswap", "global_atomic_cmpswap_b32")


def _with_words_around(instructions: tuple[Decoded, ...]) -> tuple[Decoded, ...]:
    """Mark compare-and-swaps of 32 bits, and the loads before them: those of the same line of the source."""
    lines = {one.source for one in instructions if one.mnemonic in _SWAPS}
    if not lines:
        return instructions
    around = lambda one: one.mnemonic in _SWAPS or one.mnemonic in _WORD_LOADS and one.source in lines  # noqa: E731
    return tuple(replace(one, reaches_beyond=True) if around(one) else one for one in instructions)


_RELATIVE = re.compile(r"(.+)@rel32@(lo|hi)([+-]\d+)")
_FAR = re.compile(r"\((\S+)-\S+\)(&4294967295|>>32)")  # a label from the instruction behind s_getpc


def _relocated(instructions: Iterable[Decoded], addresses: dict[str, int]) -> Iterator[Decoded]:
    """Operands that name an object of the program become the distance to it from the last s_getpc into these registers.

    The number behind the name counts from the operand itself: `table@rel32@lo+40` in the instruction behind s_getpc,
    its operand 4 bytes on, means the byte 36 of the table.
    A jump that is too far for s_branch is written with such a distance to a label and s_setpc: it becomes a jump.

    Raises:
        ValueError: the program names an object that it does not hold.
    """
    base: dict[int, int] = {}
    far: dict[int, str] = {}  # which label the address in a pair of registers is that of
    passed = 0  # bytes since the last s_getpc; an operand that names an object takes 4 more
    for instruction in instructions:
        named = [_RELATIVE.fullmatch(operand.text) for operand in instruction.operands]
        first = instruction.operands[0].index if instruction.operands else -1
        if instruction.mnemonic == "s_getpc_b64":
            base[first] = constants.code_address(instruction.index + 1)
            far.pop(first, None)
            passed = -4
        elif instruction.mnemonic == "s_setpc_b64" and first in far:
            label = replace(instruction.operands[0], text=far.pop(first))
            instruction = replace(instruction, mnemonic="s_branch", operands=(label,))
        elif found := _FAR.fullmatch(instruction.operands[-1].text if instruction.operands else ""):
            label, high = found[1], found[2] == ">>32"
            far[first - high] = label
            instruction = replace(
                instruction, operands=(*instruction.operands[:-1], _apart(instruction, label, base, addresses, high))
            )
        elif any(named):
            pairs = zip(instruction.operands, named)
            read = [_distance(instruction, o, f, base, addresses, passed + 4) if f else o for o, f in pairs]
            instruction = replace(instruction, operands=tuple(read))
        passed += 8 if any(named) else 4
        yield instruction


def _distance(
    instruction: Decoded, operand: Operand, found: re.Match, base: dict, addresses: dict, place: int
) -> Operand:
    """place: of the operand, in bytes behind s_getpc."""
    name, half, offset = found.groups()
    return _apart(instruction, name, base, addresses, half == "hi", int(offset) - place, operand)


def _apart(
    instruction: Decoded,
    name: str,
    base: dict[int, int],
    addresses: dict[str, int],
    high: bool,
    more: int = 0,
    operand: Operand | None = None,
) -> Operand:
    """The last operand, or this one, as half of the distance of an object or label from the last s_getpc, and more."""
    if name not in addresses:
        raise ValueError(f"`{instruction.text}` names {name}, which the program does not hold")
    distance = addresses[name] + more - base[instruction.operands[0].index - high]
    value = distance >> (32 if high else 0) & 0xFFFFFFFF
    return replace(operand or instruction.operands[-1], file="constant", value=value)


def all_operands(instruction: Decoded) -> tuple[Operand, ...]:
    """The operands, those of the second half of a pair too."""
    return instruction.operands + (instruction.second.operands if instruction.second else ())


def _second(index: int, first: isa.Instruction, text: str, accumulators: int) -> Decoded:
    mnemonic, _, rest = text.partition(" ")
    return _decode(index, isa.Instruction(mnemonic, rest, first.kind, first.source), accumulators)


# ---- blocks ----------------------------------------------------------------------------------------------------------

_BARRIER = re.compile(r"s_barrier(_signal|_wait)?$")


def is_barrier(instruction: Decoded) -> bool:
    """True where a wave tells the others of its workgroup that it has come, or waits until all have, or both."""
    return bool(_BARRIER.match(instruction.mnemonic))


def arrives(instruction: Decoded) -> bool:
    """Of a barrier: the wave has come."""
    return not instruction.mnemonic.endswith("_wait")


def waits(instruction: Decoded) -> bool:
    """Of a barrier: the wave goes on when all have come."""
    return not instruction.mnemonic.endswith("_signal")


def is_end(instruction: Decoded) -> bool:
    return instruction.mnemonic == "s_endpgm"


def is_jump(instruction: Decoded) -> bool:
    return instruction.mnemonic.startswith(("s_branch", "s_cbranch"))


def is_call(instruction: Decoded) -> bool:
    """To an address in registers, leaving the address of the next instruction."""
    return instruction.mnemonic == "s_swappc_b64"


def is_return(instruction: Decoded) -> bool:
    """To an address in registers."""
    return instruction.mnemonic == "s_setpc_b64"


def is_trap(instruction: Decoded) -> bool:
    """It stops the launch."""
    return instruction.mnemonic == "s_trap"


def is_control(instruction: Decoded) -> bool:
    """True for what decides which instruction comes next: the executor does it, and no table."""
    return any(test(instruction) for test in (is_jump, is_barrier, is_end, is_call, is_return, is_trap))


def _ends_block(instruction: Decoded) -> bool:
    if is_control(instruction) or "saveexec" in instruction.mnemonic:
        return True
    if instruction.mnemonic.startswith("v_cmpx"):
        return True
    return any(o.is_scalar and o.index >= operands.EXEC for o in instruction.operands[:1])


def _blocks(instructions: tuple[Decoded, ...], jumped_to: set[int]) -> tuple[Block, ...]:
    """Blocks also end where EXEC is written, so that the active lanes are the same throughout one."""
    starts = {0} | jumped_to | {i.index + 1 for i in instructions if _ends_block(i)}
    edges = sorted(start for start in starts if start < len(instructions)) + [len(instructions)]
    return tuple(Block(start, stop) for start, stop in zip(edges, edges[1:]))
