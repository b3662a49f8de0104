"""Reads AMD's pseudocode, as the ISA guides print it, into tuples: a tag and what belongs to it."""

from __future__ import annotations

import re
from functools import cache

from oracle.bits import Bits, Unsupported, floating

_TOKEN = re.compile(
    r"""\s+|//[^\n]*\n?
    |(?P<sized>\d+'(?:-?\d+\.\d+|0x[0-9a-fA-F]+|\d+)(?:ULL|LL|UL|U|L|F)?)
    |(?P<cast>\d+'(?:BF|[UIFB]))
    |(?P<num>(?:0x[0-9a-fA-F]+|\d+\.\d+(?:e[+-]?\d+)?|\d+)(?:ULL|LL|UL|U|L|F)?)
    |(?P<id>[A-Za-z_]\w*)
    |(?P<op>\*\*|<<=|>>=|>>>|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|\*=|&=|\|=|\^=|\+:|[-+*/%&|^~!<>?:=()\[\]{},.;])""",
    re.VERBOSE,
)
_KEYWORDS = {
    *("if", "then", "elsif", "else", "endif", "for", "in", "do", "endfor", "while", "endwhile"),
    *("declare", "return", "break", "lambda"),
}
_LEVELS = (
    *(("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="), ("<<", ">>", ">>>")),
    *(("+", "-"), ("*", "/", "%"), ("**",)),
)
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "&=", "|=", "^=", "<<=", ">>=")


@cache
def parse(text: str) -> list[tuple]:
    """The statements of a pseudocode text; remembered by the text."""
    return _Parser(text).block()


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if not token:
            raise Unsupported(f"token {text[at : at + 20]!r}")
        at = token.end()
        if kind := token.lastgroup:
            word = token[kind]
            found.append(("keyword" if kind == "id" and word in _KEYWORDS else kind, word))
    return [*found, ("end", "")]


class _Parser:
    def __init__(self, text: str):
        self.tokens, self.place = _tokens(text), 0

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        return self.tokens[min(self.place + ahead, len(self.tokens) - 1)]

    def at(self, *words: str) -> bool:
        return self.peek()[1] in words and self.peek()[0] != "end"

    def eat(self, word: str | None = None) -> tuple[str, str]:
        token = self.tokens[self.place]
        if word is not None and token[1] != word:
            raise Unsupported(f"expected {word!r}, not {token[1]!r}")
        self.place += 1
        return token

    # ---- statements --------------------------------------------------------------------------------------------------

    def block(self, *stop: str) -> list[tuple]:
        body = []
        while True:
            while self.at(";"):
                self.eat()
            if self.peek()[0] == "end" or self.at(*stop):
                return body
            body.append(self.statement())

    def statement(self) -> tuple:
        kind, word = self.peek()
        special = {"declare": self.declaration, "if": self.condition, "for": self.loop, "while": self.repetition}
        if kind == "keyword" and word in special:
            self.eat()
            return special[word]()
        if kind == "keyword" and word == "return":
            self.eat()
            return ("return", self.expression())
        if kind == "keyword" and word == "break":
            self.eat()
            return ("break",)
        return self.assignment()

    def declaration(self) -> tuple:
        name = self.eat()[1]
        self.eat(":")
        what, size = self.eat()[1], None
        if self.at("["):
            self.eat()
            size = self.expression()
            self.eat("]")
        return ("declare", name, what, size)

    def condition(self) -> tuple:
        arms, other = [], []
        while True:
            condition = self.expression()
            self.eat("then")
            arms.append((condition, self.block("elsif", "else", "endif")))
            if not self.at("elsif"):
                break
            self.eat()
        if self.at("else"):
            self.eat()
            other = self.block("endif")
        self.eat("endif")
        return ("if", arms, other)

    def loop(self) -> tuple:
        name = self.eat()[1]
        self.eat("in")
        first = self.expression()
        self.eat(":")
        last = self.expression()
        self.eat("do")
        body = self.block("endfor")
        self.eat("endfor")
        return ("for", name, first, last, body)

    def repetition(self) -> tuple:
        condition = self.expression()
        self.eat("do")
        body = self.block("endwhile")
        self.eat("endwhile")
        return ("while", condition, body)

    def assignment(self) -> tuple:
        target = self.postfix()
        op = self.peek()[1]
        if op == "=" and self.peek(1)[1] == "lambda":
            self.eat()
            return self.function(target[1])
        if op not in _ASSIGNMENTS:
            return ("expression", target)
        self.eat()
        value = self.expression()
        if op == "=" and self.at("="):  # a = b = value
            self.eat()
            value = ("chain", value, self.expression())
        return ("set", target, value if op == "=" else ("binary", op[:-1], target, value))

    def function(self, name: str) -> tuple:
        self.eat("lambda")
        self.eat("(")
        parameters = []
        while not self.at(")"):
            parameters.append(self.eat()[1])
            if self.at(","):
                self.eat()
        self.eat(")")
        self.eat("(")
        simple = not self.at("declare", "for", "if", "return")
        body = [("return", self.expression())] if simple else self.block(")")
        self.eat(")")
        return ("lambda", name, parameters, body)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def expression(self) -> tuple:
        condition = self.binary(0)
        if not self.at("?"):
            return condition
        self.eat()
        yes = self.expression()
        self.eat(":")
        return ("choice", condition, yes, self.expression())

    def binary(self, level: int) -> tuple:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek()[0] == "op" and self.peek()[1] in _LEVELS[level]:
            op = self.eat()[1]
            left = ("binary", op, left, self.binary(level + 1))
        return left

    def unary(self) -> tuple:
        if self.peek()[0] == "op" and self.peek()[1] in "-+~!":
            return ("unary", self.eat()[1], self.unary())
        return self.postfix()

    def arguments(self, last: str) -> list[tuple]:
        found = []
        while not self.at(last):
            found.append(self.expression())
            if self.at(","):
                self.eat()
        self.eat(last)
        return found

    def primary(self) -> tuple:
        kind, word = self.eat()
        if kind in ("num", "sized"):
            return ("constant", _constant(word) if kind == "num" else _sized(word))
        if kind == "cast":
            self.eat("(")
            inner = self.expression()
            self.eat(")")
            return ("cast", word, inner)
        if kind == "id" or kind == "keyword" and word == "in":
            if not self.at("("):
                return ("name", word)
            self.eat()
            return ("call", word, self.arguments(")"))
        if word == "(":
            inner = self.expression()
            self.eat(")")
            return inner
        if word == "{":
            return ("joined", self.arguments("}"))
        raise Unsupported(f"unexpected {word!r}")

    def postfix(self) -> tuple:
        node = self.primary()
        while True:
            if self.at("."):
                self.eat()
                node = ("type", node, self.eat()[1])
            elif self.at("["):
                self.eat()
                node = self.part(node)
                self.eat("]")
            else:
                return node

    def part(self, node: tuple) -> tuple:
        first = self.expression()
        if self.at(":"):
            self.eat()
            return ("slice", node, first, self.expression())
        if self.at("+:"):
            self.eat()
            size = self.expression()
            one = ("constant", Bits(1, 32, "i", True))
            last = ("binary", "-", size, one)  # first of all: the sum with the size itself may be wider than its terms
            return ("slice", node, ("binary", "+", first, last), first)
        return ("index", node, first)


_SUFFIX = re.compile(r"(0x[0-9a-fA-F]+?|[\d.e+-]+)(ULL|LL|UL|U|L|F)?")
_TYPE_OF_SUFFIX = {"ULL": (64, "u"), "UL": (64, "u"), "LL": (64, "i"), "L": (64, "i"), "U": (32, "u")}


def _constant(word: str) -> Bits:
    body, suffix = _SUFFIX.fullmatch(word).groups()
    if "." in body or suffix == "F":
        return floating(float(body), 32 if suffix == "F" else 64)
    number = int(body, 0)
    if suffix:
        return Bits(number, *_TYPE_OF_SUFFIX[suffix])
    return Bits(number, 32 if number < 1 << 32 else 64, "i", True)


def _sized(word: str) -> Bits:
    width, body = word.split("'")
    if "." in body:
        return floating(float(body.rstrip("F")), int(width))
    return Bits(int(_SUFFIX.fullmatch(body)[1], 0), int(width), "u")
