"""Executes the pseudocode of one instruction for one lane or wave, exactly: nothing flushed, all rounded once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from oracle.bits import (
    MANTISSA_AND_BIAS,
    Bits,
    Power,
    Unsupported,
    boolean,
    encode,
    floating,
    is_denormal,
    operate,
    rounded,
    scaled,
    to_integer,
)
from oracle.functions import FUNCTIONS, TRANSCENDENTAL, conversion
from oracle.parser import parse

_TYPE = re.compile(r"(u|i|f|bf|b)(\d+)")
_DECLARED = {"U": "u", "I": "i", "F": "f", "B": "b", "BF": "bf"}
_NEAREST_WHOLE = re.compile(r"D0\.f(\d+) = floor\(S0\.f\d+ \+ (?:16')?0\.5")
_OUTPUTS = ("D0", "D1", "EXEC", "SCC", "RETURN_DATA", "VDATA")
_INFINITY, _PI = floating(math.inf, 64), floating(math.pi, 64)
_NAMES = {
    "INF": _INFINITY,
    "PI": _PI,
    "ROUND_TOWARD_ZERO": Bits(3, 2, "u"),
    "ROUND_NEAREST_EVEN": Bits(0, 2, "u"),
    "ROUND_MODE": Bits(0, 2, "u"),
    "OVERFLOW_F32": floating(math.inf, 32),
    "UNDERFLOW_F32": floating(0.0, 32),
    "OVERFLOW_F64": _INFINITY,
    "UNDERFLOW_F64": floating(0.0, 64),
    "MAX_FLOAT_F32": Bits(0x7F7FFFFF, 32, "f"),
    "MAX_FLOAT_F16": Bits(0x7BFF, 16, "f"),
}
_ADDRESSES = ("CalcDsAddr", "CalcGlobalAddr", "CalcBufferAddr", "CalcFlatAddr")
_DENORMAL = "a denormal"  # what `== DENORM.f32` asks for


class _Returned(Exception):
    def __init__(self, value: Bits):
        self.value = value


class _Broken(Exception):
    pass


class Memory:
    """What MEM[...] means: the bytes of one lane, from address 0."""

    def __init__(self, content: bytes):
        self.content = bytearray(content)

    def read(self, address: int, width: int, kind: str) -> Bits:
        return Bits(int.from_bytes(self.content[address : address + width // 8], "little"), width, kind)

    def write(self, address: int, value: Bits) -> None:
        size = value.width // 8
        self.content[address : address + size] = value.bits.to_bytes(size, "little")


class Interpreter:
    """names: what the text reads and writes, S0, D0, VCC, EXEC, ... `written`: by output, which bits were assigned.

    text_of: gives the pseudocode of an instruction that the text calls as a function. approximate: a transcendental
    function was used, which the hardware rounds in its own way.
    """

    def __init__(self, names: dict, text_of: Callable[[str], str | None]):
        self.names, self.text_of = names, text_of
        self.written: dict[str, int] = {}
        self.functions: dict[str, tuple] = {}
        self.toward_zero = self.approximate = False

    def run(self, text: str) -> None:
        if found := _NEAREST_WHOLE.match(text):  # the guides' floor(x + 0.5) for "to nearest, ties to even" is naive
            value = Bits(self.names["S0"].bits, int(found[1]), "f")
            x = value.number
            whole = floating(math.copysign(float(np.rint(x)), x), value.width) if math.isfinite(x) else value
            self.store(("type", ("name", "D0"), f"f{found[1]}"), whole)
            return
        self.block(parse(text))

    # ---- statements --------------------------------------------------------------------------------------------------

    def block(self, body: list[tuple]) -> None:
        for tag, *rest in body:
            getattr(self, f"_do_{tag}")(*rest)

    def _do_set(self, target: tuple, value: tuple) -> None:
        if value[0] == "chain":
            result = self.value(value[2])
            self.store(value[1], result)
        else:
            result = self.value(value)
        self.store(target, result)

    def _do_if(self, arms: list, other: list) -> None:
        self.block(next((body for condition, body in arms if self.value(condition).truth), other))

    def _do_for(self, name: str, first: tuple, last: tuple, body: list) -> None:
        try:
            for i in range(self.value(first).number, self.value(last).number + 1):
                self.names[name] = Bits(i, 32, "i", True)
                self.block(body)
        except _Broken:
            pass

    def _do_while(self, condition: tuple, body: list) -> None:
        for _ in range(10_000):
            if not self.value(condition).truth:
                return
            self.block(body)
        raise Unsupported("a loop without an end")

    def _do_declare(self, name: str, what: str, size: tuple | None) -> None:
        width, kind = _declared(what)
        if size is None:
            self.names[name] = Bits(0, width, kind)
        elif name == "S":
            self.names[name] = [self.names[f"S{i}"] for i in range(self.value(size).number)]
        else:
            self.names[name] = [Bits(0, width, kind) for _ in range(self.value(size).number)]

    def _do_lambda(self, name: str, parameters: list, body: list) -> None:
        self.functions[name] = parameters, body

    def _do_return(self, value: tuple) -> None:
        raise _Returned(self.value(value))

    def _do_break(self) -> None:
        raise _Broken

    def _do_expression(self, node: tuple) -> None:
        if node[:2] != ("call", "nop"):
            self.value(node)

    # ---- storing -----------------------------------------------------------------------------------------------------

    def store(self, target: tuple, value: Bits) -> None:
        if target[0] == "joined":
            at = 0
            for part in reversed(target[1]):
                width = self._width(part)
                self.store(part, Bits(value.bits >> at, width, "u"))
                at += width
            return
        chain, node = [], target
        while node[0] != "name":
            chain.append(node)
            node = node[1]
        self._store_named(node[1], chain[::-1], value)

    def _store_named(self, name: str, chain: list, value: Bits) -> None:
        if name == "MEM":
            kind, width = _type(chain[1][2]) if len(chain) > 1 else ("b", 32)
            self.names["MEM"].write(self.value(chain[0][2]).number, self.converted(value, kind, width))
            return
        if name == "ROUND_MODE":
            self.toward_zero = value.bits == 3
            self.names[name] = value
            return
        if name == "VCC" and not chain:
            name = "VCC_WHOLE"  # one lane's bit, in spite of what it says
        old = self.names.get(name)
        if isinstance(old, list):
            i = self.value(chain[0][2]).number
            old[i] = self._inserted(old[i], chain[1:], value, None)
        elif chain:
            self.names[name] = self._inserted(Bits(0, 64) if old is None else old, chain, value, name)
        elif name in _OUTPUTS:
            self.written[name] = self.written.get(name, 0) | ((1 << value.width) - 1)
            width = 1 if name == "SCC" else max(value.width, old.width if old else 0)
            self.names[name] = Bits(value.number if value.kind == "i" else value.bits, width)
        else:
            self.names[name] = list(value) if isinstance(value, list) else value

    def _inserted(self, old: Bits, chain: list, value: Bits, name: str | None) -> Bits:
        """`old` with the part that the chain of types, indices and slices names replaced."""
        offset, width, as_type = 0, None, None
        for link in chain:
            if link[0] == "type":
                as_type = _type(link[2])
                width = as_type[1] if width is None else width
            elif link[0] == "index":
                offset, width, as_type = offset + self.value(link[2]).number, 1, None
            else:
                high, low = self.value(link[2]).number, self.value(link[3]).number
                offset, width, as_type = offset + low, high - low + 1, None
        width = old.width if width is None else width
        value = self.converted(value, *as_type) if as_type else value
        if isinstance(value, Power):
            raise Unsupported("a power is stored")
        mask = ((1 << width) - 1) << offset
        bits = (value.number if value.kind == "i" else value.bits) & ((1 << width) - 1)
        if name is not None:
            self.written[name] = self.written.get(name, 0) | mask
        if not offset and as_type and name not in ("D0", "D1", "EXEC", "VCC") and old == Bits(0, 64) and width >= 32:
            return Bits(bits, width, as_type[0])
        whole = old.kind != "f" or offset == 0 and width == old.width
        return Bits(old.bits & ~mask | bits << offset, max(old.width, offset + width), old.kind if whole else "b")

    def _width(self, node: tuple) -> int:
        if node[0] == "type":
            return _type(node[2])[1]
        if node[0] == "slice":
            return self.value(node[2]).number - self.value(node[3]).number + 1
        raise Unsupported("parts of unknown width")

    # ---- expressions -------------------------------------------------------------------------------------------------

    def value(self, node: tuple):
        return getattr(self, f"_of_{node[0]}")(*node[1:])

    def _of_constant(self, value: Bits) -> Bits:
        return value

    def _of_name(self, name: str):
        if name in self.names:
            return self.names[name]
        if name in ("EXEC_LO", "EXEC_HI"):
            return Bits(self.names["EXEC"].bits >> (32 if name == "EXEC_HI" else 0), 32)
        if name in _NAMES:
            return _NAMES[name]
        raise Unsupported(f"name {name}")

    def _of_type(self, base: tuple, word: str):
        if base[0] == "name" and base[1] in ("WAVE_MODE", "MODE"):
            return Bits(0, 1, "u")
        if base == ("name", "DENORM"):
            return _DENORMAL
        kind, width = _type(word)
        if base[:2] == ("index", ("name", "MEM")):
            return self.names["MEM"].read(self.value(base[2]).number, width, kind)
        if base[0] == "name" and base[1] in ("INF", "NAN"):
            return floating(math.inf if base[1] == "INF" else math.nan, width)
        value = self.value(base)
        if not isinstance(value, Bits):
            raise Unsupported("a type of a list or of a power")
        return Bits(value.number if value.kind == "i" and width > value.width else value.bits, width, kind)

    def _of_index(self, base: tuple, index: tuple):
        value, i = self.value(base), self.value(index).number
        if isinstance(value, Memory):
            return value.read(i, 32, "b")
        return value[i] if isinstance(value, list) else Bits(value.bits >> i, 1, "u")

    def _of_slice(self, base: tuple, high: tuple, low: tuple) -> Bits:
        value, top, bottom = self.value(base), self.value(high).number, self.value(low).number
        if top - bottom > 4096:
            raise Unsupported("a slice of billions of bits")
        if bottom > top:  # the other way round: reversed bits
            bits = sum((value.bits >> j & 1) << (bottom - j) for j in range(top, bottom + 1))
            return Bits(bits, bottom - top + 1)
        return Bits(value.bits >> bottom, top - bottom + 1)

    def _of_joined(self, parts: list) -> Bits:
        bits = width = 0
        for value in map(self.value, reversed(parts)):
            bits |= value.bits << width
            width += value.width
        return Bits(bits, width)

    def _of_choice(self, condition: tuple, yes: tuple, no: tuple) -> Bits:
        return self.value(yes if self.value(condition).truth else no)

    def _of_cast(self, word: str, node: tuple):
        width, kind = _declared(word)
        return self.converted(self.value(node), kind, width, explicit=True)

    def _of_unary(self, op: str, node: tuple):
        value = self.value(node)
        if op == "!":
            return boolean(not value.truth)
        if op == "+":
            return value
        if op == "~":
            return Bits(~value.bits, value.width, value.kind)
        if value.is_float:
            return Bits(value.bits ^ (1 << (value.width - 1)), value.width, value.kind)
        return Bits(-value.number, value.width, "u" if value.kind == "b" else value.kind, value.weak)

    def _of_binary(self, op: str, left: tuple, right: tuple):
        if op in ("&&", "||"):
            first = self.value(left).truth
            return boolean(self.value(right).truth if first == (op == "&&") else first)
        a, b = self.value(left), self.value(right)
        if _DENORMAL in (a, b):
            return boolean(is_denormal(a if b == _DENORMAL else b))
        if op == "**":
            return self._power(a, b)
        if isinstance(a, Power) or isinstance(b, Power):
            return _times_power(op, a, b)
        if op in ("<<", ">>", ">>>"):
            return _shifted(op, a, b.number)
        if op in _COMPARISONS:
            return boolean(_COMPARISONS[op](a.number, b.number))
        if a.is_float or b.is_float:
            return self._of_floats(op, a, b)
        return _of_integers(op, a, b)

    def _power(self, a: Bits, b: Bits):
        if a.number != 2:
            raise Unsupported("a power of another number than 2")
        if not b.is_float:
            return Power(b.number)
        self.approximate = True
        try:
            x = 2.0**b.number if not math.isnan(b.number) else b.number
        except OverflowError:
            x = math.inf
        return floating(x, b.width)

    def _of_floats(self, op: str, a: Bits, b: Bits) -> Bits:
        if op not in "+-*/":
            raise Unsupported(f"{op} of floats")
        kind = "bf" if a.kind == b.kind == "bf" else "f"
        width = max(one.width for one in (a, b) if one.is_float)
        result = operate(op, float(a.number), float(b.number))
        return Bits(encode(result, width, kind, self.toward_zero), width, kind)

    def converted(self, value, kind: str, width: int, explicit: bool = False):
        """Numerically into another type."""
        if isinstance(value, Power):
            if explicit and kind == "f":
                return value
            value = floating(math.ldexp(1.0, max(-1074, min(1023, value.exponent))), 64)
        if kind in ("f", "bf"):
            return self._to_float(value, kind, width, explicit)
        if value.is_float:
            as_number = explicit and kind != "b"
            return Bits(to_integer(value.number, width, kind == "i") if as_number else value.bits, width, kind)
        return Bits(value.number, width, kind)

    def _to_float(self, value: Bits, kind: str, width: int, explicit: bool) -> Bits:
        if value.is_float:
            if (value.kind, value.width) == (kind, width):
                return value
            return Bits(encode(value.number, width, kind, self.toward_zero), width, kind)
        if value.kind == "b" or explicit and value.weak and value.bits > 0xFFFF:
            return Bits(value.bits, width, kind)
        if kind == "bf":
            return floating(float(value.number), 16, "bf")
        return Bits(rounded(Fraction(value.number), *MANTISSA_AND_BIAS[width]), width, "f")

    # ---- calls -------------------------------------------------------------------------------------------------------

    def _of_call(self, name: str, nodes: list) -> Bits:
        if name in _ADDRESSES:
            return self.names["ADDR"]
        arguments = [self.value(node) for node in nodes]
        if name in self.functions:
            return self._own(name, arguments)
        self.approximate = self.approximate or name in TRANSCENDENTAL
        if name == "pow":
            return self._power(*arguments)
        if name in FUNCTIONS:
            return FUNCTIONS[name](*arguments)
        if len(arguments) == 1 and (found := conversion(name, arguments[0], self.converted, self.toward_zero)):
            return found
        if name.startswith(("v_", "s_")) and (text := self.text_of(name)):
            return self._instruction(name, text, arguments)
        raise Unsupported(f"call of {name}")

    def _own(self, name: str, arguments: list) -> Bits:
        parameters, body = self.functions[name]
        before = dict(self.names)
        self.names.update(zip(parameters, arguments))
        try:
            self.block(body)
        except _Returned as returned:
            return returned.value
        finally:
            self.names.clear()
            self.names.update(before)
        raise Unsupported(f"{name} returns nothing")

    def _instruction(self, name: str, text: str, arguments: list) -> Bits:
        kept = ("VCC", "EXEC", "SCC", "laneId", "WAVE64", "WAVE32")
        names = {name: self.names[name] for name in kept if name in self.names} | {"D0": Bits(0, 64)}
        inner = Interpreter(names | {f"S{i}": value for i, value in enumerate(arguments)}, self.text_of)
        inner.run(text)
        self.approximate = self.approximate or inner.approximate
        kind = (re.search(r"_([uif])\d+$", name) or (0, "u"))[1]
        return Bits(inner.names["D0"].bits, inner.written.get("D0", 0).bit_length(), kind)


_COMPARISONS = {
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<>": lambda x, y: x < y or x > y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}
_INTEGERS = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: int(Fraction(x, y)) if y else 0,
    "%": lambda x, y: x % y if y else 0,
    "&": lambda x, y: x & y,
    "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
}


def _of_integers(op: str, a: Bits, b: Bits) -> Bits:
    """A constant without a type takes that of its neighbour."""
    if a.weak != b.weak:
        strong = b if a.weak else a
        width, kind = strong.width, "u" if strong.kind == "b" else strong.kind
        width = max(width, 32) if op in "+-*" else max(width, 1)
    else:
        width, kind = max(a.width, b.width), "i" if a.kind == b.kind == "i" else "u"
    return Bits(_INTEGERS[op](a.number, b.number), width, kind, a.weak and b.weak)


def _shifted(op: str, a: Bits, n: int) -> Bits:
    if op == "<<":
        return Bits(a.bits << min(n, 4096) if n >= 0 else 0, a.width, a.kind, a.weak)
    if op == ">>>":
        return Bits(a.bits >> n, a.width, "u")
    return Bits(a.bits >> n if a.is_float else a.number >> n, a.width, a.kind)


def _times_power(op: str, a, b):
    if op != "*":
        raise Unsupported(f"{op} of a power")
    power, value = (a, b) if isinstance(a, Power) else (b, a)
    if isinstance(value, Power):
        return Power(power.exponent + value.exponent)
    if not value.is_float:
        raise Unsupported("a power times an integer")
    return scaled(value, power.exponent)


def _type(word: str) -> tuple[str, int]:
    found = _TYPE.fullmatch(word)
    if not found:
        raise Unsupported(f"type {word}")
    return found[1], int(found[2])


def _declared(word: str) -> tuple[int, str]:
    width, kind = word.split("'")
    return int(width), _DECLARED[kind]
