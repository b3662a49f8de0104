"""Data that stands beside a kernel's code: texts to print, tables. And where code and data lie in memory.

    .type   printfFormat_0,@object
    printfFormat_0:
            .ascii  "x is %d\\n"
            .size   printfFormat_0, 8

Addresses are invented: an instruction takes 8 bytes, data begin at the first region of memory.
"""

from __future__ import annotations

import re

CODE = 1 << 32
DATA = 1 << 40
_INSTRUCTION = 8  # bytes

_OBJECT = re.compile(r"\s*\.type\s+(\S+),@object")
_LABEL = re.compile(r"([^\s:;]+):")
_DIRECTIVE = re.compile(r"\s*\.(\w+)\s*(.*?)\s*(?:;[^\"]*)?$")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b", "f": "\f", "r": "\r"}
_SIZES = {"byte": 1, "short": 2, "value": 2, "long": 4, "int": 4, "quad": 8}


def code_address(index: int) -> int:
    """Where an instruction lies, by its number in the program."""
    return CODE + _INSTRUCTION * index


def index_of(address: int) -> int:
    """The instruction that lies at an address."""
    return (address - CODE) // _INSTRUCTION


def read(asm: str) -> tuple[bytes, dict[str, int]]:
    """The constant data of an assembly text, and the address of each of its objects.

    Raises:
        ValueError: a directive of them is not understood.
    """
    data, addresses = bytearray(), {}
    objects: set[str] = set()
    current = ""
    for line in asm.splitlines():
        if found := _OBJECT.match(line):
            objects.add(found[1])
        elif (found := _LABEL.match(line)) and found[1] in objects:
            current = found[1]
            data += bytes(-len(data) % 64)  # as aligned as any of them asks for
            addresses[current] = DATA + len(data)
        elif current and (found := _DIRECTIVE.match(line)):
            if found[1] == "size":
                current = ""
            else:
                data += _bytes(found[1], found[2])
    return bytes(data), addresses


def _bytes(directive: str, content: str) -> bytes:
    if directive in ("ascii", "asciz", "string"):
        text = "".join(_TEXT.findall(content))
        raw = _ESCAPE.sub(lambda found: _unescaped(found[1]), text).encode("latin-1")
        return raw if directive == "ascii" else raw + b"\0"
    if directive in ("zero", "skip"):
        return bytes(int(content.split(",")[0], 0))
    if directive in _SIZES:
        size = _SIZES[directive]
        numbers = (int(number, 0) for number in content.split(","))
        return b"".join((number & ((1 << 8 * size) - 1)).to_bytes(size, "little") for number in numbers)
    if directive in ("p2align", "globl", "hidden", "protected", "weak", "section", "local"):
        return b""
    raise ValueError(f"the simulator does not know the directive .{directive} {content} of constant data")


def _unescaped(code: str) -> str:
    return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _ESCAPED.get(code, code)
