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
_COMPILED_TOO = (
    _AGAIN + "; compiled, no name is known behind the loop that first has it, and the machine code's tests see it"
)
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
_NO_SCALE = "only a cache of fp8 looks at a scale, and there always is one for it"
_DIVIDED = "all that is done with the scale is to divide 1.0 by it, and Triton divides 16 bits in float32"
_SMALLEST = (
    "interpreted, minus infinity becomes the smallest integer, which is that key; test_amd_code sees that a compiled "
    "kernel converts nothing"
)
_ONE_DIMENSION = "positions have one dimension, the first and the last"
_NO_SLOT = "a row past the last has the slot -1, which is asked for beside, and a tile is of one head"
_SAME = "both have the same shape there"
_REPLACED_OUTSIDE = "lanes past the row are replaced, or meet a gradient of 0, and are not stored"
_EARLIER = "an earlier dimension is read than the last, which is left out"
_WIDENED = "the other operand is float64, and PyTorch widens this one to it"
_JOINED = "what is joined with it is float64, and PyTorch widens all that it joins"
_DROPPED = "where p is 1 nothing is kept, and residual is widened in the sum"
_FP8_BY_FLOAT32 = "PyTorch itself takes float64 to 8 bits by way of float32"
_SEARCHED = "PyTorch itself searches in the integer type that holds both"
_CUT = "more words are drawn than x has elements, and the first of them are taken"
_SQUARED = "a difference is squared, whichever way round it is"
_BY_FLOAT32 = "PyTorch itself takes float64 to 8 bits by way of float32, and only caches of 8 bits have a scale"
_ONE_LOOP = "interpreted, 0 is as good as zeros; compiled, a loop changes no shape, and the machine code's tests see it"
_LARGE = "any large number does: where it is met, s or 1 - s is 0"
_NO_PART = "a part without a key is 0, whatever divides it, and its sum minus infinity, whatever is added"
_LOOKS_AGAIN = "what is called looks at all of them itself, and refuses the same"
_DISTINCT = "a key holds the place of its element, so that no two that are stored are equal"
_CONSTANT = "what is kept is a constant, which every call returns that comes there"
_INT64 = "the other operand is int64, and Triton widens this one to it"
_NO_TOKEN = "only lanes past the last token see a difference, and they read an element that exists, and are not stored"
_NO_TURN = "a loop over no elements copies nothing"
_RADIANS = "Triton makes float32 of an integer that is multiplied by a number with a point"
_FREQUENCIES = "frequencies are in float32 or float64, never in 16 bits"
_EACH_ITS_OWN = "each kind of number still has a number of its own"
_WHOLE_PART = "a part in the shape of the whole is the whole"
_ON_ENTRY = "entering a mode makes up for what its constructor left out"
_BIT_LENGTH = "Python counts the bits of a magnitude"
_NO_TERMS = "where b has no rows, a has no columns and is empty"
_FLOAT32 = "the tensor that names the type is in float32 here"
_LAST_QUERY = "only rows past the last query count more keys than there are, and they are not stored"
_INFINITE = "minus infinity is the same in 16 bits"
_MORE_QUERIES = "the blocks of queries that are looked at too much, or masked without need, are masked, query by query"
_PADDING = "the other factor of a product is 0 in such rows and columns, and those of a result are not stored"
_NO_GRADIENT = "the gradient that arrives and delta are 0 in such rows, so that a finite weight adds nothing"
_UNDERFLOW = "2 to the power of -10000 is 0 in float32 as well"
_SAME_STORE = "the programs of all slices of a head store the same number there"
_LAST_IS_WHOLE = "the last block ends with the last query"
_WHOLE_BLOCKS = "the loop counts whole blocks, the last of which begins before this end as well"
_ONE_SLICE = "a head as wide as its slice is the first of one slice"
_NO_COLUMN_MASKED = "where slices divide the head, the mask is true in every column"
_NO_KEYS = "the kernels give the same zeros and minus infinity without keys"
_NOT_READ_ALONE = "a token past the end that is not read with neighbours is 0 already"
_EMPTY_SEQUENCE = "the parts of an empty sequence are 0, whatever their weights are divided by"
_ONE_DIMENSION = "scales of several heads have one dimension"


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
        Equivalent("other-constant", "safe_sum = ", _NO_PART),
        Equivalent("half-mask", "ask for `slice_d == 0` beside `offs_m < seq_q`", _SAME_STORE),
        Equivalent("half-mask", r"`offs_m < seq_q` beside `offs_m >= 0`.*\n.*delta_ptr", _LAST_IS_WHOLE),
        Equivalent("off-by-one", r"`<=` in `offs_m < seq_q`.*\n.*delta_ptr", _LAST_IS_WHOLE),
        _lanes(_PADDING, r"tl\.load\(ptrs, mask=offs_d < HEAD_DIM, other=-?\d"),
        _lanes(_NO_GRADIENT, r"tl\.load\(lse_ptr .*other=[01]\.0"),
        Equivalent("other-infinity", r"`-1e4`.*\n.*offs_n.* < keys_seen.*, scores, -1e4", _UNDERFLOW),
        Equivalent(
            "other-size", r"`seq_q` where `start_m`.*\n.*_keys_seen\(seq_q \+ BLOCK_M - 1, seq_q, seq_k", _MORE_KEYS
        ),
        Equivalent("other-size", r"`start_m` where `seq_q`.*\n.*BLOCK_M - 1, start_m, seq_k", _MORE_KEYS),
        Equivalent("lost-operand", r"`1`.*\n.*_keys_seen\(\(start_m \+ BLOCK_M\), seq_q", _MORE_KEYS),
        Equivalent("without-choice", r"`tl\.minimum` out.*\n.*\(offs_m \+ 1 \+ seq_k - seq_q\) if CAUSAL", _LAST_QUERY),
        Equivalent("other-size", r"`do_rows` where `o_rows`.*\n.*delta = tl\.zeros", _SAME),
        Equivalent("off-by-one", "`>=` in `HEAD_DIM % BLOCK_D > 0`", _NO_COLUMN_MASKED),
        Equivalent("lost-operand", r"`BLOCK_D`.*\n.*if \(HEAD_DIM\) > 0", _NO_COLUMN_MASKED),
        Equivalent("off-by-one", "`<` in `HEAD_DIM <= BLOCK_D`", _ONE_SLICE),
        Equivalent(
            "loop-ends", "over `start_d`.*\n.*slices \\* BLOCK_D|over `start_m`.*\n.*range\\(start, ", _WHOLE_BLOCKS
        ),
        Equivalent("rounds-early", "`row_max`.*\n.*tl\\.full", _INFINITE),
        Equivalent("opposite-sign", r"`BLOCK_N - 1`.*\n.*blind = ", _MORE_QUERIES),
        Equivalent("lost-operand", r"`1`.*\n.*blind = \(BLOCK_N\)", _MORE_QUERIES),
        Equivalent("opposite-sign", r"`seq_q - first`.*\n.*start = ", _MORE_QUERIES),
        Equivalent("lost-operand", r"`first`.*\n.*start = seq_q - tl\.cdiv\(\(seq_q\)", _MORE_QUERIES),
        Equivalent("into-loop", "does `of_head` in every turn", _AGAIN),  # a head of k has queries
        Equivalent("other-host-size", r"k\.shape\[-1\] == 0", _NO_KEYS),
        Equivalent("without-int64", r"counts with `offs\[:, None\]`.*\n.*\* HEAD_DIM", DENSE),
        Equivalent("without-int64", "counts with `of_batch`", DENSE),  # heads of o, lse, delta and the gradients
    ),
    "dropout": (*idle(), _promoted("x = ", "residual_ptr")),
    "checks": (Equivalent("other-condition", r"`tensor\.device != device`", _LOOKS_AGAIN),),
    "conv2d": (
        Equivalent("without-precision", ".", _FULL),
        Equivalent("without-int64", "counts with `[pq]`", DENSE),  # y is made here
        _lanes(ZERO, r"x = tl\.load", r"weight = tl\.load"),
        _lanes(NOT_STORED, "bias_ptr"),
        _promoted("bias_ptr"),
    ),
    "kv_cache": (
        *idle(r"x = tl\.load", "slots_ptr", "positions_ptr"),
        Equivalent("other-size", r"where `turned`.*\n.*kv_blocks", _NO_TABLES),
        Equivalent("other-constant", r"`1\.0`\n.*if scale_ptr is None", _NO_SCALE),
        Equivalent("without-float32", r"tl\.load\(scale_ptr\)", _DIVIDED),
        Equivalent("other-constant", r"one where .* two\n.*BLOCK_P=", WIDER),
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
        _lanes(
            _REPLACED_OUTSIDE,
            r"`1\.0`\n.*(x|residual)_ptr \+ offs_[xr], mask",
            r"`1\.0`\n.*x_ptr \+ offs_m.* \+ offs_n",
        ),
        _lanes(_REPLACED_OUTSIDE, r"`1\.0`\n.* - first$"),
        _lanes(ZERO + ", or such lanes are idle", r"`1\.0`\n.*dy = tl\.load\(dy_ptr \+ row"),
        _lanes(IDLE, r"x = tl\.load\(x_ptr \+ row.*float32\)$"),
        Equivalent("swapped-operands", "`lane_mean - mean`", _MAGNITUDE),
        Equivalent(
            "swapped-loads", r"`dy_ptr` and `weight_ptr`.*\n.*dy = tl\.load\(weight_ptr", COMMUTES
        ),  # only g has them
        Equivalent("into-loop", r"`(\(mean, rstd\)|offs_p)`", _COMPILED_TOO),
        Equivalent("without-int64", r"`tl\.program_id\(1\)`.*\n.*offs_p", DENSE),  # partial rows, made here
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
        Equivalent("half-mask", r"`mask` beside `slot >= 0`", _NO_SLOT),
        Equivalent("other-constant", r"`1\.0`\n.*if scale_ptr is None", _NO_SCALE),
        Equivalent("without-float32", r"tl\.load\(scale_ptr\)", _DIVIDED),
        Equivalent("other-constant", r"one where .* two\n.*BLOCK_P=", WIDER),
        Equivalent("other-host-size", r"`positions\.stride\(-1\)` for `positions\.stride\(0\)`", _ONE_DIMENSION),
    ),
    "modules": (Equivalent("shorter-shape", r"`x\.shape`.*\n.*layout", _EARLIER),),
    "paged_attention": (
        Equivalent("without-precision", ".", _FULL),
        _lanes(ZERO, "cache_ptr", "parts = "),
        Equivalent("rounds-early", "`(weight|total)`", _FLOAT32),
        Equivalent("flat-mask", "parts = ", NOT_STORED),
        _lanes(_PADDING, r"q = tl\.load.*other=-?\d"),
        Equivalent("off-by-one", "`>=` in `ALIKE > 1`", _NOT_READ_ALONE),
        _promoted(r"tl\.load\(scale_ptr \+ place\)$"),
        Equivalent("other-constant", r"weight /= ", _EMPTY_SEQUENCE),
        Equivalent("other-host-size", r"scale\.stride\(-1\)", _ONE_DIMENSION),
        Equivalent("fixed-block", r"block_s = 1024", WIDER),
        Equivalent("without-int64", r"`tl\.program_id\(0\)`.*\n.*row = ", DENSE),  # parts, made here, and o
        Equivalent("other-constant", "safe_sum = ", _NO_PART),
        Equivalent("rounds-early", "`o`", LAST),
    ),
    "qkv": (
        Equivalent("other-size", "`kv_heads` where `table_rows`", _NO_TABLES),
        Equivalent("other-size", "`BLOCK_T` where `table_rows`", _NO_TABLES),
        Equivalent("other-size", r"`q_heads` where `table_rows`.*\n.*q_heads \+ kv_heads", _NO_TABLES),
        Equivalent("other-host-size", r"`positions\.stride\(-1\)` for `positions\.stride\(0\)`", _ONE_DIMENSION),
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
        Equivalent("shorter-shape", r"pixel = |visible = |k64, v64 = |(block|page)_size = ", _EARLIER),
        Equivalent("lost-conversion", r"behind `(sin|rows)`", _WIDENED),
        Equivalent("lost-conversion", r"`\.double` out behind `weight`.*\n.*\* torch\.rsqrt\(", _WIDENED),
        Equivalent("lost-conversion", r"`\.double` out behind `bias`.*\n.*weight\.double\(\) \+ bias", _WIDENED),
        Equivalent("lost-conversion", r"behind `(x|residual)`.*\n.*return \(residual", _WIDENED),
        Equivalent("lost-conversion", r"else x$", _DROPPED),
        Equivalent("lost-conversion", r"behind `x`.*\n.*q = \(x / scale\[", _WIDENED),
        Equivalent("lost-conversion", r"behind `cos`.*\n.*x, cos, sin = ", _WIDENED),
        Equivalent("lost-conversion", r"behind `cos`.*\n.*rows\.double\(\).*\* cos$", _WIDENED),
        Equivalent("lost-conversion", r"behind `scale`.*\n.*return scale\.view\(-1, 1\)", _WIDENED),
        Equivalent("lost-conversion", r"behind `k_pe\[tokens:\]`|behind `k_nope`.*\n.*cat\(\[k_nope, k_pe\]", _JOINED),
        Equivalent("lost-conversion", r"behind `q`.*\n.*q\.to\(dtype\), scale", _FP8_BY_FLOAT32),
        Equivalent("lost-conversion", r"behind `counted`.*\n.*searchsorted", _SEARCHED),
        Equivalent("lost-operand", r"leaves out `4`.*\n.*\[: x\.numel\(\)\]", _CUT),
        Equivalent("swapped-operands", r"variance = .*\.square\(\)", _SQUARED),
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
        _promoted(r"x = tl\.load\(x_ptr \+ row"),
        Equivalent("into-loop", "`dweight_row`", _COMPILED_TOO),
        Equivalent("other-constant", r"streams = ", LAUNCH),
        Equivalent("without-int64", r"tl\.store\(dweight_rows_ptr", DENSE),  # made here
    ),
    "rope": (
        *idle(r"(cos|sin|radians|a|b|x) = tl\.load", r"tl\.load\(x_ptr \+ offs_d"),
        _promoted(r"(cos|sin) = tl\.load", r"a\.to|return a"),
        Equivalent("rounds-early", "`[aby]`", LAST),
        Equivalent("other-size", r"y = tl\.join", _SAME),
        Equivalent("half-mask", r"`mask_t` beside.*\n.*cu_seqlens_ptr", _NO_TOKEN),
        Equivalent("off-by-one", r"`<=` in `offs < num_seqs`", _NO_TOKEN),  # the number behind the starts: all tokens
        Equivalent("off-by-one", r"`>=` in `PLAIN > 0`", _NO_TURN),
        Equivalent("without-float32", r"angle = \(parts", _RADIANS),
        Equivalent("rounds-early", "`angle`", _FREQUENCIES),
        Equivalent("other-constant", r"block_p = ", WIDER),
        Equivalent("without-int64", r"row = tl\.load\(positions_ptr \+ offs_t", DENSE),
        Equivalent("without-int64", r"row \+= tl\.load\(offsets_ptr \+ offs_t|begun \+= tl\.sum", _INT64),
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
        _lanes(_SMALLEST, r'(?:keys|probed) = tl\.load\((?:x|keys)_ptr .*other=-float\("inf"\)\)'),
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
