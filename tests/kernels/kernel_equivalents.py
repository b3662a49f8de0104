"""Why a generated mutant of the kernels that no test kills is no mistake: rules that a program applies, and reasons.

A rule or a reason is asked only about mutants that passed.  Each of `EQUIVALENT` names its operator and a regular
expression, found in what such a mutant says or in its changed line.
"""

from __future__ import annotations

import ast
import re

from course_lab.authoring.operators import Generated
from course_lab.authoring.operators.equivalent import Equivalent
from course_lessons.reasons import COMMUTES, DENSE, FITS, IDLE, LAST, NOT_STORED, PROMOTED, ROUNDED, WIDER, ZERO, idle

HINTS = {"eviction_policy", "cache_modifier", "num_warps", "num_stages"}
HINT = "a hint of how to run: caches, warps and stages change the time and no value"
LAUNCHES = ("launch.rows", "launch.dots", "launch.attention")
LAUNCH = "another launch, legal and covering the matrix (test_launch): the same values in another time"

_AGAIN = "each turn computes it anew, and the last one stands"
_NO_KEY = "masked lanes get a key below all others, whatever was loaded"
_NO_TABLES = "values are not turned, and no table is looked at"
_SMALLER_STEPS = "heads are copied bit for bit, in steps of any length"
_FULL = "the interpreter multiplies exactly, whatever it is told; the machine code's tests see it"
_STATISTICS = "means and roots are stored in float32 as it is"
_REDUCED = "tl.max widens 16 bits to float32, and what the maximum is taken from follows it"
_MAXIMUM = "a maximum of numbers of 16 bits is one of them"
_MAGNITUDE = "only its magnitude is used"
_MORE_KEYS = "the block of keys that is looked at too much is masked, key by key"
_EMPTY = "heads without elements have scores of 0, whatever the scale"
_SAME = "both have the same shape there"
_REPLACED_OUTSIDE = "lanes past the row are replaced, or meet a gradient of 0, and are not stored"
_EARLIER = "an earlier dimension is read than the last, which is left out"
_WIDENED = "the other factor is float64, and PyTorch widens this one to it"
_BY_FLOAT32 = "PyTorch itself takes float64 to 8 bits by way of float32, and only caches of 8 bits have a scale"
_ONE_LOOP = "interpreted, 0 is as good as zeros; compiled, a loop changes no shape, and the machine code's tests see it"
_LARGE = "any large number does: where it is met, s or 1 - s is 0"
_NO_PART = "a part without a key is 0, whatever divides it, and its sum minus infinity, whatever is added"
_LOOKS_AGAIN = "what is called looks at all of them itself, and refuses the same"
_DISTINCT = "a key holds the place of its element, so that no two that are stored are equal"
_CONSTANT = "what is kept is a constant, which every call returns that comes there"
_EACH_ITS_OWN = "each kind of number still has a number of its own"
_WHOLE_PART = "a part in the shape of the whole is the whole"
_ON_ENTRY = "entering a mode makes up for what its constructor left out"
_BIT_LENGTH = "Python counts the bits of a magnitude"
_NO_TERMS = "where b has no rows, a has no columns and is empty"
_FLOAT32 = "the tensor that names the type is in float32 here"


def _promoted(*loads: str) -> Equivalent:
    return Equivalent("without-float32", "|".join(loads), PROMOTED)


def _lanes(reason: str, *loads: str) -> Equivalent:
    return Equivalent("other-value", "|".join(loads), reason)


EQUIVALENT = {
    "_column_sum": (
        _promoted("sums"),
        Equivalent("rounds-early", "`total`", _FLOAT32),
        Equivalent("into-loop", "does `total` in every turn", _AGAIN),  # a program has a row, or there is no sum
        Equivalent("flat-mask", r"\(offs_m\) \* cols \+ offs_n < rows \* cols", NOT_STORED),
        Equivalent("without-int64", r"tl\.arange\(0, BLOCK_M\)", DENSE),  # partial rows, made by the caller
    ),
    "_remembered": (
        Equivalent("opposite-sign", r"kind = .*(- \(8 \* |\) - \(4 \* \(number < 0\)\)\) \+ 8)", _EACH_ITS_OWN),
        Equivalent("shorter-shape", r"whole = x\.shape(\[:-1\])? == made\.shape", _WHOLE_PART),
        Equivalent("lost-call", r"`super\(\)\.__init__\(\)`", _ON_ENTRY),
    ),
    "activations": (
        *idle(),
        _promoted(r"(dy|factor) = tl\.load"),
        Equivalent("rounds-early", "`y`", LAST),
        Equivalent("other-constant", r"tl\.minimum\(x \* x", _LARGE),
    ),
    "attention": (
        Equivalent("without-precision", ".", _FULL),
        _promoted(r"o = _load_tile", r"delta \+="),
        _lanes(ZERO + ": the weights of such rows", "delta_ptr"),
        Equivalent("opposite-sign", r"start_m \+ BLOCK_M - 1", _MORE_KEYS),
        Equivalent("other-size", r"`BLOCK_M` where `seq_q`.*\n.*_keys_seen\(start_m \+ BLOCK_M - 1", _MORE_KEYS),
        Equivalent("other-constant", r"head_dim\*\*-0\.5", _EMPTY),
    ),
    "dropout": (*idle(), _promoted("x = ", "residual_ptr")),
    "checks": (Equivalent("other-condition", r"`tensor\.device != device`", _LOOKS_AGAIN),),
    "conv2d": (
        Equivalent("without-precision", ".", _FULL),
        Equivalent("without-int64", "counts with `[pq]`", DENSE),  # within a row of y, which is made here
        _lanes(ZERO, r"x = tl\.load", r"weight = tl\.load"),
        _lanes(NOT_STORED, "bias_ptr"),
        _promoted("bias_ptr"),
    ),
    "kv_cache": (
        *idle(r"x = tl\.load", "slots_ptr", "positions_ptr"),
        Equivalent("other-size", r"where `turned`.*\n.*kv_blocks", _NO_TABLES),
    ),
    "launch.gpu": (Equivalent("swapped-operands", r"return 1 << .*\.bit_length\(\)", _BIT_LENGTH),),
    "layer_norm": (
        _lanes(IDLE, r"bias = tl\.load", "d_new_residual_ptr"),
        Equivalent("other-value", r"weight = tl\.load|dy \* tl\.load\(weight_ptr", ZERO + ", or such lanes are idle"),
        _lanes(NOT_STORED, "offs_m < rows", "mask_m"),
        Equivalent("other-size", r"`mask(_m)?` where `mask(_m)?`.*\n.*(mean|rstd)_ptr", _REPLACED_OUTSIDE),
        Equivalent("other-constant", r"launch\.long_rows", LAUNCH),
        Equivalent("without-int64", r"`pid`.*\n.*offs_p", DENSE),  # partial rows, made here
        _promoted(r"(weight|bias|dy|first) = tl\.load", r"dx \+=", r"x \+=", r"g = dy", r"- first$", r"x = tl\.load"),
        Equivalent("without-float32", r"(rstd|mean)_ptr", _STATISTICS),
        Equivalent("rounds-early", "`y`|`new_residual`", LAST),
        Equivalent("rounds-early", r"`x`.*\n.*x_ptr\.dtype", ROUNDED),
    ),
    "linear": (
        Equivalent("into-loop", "does `y` in every turn", _AGAIN),
        Equivalent("without-int64", ".", DENSE),
        _lanes(ZERO, r"weight = tl\.load", r"x = tl\.load"),
        _promoted("."),
        Equivalent("rounds-early", "`y`", LAST),
    ),
    "matmul": (
        Equivalent("rounds-early", "`acc`.*\n.*activate", LAST),
        Equivalent("without-precision", ".", _FULL),
        Equivalent("without-int64", r"tl\.arange\(0, BLOCK_M\)|tl\.program_id\(1\)", DENSE),  # parts, made here
        Equivalent("flat-mask", r"\(offs_m\) \* size \+ offs_n < parts \* size", NOT_STORED),
        Equivalent("other-host-size", r"`b` only.*\n.*b\.shape\[-1\] == 0", _NO_TERMS),
        _lanes(ZERO, "a_ptrs", "b_ptrs"),
    ),
    "mla": (
        Equivalent("without-precision", ".", _FULL),
        *idle(r"nope_ptr \+ offs_d", "slots_ptr"),
        _lanes(ZERO, r"[qw] = tl\.load"),
    ),
    "modules": (Equivalent("shorter-shape", r"`x\.shape`.*\n.*layout", _EARLIER),),
    "paged_attention": (
        Equivalent("without-precision", ".", _FULL),
        _lanes(ZERO, "cache_ptr", "parts = "),
        Equivalent("rounds-early", "`weight`", _FLOAT32),
        Equivalent("flat-mask", "parts = ", NOT_STORED),
        Equivalent("other-constant", "safe_sum = ", _NO_PART),
        Equivalent("rounds-early", "`o`", LAST),
    ),
    "qkv": (
        Equivalent("other-size", "`kv_heads` where `table_rows`", _NO_TABLES),
        Equivalent("other-size", "`BLOCK_T` where `table_rows`", _NO_TABLES),
        Equivalent("lost-operand", "`BLOCK_P`", _SMALLER_STEPS),
        Equivalent("other-constant", r"copy_heads", _SMALLER_STEPS),
        Equivalent("other-constant", r"BLOCK_P=triton", WIDER),
    ),
    "quant": (
        *idle("evict_first"),
        _lanes(ZERO, "`gate_ptr`"),
        Equivalent("without-function", r"`tl\.clamp`.*\n    q = \(x\)$", FITS),
        Equivalent("into-loop", r"does `\(scale, inverse\)` in every turn", _AGAIN),  # no row is empty
        _promoted("factor = ", "evict_first", r"x \* \(1\.0 / scale\)"),
    ),
    "reference": (
        Equivalent("shorter-shape", r"pixel = |visible = ", _EARLIER),
        Equivalent("lost-conversion", r"behind `(sin|rows)`", _WIDENED),
        Equivalent("lost-conversion", r"leaves `\.float` out.*clamp", _BY_FLOAT32),
    ),
    "rms_norm": (
        _lanes(IDLE, "d_new_residual_ptr", r"x = tl\.load\(x_ptr \+ row"),
        Equivalent("other-value", r"weight = tl\.load", ZERO + ", or such lanes are idle"),
        _lanes(ZERO, r"dy = tl\.load"),
        Equivalent("swapped-loads", "`dy_ptr` and `weight_ptr`", COMMUTES),
        Equivalent("into-loop", "`rstd`", _AGAIN),
        _promoted(r"(weight|dy) = tl\.load", r"dx \+=", r"x \+="),
        Equivalent("rounds-early", "`y`|`new_residual`", LAST),
        Equivalent("rounds-early", r"`x`.*\n.*x_ptr\.dtype", ROUNDED),
        Equivalent("rounds-early", "`dweight_row`", _FLOAT32),
    ),
    "rope": (
        *idle(r"(cos|sin|radians|a|b|x) = tl\.load", r"tl\.load\(x_ptr \+ offs_d"),
        _promoted(r"(cos|sin) = tl\.load", r"a\.to|return a"),
        Equivalent("rounds-early", "`[aby]`", LAST),
        Equivalent("other-size", r"y = tl\.join", _SAME),
        Equivalent("other-size", r"`num_seqs` where `offs_t`.*\n.*begun = tl\.zeros_like", _ONE_LOOP),
    ),
    "softmax": (
        Equivalent("into-loop", "`row_max`", _AGAIN),
        Equivalent("rounds-early", "`y`", LAST),
        Equivalent("rounds-early", "`(lane|row)_max`", _MAXIMUM),
        Equivalent("without-float32", ".", _REDUCED),
        Equivalent("swapped-operands", "gap = ", _MAGNITUDE),
        Equivalent("other-size", r"`cols` where `rows`.*\n.*numerator", NOT_STORED),
        Equivalent("off-by-one", r"`<=`.*\n.*numerator", NOT_STORED),
        Equivalent("without-choice", "`row_max`", NOT_STORED),
    ),
    "topk": (
        Equivalent("half-mask", "beside `probe < run`", IDLE),
        Equivalent("off-by-one", "`>=` in `probed > keys`", _DISTINCT),
        Equivalent("drop-other", "`x_ptr`", _NO_KEY),
        Equivalent("other-value", r"_keys\(tl\.load\(x_ptr", _NO_KEY),
        Equivalent("other-value", r"values = tl\.load\(x_ptr", IDLE),
        Equivalent("without-int64", r"row = tl\.program_id\(0\) // blocks$", DENSE),  # keys, made here
        Equivalent("other-value", r"keys = tl\.load\(keys_ptr \+ offs, mask=mask", IDLE),
    ),
    "vector_add": (
        *idle(),
        _promoted("."),
        Equivalent("swapped-loads", "`x_ptr` and `y_ptr`", COMMUTES),
        Equivalent("without-int64", ".", DENSE),
    ),
}


_KEEPS_A_CONSTANT = re.compile(r"return _kept\.setdefault\(.*, \((None|True|False|\d+)\)\)$", re.MULTILINE)


def why(source: str, mutant: Generated, original: str) -> str:
    """Why a mutant of `original`, the text of this file, that passed is right; "" where nobody says."""
    if _without_hints(mutant.code) == _without_hints(original):
        return HINT
    if mutant.operator == "kept-result" and _KEEPS_A_CONSTANT.search(mutant.code):
        return _CONSTANT
    if source in LAUNCHES:
        return LAUNCH
    return next((one.reason for one in EQUIVALENT.get(source, ()) if one.fits(mutant)), "")


def _without_hints(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [one for one in node.keywords if one.arg not in HINTS]
    return ast.dump(tree)
