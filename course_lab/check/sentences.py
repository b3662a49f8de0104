"""The diagnoses: a code for machines and authors, a sentence for the learner.

A sentence is short and concrete, says where to look, and never what to write.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from course_lab.check.protocol import Problem
from gfxlab.code.errors import plain

SENTENCES = {
    "syntax-error": "Python cannot read line {line}: {message}.",
    "exception": "{plain}",
    "no-entry": "The cell does not define {entry}: the check calls a function of that name. It defines {defined}.",
    "too-slow": "Still running after {limit:g} seconds{where}, and your code has no loop. "
    "How many programs does the grid start, and how many would do?",
    "timeout": "Still running after {limit:g} seconds{where}. Does every loop there come to an end, "
    "and how many programs take it?",
    "memory": "It asks for more memory than the check allows{where}. Compare the size with what one block needs.",
    "crash": "The process died{where}: {message}.",
    "no-kernel": "No Triton kernel of yours ran: PyTorch did the work. Write a @triton.jit function and launch it.",
    "torch-result": "Your kernel ran, but the tensor that you return was made by PyTorch. Let the kernel write it.",
    "torch-before": "None of your kernels was given the numbers of {argument}: PyTorch had computed something from "
    "them before. Let the kernel read them and do all of it.",
    "not-launched": "{kernel} is defined but never launched. What goes into the square brackets of a launch?",
    "not-always-launched": "In this case none of your kernels was launched. Which condition stands before the launch?",
    "result-reused": "This call changed what the call before had returned. Each result needs memory of its own: "
    "where is the output allocated, and how often?",
    "input-returned": "{output} lies in the memory of the argument {argument}: who changes one changes both. "
    "The text asks for a new tensor. Where is it allocated?",
    "too-many-launches": "{got} kernels were launched for one call, and {allowed} must do. What can share one pass?",
    "wrong-type": "{entry} must return {wanted}, and it returned {got}.",
    "wrong-shape": "{output} must have the shape {wanted}, and it has {got}.",
    "wrong-dtype": "{output} must be {wanted}, and it is {got}. Where was its memory allocated, and with which dtype?",
    "wrong-layout": "{output} must be {wanted}, and it has {got}. Where was its memory allocated?",
    "input-modified": "The argument {argument} was changed{where}. An answer must leave its inputs as they are.",
    "missing-store-mask": "Program {program} stores past the end of {tensor}, in line {line}. "
    "Its block is longer than what is left: which lanes may write?",
    "missing-load-mask": "Program {program} loads past the end of {tensor}, in line {line}. "
    "Its block is longer than what is left: which lanes may read?",
    "mask-too-wide": "Line {line} of program {program} reaches element {element} of {tensor}, which has {size}, and "
    "its mask lets it. {ask}",
    "missing-parentheses": "In line {line} Python takes `{text}` together first: & and | come before < and ==. "
    "Where does each comparison begin and end?",
    "padding-slot": "Line {line} of program {program} goes to a place before the start of {tensor}: "
    "a padding slot, -1, was used as an address. Which lanes may not load or store?",
    "out-of-bounds": "Line {line} of program {program} reaches element {element} of {tensor}, which has {size}. "
    "Look at how its offsets are computed.",
    "missing-int64": "Line {line} of program {program} reaches element {element} of {tensor}: the offset went past "
    "2^31 and wrapped around. In how many bits is a row's number multiplied by its stride?",
    "far-row-missed": "Only the case “{case}” fails, and nothing leaves a tensor: what belongs to a row with a large "
    "number went elsewhere. In how many bits is that number kept, and what is done to it?",
    "wrong-stride": "Line {line} of program {program} reaches element {element} of {tensor}, which has {size}: {why}, "
    "and its strides are {strides}. Which number says how far it is to the next row?",
    "between-rows": "Line {line} of program {program} reaches between the rows of {tensor}: "
    "they lie further apart than they are long. Which number says how far?",
    "program-id-unused": "Programs {first} and {second} wrote the same elements. "
    "What must differ between two programs, and does every axis of the grid appear in the offsets?",
    "overlapping-programs": "Programs {first} and {second} both wrote element {element} of {tensor}. "
    "Where should the block of the second begin?",
    "through-float32": "Whole numbers came out rounded, as float32 rounds them: it holds each of them up to 2^24 only. "
    "Where do they become floating-point numbers?",
    "unset-memory": "Line {line} takes what lies in {tensor} before anything was stored there: `torch.empty` gives "
    "memory as it is. What should be in it at first?",
    "output-untouched": "Your kernel ran, but did not write the tensor that you return. Which one does it store to?",
    "nothing-stored": "{kernel} ran, and none of its programs stored anything. "
    "Is there a loop that takes no turn, or a mask that lets no lane through?",
    "loop-too-short": "The last {missing} of {total} {things} were never written: the loop ends before them. "
    "How many turns does it take when the last block is not full?",
    "grid-floor-division": "The last {missing} of {total} {things} were never written: the grid is one program short. "
    "How many blocks of {block} does it take to cover {total}?",
    "empty-grid": "The grid is {grid}: no program ran. How many blocks does it take when one is more than enough?",
    "block-too-short": "The last {missing} of {total} {things} were never written: one block of {block} is all that "
    "there is along it. From what must its length be computed?",
    "mask-too-narrow": "The last {missing} of {total} {things} were never written, though a program comes there. "
    "Which lanes does its mask let through?",
    "never-read": "Your kernel never reads {tensor}, and the result depends on it.",
    "never-used": "{name} is {there}, and nothing uses it: what should it go into?",
    "partly-read": "In the case “{case}”, {wanted} elements of {tensor} count, and your kernel reads {got} of them. "
    "Which does it leave out?",
    "partly-wrong": "Right in part. {part}",
    "kept-lost": "{missing} elements of {argument} were to stay as they are, and no longer do, first {index}; no "
    "kernel of yours stored there. What does PyTorch do to all of it?",
    "partly-written": "{missing} of {total} elements were never written, first {index}. {ask}",
    "missing-other": "Line {line} leaves its masked lanes without a value, and they reach the result. "
    "Which value would not disturb what comes next?",
    "swapped-strides": "The right values, in transposed order. Compare each stride with the index that it multiplies.",
    "shifted": "Your output is the right one, moved by {shift} elements. Look at where the offsets start.",
    "constant-factor": "Every element is {factor:.4g} times what it should be. Look at what is multiplied or divided.",
    "row-factor": "Each row is off by a factor of its own. Look at what the whole row is divided by.",
    "half-accumulation": "Every element is close, but not close enough. In which dtype are the numbers in between?",
    "not-finite": "What is wrong is infinite or NaN where numbers are expected. What is the largest argument of an "
    "`exp`, a product or a sum there, and is infinity divided by infinity or taken from itself?",
    "hard-coded-size": "Right for a size of {size}, wrong for others: {size} is written in line {line}. "
    "Should it come from the arguments?",
    "nondeterministic": "The same inputs gave two different results. Which memory is read before it was written, or "
    "what does one call leave to the next?",
    "gpu-differs": "Right on the interpreter, wrong on {gpu}. Programs run at the same time there: "
    "does one read what another writes?",
    "race": "{one} and {other}. Programs run at the same time: which comes first is luck, and here it shows. "
    "Should one program do both, an atomic order them, or a second launch follow?",
    "tuned-in-place": "Right as long as nothing is tuned. A GPU runs the kernel for each configuration to time it, and "
    "here what these runs leave in memory stays in the result. What must `triton.autotune` be told to put back?",
    "wave-race": "Right while all waves of a program go in step, wrong on a simulated {gpu} where one goes ahead: "
    "it has stored to {tensor} before another has loaded. Which lane loads an element, and which stores it?",
    "demand-not-met": "{sentence}",
    "unknown-pick": "{sentence}",
    "compiler-refuses": "Right on the interpreter, but not a kernel for {arch}: {message}",
    "simulator-differs": "Right on the interpreter, wrong in the machine code of a simulated {gpu}. {why}",
    "simulator-fault": "Right on the interpreter, refused in the machine code of a simulated {gpu}: {message}",
    "finding-failed": "{part}() gave nothing to try. {why}",
    "finding-refused": "{part}() returned {returned}, and that will not do: {why}.",
    "breaks-nothing": "The kernel as it was {where} {part}() returns. The symptom names a circumstance: "
    "which of the author's own inputs has it, and which has not?",
    "breaks-every-kernel": "On what {part}() returns, a right kernel fails as well: that says nothing about this one. "
    "Take numbers and sizes that a right kernel can bear.",
    "unknown-cause": "{got!r} is none of the causes in the statement: {known}.",
    "another-cause": "It is not {cause}. {why}",
    "unfinished": "What is there is right. Still missing: {missing}.",
    "still-bad-on-target": "On {arch}, with a size of {size}, the repair is still no cure: {why}.",
    "not-cured": "{right} of {all} cases are right now, and “{case}” is not. Which numbers does it have that those "
    "have not, and what does the repair do to them?",
    "old-test-fails": "The author's {test} passed before the repair and fails now: {why}.",
    "too-expensive": "Right, and too expensive: {got} {what}, where {most} are allowed. What does it do twice?",
    "one-change": "{place}",
    "astray": "{place}",
    "unknown": "The wrong elements fit no mistake that the check knows. Take the first one and follow it by hand: "
    "which program owns it, and what does that program load?",
}

MASK_TOO_WIDE = {
    "one-lane": "It is one lane too many: `<` or `<=`, and is the bound right?",
    "one": "It is one too many along axis {axis} of the block: `<` or `<=`, is the bound right, and does the block "
    "begin where it should?",
    "inverted": "What it holds back lies inside, and what it lets through outside. Which way round is it?",
    "later": "In an earlier turn of its loop this program stayed inside there: does anything ask whether what the loop "
    "counts is still there, and how far does it go?",
    "whole": "Nothing that this program does there lies inside: is the grid too large, or does its block begin at "
    "another program's number, or too far on?",
    "open": "Along axis {axis} of the block it holds nothing back. Which size ends there, and which stride is its own?",
    "": "Either the bound of the mask is no size of this tensor, or the offsets leave it: compare both, "
    "stride by stride, with the grid.",
}

WRONG_STRIDE = {
    "step": "what is next along axis {axis} of its block lies {step} elements on",
    "advance": "it begins {step} elements after program {other}",
}

ONLY_AGAIN = (
    "Each first call is right, and a second one with equal shapes is not. What does your code keep from the first: a "
    "tensor, a size, a result?"
)

LANES = (
    "{lines} to element {element} of {tensor}, from different lanes of a block. The lanes of one program run at the "
    "same time as well, so which number stays is luck. Which lane should store there, and which not?"
)

ARGUMENT_UNTOUCHED = (
    "Your kernel ran, and nothing was stored to the argument {argument}, which must hold something else "
    "after the call. Which kernel stores it, and under which condition?"
)

PARTLY_WRITTEN = {
    "creeps": "In line {line} the block of each turn begins {step} further than the one before, and is {length} long. "
    "How far should a turn go on?",
    "hole": "Which program should write it?",
    "few-programs": "{writers} of {programs} programs wrote, {block} elements each. How many does it take along each "
    "axis of the grid, and are its blocks as long as those that the kernel is given?",
    "short-mask": "The block of a program reaches it, and after {extent} elements no mask lets a lane through. "
    "What is its bound?",
}

# What to look at where an answer only has the numbers of a known mistake, and nobody saw it happen.
ALIKE = {
    "missing-store-mask": "Where a block is longer than what is left, which lanes may write?",
    "missing-load-mask": "Where a block is longer than what is left, which lanes may read?",
    "missing-other": "Which value do masked lanes hold, and does it reach the result?",
    "missing-int64": "Line {line} of program {program} reaches element {element} of {tensor}: the offset went past "
    "2^31 and wrapped around. In how many bits is a row's number multiplied by its stride?",
    "between-rows": "Rows may lie further apart than they are long. Which number says how far?",
    "program-id-unused": "What must differ between two programs, and is every axis of the grid in the offsets?",
    "overlapping-programs": "Where should the block of the second program begin?",
    "grid-floor-division": "How many blocks does it take to cover everything, when the last one is not full?",
    "partly-written": "Is every element of the output computed by some program?",
    "hard-coded-size": "Which number in your code should come from the arguments?",
    "swapped-strides": "Compare each stride with the index that it multiplies.",
    "shifted": "Look at where the offsets start.",
    "half-accumulation": "In which dtype are the numbers in between?",
}

_PLAIN = (  # (exception, pattern of its message, what it means); the first that fits
    ("NameError", r"name '(\w+)' is not defined", "Line {line} uses {0}, and nothing of that name is defined there."),
    ("", r"arange.*power of (2|two)", "Line {line}: tl.arange only makes lengths that are a power of two."),
    (
        "",
        r"arange's arguments must be of type tl.constexpr",
        "Line {line}: both ends of tl.arange are constants, known when the kernel is compiled. "
        "A start that is computed is added to the block.",
    ),
    (
        "TypeError",
        r"\b(max|min)imum\(\) (?:missing|got an unexpected keyword argument 'axis')",
        "Line {line}: tl.{0}imum compares two blocks. Over one block along an axis goes tl.{0}.",
    ),
    ("", r"missing a required argument: '(\w+)'|missing .* argument.*'(\w+)'", "A call in line {line} leaves out {0}."),
    (
        "TypeError",
        r"\b(load|store)\(\) (?:got multiple values for argument|takes .* positional arguments but)",
        "Line {line} hands tl.{0} too much: pointer and offsets are added, they are one argument.",
    ),
    (
        "",
        r"outside of the scope of a kernel",
        "Line {line} calls a kernel like a function: it needs a grid in [].",
    ),
    (
        "TypeError",
        r"object of type 'int' has no len",
        "Line {line}: a number has no length. If it is the grid, that is a tuple: (n,) is one, and (n) is a number.",
    ),
    (
        "AttributeError",
        r"has no attribute 'scalar'",
        "Line {line} names a type that is none of Triton's. In a kernel they are tl.float32, tl.bfloat16 and so on, "
        "and y_ptr.dtype.element_ty is that of what y_ptr points to.",
    ),
    (
        "AssertionError",
        r"^cannot cast \[",
        "Line {line} converts numbers to what is no type of numbers. Of a pointer's type, `.element_ty` is one.",
    ),
    (
        "AttributeError",
        r"'range' object has no attribute",
        "Line {line} computes with Python's range. A block of numbers is made by tl.arange.",
    ),
    (
        "AttributeError",
        r"(?-i:'tensor') object has no attribute '(\w+)'",
        "Line {line} asks a block for {0}, as one asks a tensor of PyTorch. In a kernel operations are functions "
        "of tl, and types are changed by x.to(tl.float32).",
    ),
    ("AttributeError", r"'triton.language' has no attribute '(\w+)'", "Line {line}: Triton has no tl.{0}."),
    ("AttributeError", r"has no attribute '(\w+)'", "Line {line} asks for {0}, and it does not exist there."),
    ("NotImplementedError", r"^$", "Line {line} says that this part is still to be written."),
    (
        "",
        r"block.?pointers?|make_block_ptr",
        "Line {line}: this Triton has no block pointers. Use offsets and a mask, or tl.make_tensor_descriptor.",
    ),
    (
        "ValueError",
        r"^axis (-?\d+) (?:is )?out of bounds",
        "Line {line}: the block has no axis {0}. The first axis is 0, and a row has no other.",
    ),
    (
        "ValueError",
        r"^axis \[",  # a block, given as the axis
        "Line {line}: tl.min and tl.max go over one block along an axis. tl.minimum and tl.maximum compare two.",
    ),
    (
        "TypeError",
        r"'float' object cannot be interpreted as an integer",
        "Line {line}: a whole number is needed here, and it got a float. triton.cdiv(n, BLOCK) divides and rounds up.",
    ),
    (
        "TypeError",
        r"must be Tensor, not (?-i:tensor)|combination of arguments - got \([^)]*(?-i:\btensor\b)",
        "Line {line} gives a block to a function of PyTorch. In a kernel the functions are those of tl, "
        "such as tl.where, tl.exp and tl.sum.",
    ),
    (
        "",
        r"only 0-dimensional arrays can be converted|only length-1 arrays can be converted|only size-1 arrays",
        "Line {line} needs one number, and got a block. Memory is read and written by tl.load and tl.store, not by []; "
        "and Python's own functions take one number, those of tl blocks.",
    ),
    (
        "TypeError",
        r"'int' object is not iterable",
        "Line {line}: a number where a tuple belongs, as in tl.zeros((BLOCK,), ...), or Python's sum, [] or `for` on a "
        "pointer or a block. Blocks are added up by tl.sum, memory is reached by tl.load and tl.store.",
    ),
    (
        "ValueError",
        r"Unsupported ptr type .* in `tl\.(\w+)`",
        "Line {line}: what tl.{0} takes first are addresses, a pointer with its offsets, and here they are numbers.",
    ),
    (
        "",
        r"invalid operands of type pointer<\S+> and [\w.]*float",
        "Line {line}: an offset is a whole number, and this one is a float. // divides so that none becomes one.",
    ),
    (
        "",
        r"invalid operands of type pointer",
        "Line {line} computes with addresses. What stands there is read by tl.load.",
    ),
    (
        "ValueError",
        r"Mask argument cannot be block type if pointer argument is not a block",
        "Line {line}: the mask is a block, and the address a single one. Is a block of offsets missing?",
    ),
    (
        "ValueError",
        r"Mask must have boolean scalar type",
        "Line {line}: a mask says yes or no for each lane, which a comparison does. This one holds numbers.",
    ),
    (
        "ValueError",
        r"^Expected (\w+) argument to have shape (\[.*\]) but got (\[.*\])",
        "Line {line}: the {0} has the shape {2}, where the values have {1}. Each value has an address of its own.",
    ),
    (
        "AssertionError",
        r"input and other must have equal ranks",
        "Line {line}: tl.dot multiplies tiles, blocks of two dimensions. One of these is none.",
    ),
    (
        "AssertionError",
        r"expected last dimension to be 2 for split, got (\d+)",
        "Line {line}: tl.split cuts a last axis of length 2, and this one has {0}.",
    ),
    (
        "TypeError",
        r"operand type\(s\) for @",
        "Line {line}: @ is no operator in a kernel. Tiles are multiplied by tl.dot.",
    ),
    (
        "TypeError",
        r"operand type\(s\) for \*\*",
        "Line {line}: ** is no operator in a kernel. x * x is a square.",
    ),
    (
        "TypeError",
        r"ufunc '\w+' not supported for the input types|unsupported operand type\(s\) for [&|]",
        "Line {line} joins things of kinds that do not go together. With & and |, each comparison needs parentheses.",
    ),
    ("TypeError", r"unsupported operand type", "Line {line} joins things of kinds that do not go together."),
    ("TypeError", r"'(?:int|float)' object is not callable", "Line {line} calls a number like a function."),
    ("NoInput", r"(.*)", "Line {line}: {0}"),
    ("SystemExit", r"", "Line {line} ends Python: take the exit out."),
)
_CONSTANT = re.compile(r"'?constexpr\[(\d+)\]'?")  # a side, as Triton writes it


class Diagnosis(NamedTuple):
    """The likely mistake: its code, kebab-case, and one or two sentences."""

    code: str
    sentence: str


def diagnosis(code: str, **fields: Any) -> Diagnosis:
    """The diagnosis with this code; `fields` fill the gaps of its sentence."""
    return Diagnosis(code, SENTENCES[code].format(**fields))


_ASKED = (
    "Look at how its offsets are computed.",
    "Which number says how far?",
    "Which number says how far it is to the next row?",
)


def without_question(found: Diagnosis) -> Diagnosis:
    """What was found, without asking for what is known by now: the mask, or the offsets?"""
    text = found.sentence
    for question in (MASK_TOO_WIDE[""], *_ASKED):
        text = text.replace(question, "").rstrip()
    return Diagnosis(found.code, text)


def without_guess(found: Diagnosis, *, but_one: bool = False) -> Diagnosis:
    """What was found, without the guess how a mask lets too much through: the mistake is known, or is elsewhere.

    but_one: the guess that it is one too many stays.
    """
    text = found.sentence
    for way in ("later", "whole", "open", *(() if but_one else ("one-lane", "one"))):
        text = re.sub(re.escape(MASK_TOO_WIDE[way]).replace(re.escape("{axis}"), r"\d+"), "", text)
    return Diagnosis(found.code, " ".join(text.split()))


def with_place(found: Diagnosis, place: str, code: str = "one-change") -> Diagnosis:
    """What was found, and in which place; the place alone, under its own code, where nothing else is known."""
    return (
        diagnosis(code, place=place) if found.code == "unknown" else Diagnosis(found.code, f"{found.sentence} {place}")
    )


def plain_exception(problem: Problem) -> str:
    """An exception in a sentence that a beginner understands; the message itself where there is none."""
    line = problem.line or "?"
    for kind, pattern, sentence in _PLAIN:
        match = re.search(pattern, problem.message, re.IGNORECASE | re.DOTALL)
        if match and kind in ("", problem.type):
            groups = [_CONSTANT.sub(r"\1", group) for group in match.groups() if group]
            return sentence.format(*groups, line=line)
    return f"Line {line} raised {problem.type}: {plain(problem.message) if problem.message else ''}"
