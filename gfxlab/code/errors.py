"""Compile errors as a learner can use them: the line they wrote, and one plain sentence."""

from __future__ import annotations

import re

from gfxlab.tracebacks import ShortTraceback


class AmdError(ShortTraceback, Exception):
    """A kernel that cannot be compiled for AMD. `filename` and `line` are the author's; None when there is none."""

    def __init__(self, message: str, filename: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.filename = filename
        self.line = line


class AmdCompileError(AmdError):
    """The compiler refuses the kernel, and says why."""


class AmdLimitError(AmdError, ValueError):
    """The compiler would accept the kernel, the hardware would not."""


class ShippingError(AmdError):
    """The kernel uses something that cannot be handed to the compiler's process."""


# What the compiler says -> what to tell the learner. Groups of the pattern may be used in the sentence.
_SENTENCES: tuple[tuple[str, str], ...] = (
    (r"Both operands must be same dtype. Got (\w+) and (\w+)", "tl.dot was given {0} and {1}; convert one of them"),
    (r"Cannot evaluate f-string", "an f-string in a kernel can only hold tl.constexpr values"),
    (r"\[\] is not string", "print needs a text first in a kernel: tl.device_print('x', x)"),
    (r"__setitem__ is not supported", "an element of a block cannot be assigned; use tl.where with a mask"),
    (r"object of type 'tensor' has no len", "a block has no len(); its sides are in x.shape, or pass the size"),
    (
        r"must be real number, not tensor|float\(\) argument must be|int\(\) argument must be",
        "Python's own functions take no blocks; use tl.exp, tl.sqrt, ... and x.to(tl.float32)",
    ),
    (
        r"Unsupported function referenced: <(?:ufunc|built-in)",
        "the kernel calls a function of NumPy, PyTorch or Python; inside a kernel use Triton's own (tl.exp, ...)",
    ),
    (r"got an unexpected keyword argument 'dim'", "Triton says axis where PyTorch says dim: axis=0"),
    (r"got an unexpected keyword argument '(\w+)'", "this function has no argument {0}"),
    (r"missing (?:\d+ |a )?required (?:positional )?arguments?:? '(\w+)'", "the argument {0} is missing"),
    (r"'int' object is not iterable", "a shape is a tuple: tl.zeros((BLOCK,), tl.float32)"),
    (
        r"constexpr'? object has no attribute 'handle'",
        "a loop must have an end that depends on something: `while i < n`",
    ),
    (
        r"Mismatched type for (\w+) between then block \((.+?)\) and else block \((.+?)\)",
        "{0} is {1} in one branch and {2} in the other; give both the same type",
    ),
    (
        r"Loop-carried variable (\w+) has initial type (.+?) but is re-assigned to (.+?) in loop",
        "{0} enters the loop as {1} and leaves it as {2}; start it as what it will be (0.0, or tl.zeros)",
    ),
    (r"binary operator 'MatMult'", "@ is no operator in a kernel; use tl.dot(a, b)"),
    (r"operand type\(s\) for \*\*", "** is no operator in a kernel; write x * x, or tl.exp2 and tl.log2"),
    (r"(?<!\w)(sum|abs) is not defined", "{0} is Python's; inside a kernel use tl.{0}"),
    (r"(?:min|max) requires at least 2 values", "max and min compare two values; over a block use tl.max(x, axis=0)"),
    (r"object has no attribute '?scalar'?", "a type in a kernel is Triton's: x.to(tl.float32)"),
    (r"'?List'? object has no attribute '?func'?", "a loop in a kernel runs over range(...) or tl.static_range(...)"),
    (r"invalid axis (-?\d+)", "the block has no axis {0}; the first axis is 0"),
    (
        r"^error encountered during parsing",
        "the compiler does not say where; a mask that holds numbers instead of a comparison, or an `if ... else` on a "
        "block (use tl.where), are two causes",
    ),
    (r"unsupported AST node type: Lambda", "a kernel cannot contain a lambda; write a @triton.jit function"),
    (
        r"unsupported AST node type: (Break|Continue)",
        "a loop in a kernel cannot {0}; use a mask, or a condition of `while`",
    ),
    (
        r"unsupported AST node type: (\w+)",
        "a kernel cannot contain {0}; it is made of arithmetic, tl functions, if, for and while",
    ),
    (
        r"only tuple comprehensions are supported",
        "a kernel cannot build lists or dicts; use blocks (tl.arange, tl.zeros)",
    ),
    (
        r"kernel may not return|^$",
        "the compiler does not say why; a kernel that returns a value is one cause: use tl.store",
    ),
    (r"(\w+)\(\) got an unexpected keyword argument '(\w+)'", "tl.{0} has no argument {1}"),
    (
        r"Unsupported ptr type \S+ in `?([\w.]+)`?",
        "{0} needs a pointer and was given a number; pass the tensor itself and add offsets to its pointer",
    ),
    (
        r"Value argument cannot be block type if pointer argument is not a block",
        "this stores a block of values through one pointer; add a block of offsets (tl.arange) to the pointer",
    ),
    (
        r"unsupported tensor index",
        "a block cannot be indexed by numbers, only reshaped with [:, None]; use a mask or tl.sum",
    ),
    (
        r"Boolean value of Tensor with more than one value is ambiguous",
        "`if` (or `and`, `or`, `not`) cannot decide for a whole block, whose lanes differ; use tl.where or a mask",
    ),
    (
        r"[Cc]annot access global variable (\w+)",
        "a kernel cannot read the global variable {0}; pass it as an argument `{0}: tl.constexpr`, "
        "or write `{0} = tl.constexpr(...)` where it is defined",
    ),
    (r"(?:NameError: )?(?:name ')?(\w+)(?:')? is not defined", "{0} is not defined here"),
    (
        r"Expected dtype \[(.*?)\] but got (\w+)",
        "this function takes {0}, not {1}; convert first with .to(tl.float32)",
    ),
    (
        r"arange's range must be a power of 2",
        "the length of tl.arange must be a power of two; see triton.next_power_of_2",
    ),
    (
        r"arange's arguments must be of type tl.constexpr",
        "the ends of tl.arange must be known to the compiler; mark the argument as `: tl.constexpr`",
    ),
    (
        r"[Ss]hape element \d+ must (?:have type|be a power of 2).*|shape must be a power of 2.*",
        "the sides of a block must be powers of two known to the compiler",
    ),
    (
        r"incompatible dimensions at index (\d+): (\d+) and (\d+)",
        "blocks of {1} and of {2} elements do not fit (dimension {0}); add an axis with [:, None] or [None, :]",
    ),
    (r"Input shapes should have (.*)", "tl.dot needs {0}"),
    (r"module '?([\w.]+)'? has no attribute '?(\w+)'?", "{0} has no {1}"),
    (r"'?(\w+)'? object has no attribute '?(\w+)'?", "a {0} has no {1}"),
)
_COMPILED = tuple((re.compile(pattern), sentence) for pattern, sentence in _SENTENCES)


def plain(message: str) -> str:
    """One plain sentence for what the compiler says; its own first line when the error is not a known one."""
    for pattern, sentence in _COMPILED:
        if found := pattern.search(message):
            return sentence.format(*(_AST_WORDS.get(group, _type(group)) for group in found.groups()))
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[0] if lines else "the compiler gives no reason"


def _type(words: str) -> str:
    """Triton's `<['64'], fp32>` as a reader says it."""
    return _BLOCK.sub(r"a block of \2", words)


_BLOCK = re.compile(r"<\[(.*?)\], (\w+)>")
_AST_WORDS = {
    "Break": "break", "Continue": "continue", "Dict": "a dict", "Set": "a set", "Try": "try", "With": "with",
    "Raise": "raise", "Yield": "yield", "ClassDef": "a class", "FunctionDef": "a function", "Import": "an import",
    "DictComp": "a dict", "SetComp": "a set", "GeneratorExp": "a generator", "Delete": "del", "Global": "global",
}  # fmt: skip


def compile_error(kernel: str, error: dict) -> AmdCompileError:
    """The error that a compile job describes: {"message", "line", "filename", "source_line"}."""
    sentence = plain(error["message"])
    line = error.get("line")
    where = f"{kernel} does not compile for AMD"
    if line:
        where += f": line {line}, `{error['source_line'].strip()}`"
    return AmdCompileError(f"{where}: {sentence}.", error.get("filename"), line)
