"""Each mistake is reported first, by its code, with a sentence that says where."""

import ast
from dataclasses import replace

import pytest
import torch
from small_exercises import (
    COPY,
    COPY_SOLUTION,
    DOUBLE,
    IN_PLACE,
    IN_PLACE_SOLUTION,
    LARGEST,
    ROW_SUM,
    ROW_SUM_SOLUTION,
    SOLUTIONS,
    matrix,
    vector,
)

from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.check import answer, branches, grade, grading
from course_lab.check.protocol import Problem
from course_lab.check.sentences import SENTENCES, plain_exception

MISTAKES = [  # exercise, edits of its solution, the code to be reported, words of the sentence
    (DOUBLE, [("x * 2, mask=mask", "x * 2")], "missing-store-mask", "stores past the end of y_ptr, in line 6"),
    (DOUBLE, [("x_ptr + offs, mask=mask", "x_ptr + offs")], "missing-load-mask", "past the end of x_ptr, in line 5"),
    (DOUBLE, [(", mask=mask", "")], "missing-store-mask", "line 6"),
    (DOUBLE, [("offs < n", "offs <= n")], "mask-too-wide", "program 7"),
    (DOUBLE, [("x_ptr + offs", "x_ptr + offs - 1")], "out-of-bounds", "element -1 of x_ptr"),
    (DOUBLE, [("triton.cdiv(x.numel(), 128)", "x.numel() // 128")], "grid-floor-division", "last 104 of 1000 elements"),
    (DOUBLE, [("triton.cdiv(x.numel(), 128)", "x.numel() // 2048")], "empty-grid", "(0, 1, 1)"),
    (DOUBLE, [("(triton.cdiv(x.numel(), 128),)", "(1,)")], "partly-written", "first [128]"),
    (DOUBLE, [("tl.program_id(0) * BLOCK + ", "")], "program-id-unused", "Programs 0 and 1"),
    (DOUBLE, [("program_id(0) * BLOCK", "program_id(0)")], "overlapping-programs", "0 and 1 both wrote element 1"),
    (DOUBLE, [("    double_kernel[", "    # double_kernel[")], "not-launched", "double_kernel is defined"),
    (DOUBLE, [("    return y", "    return 2 * x")], "torch-result", "made by PyTorch"),
    (DOUBLE, [("tl.store(y_ptr", "tl.store(x_ptr")], "input-modified", "argument x was changed, in line 6"),
    (DOUBLE, [("    return y", "    return torch.zeros_like(x)")], "output-untouched", "Which one"),
    (DOUBLE, [("x * 2", "x * x")], "squared", "This is the square."),
    (DOUBLE, [("x * 2", "x * 3")], "constant-factor", "1.5 times"),
    (DOUBLE, [("x * 2", "(x.to(tl.bfloat16) * 2).to(x.dtype)")], "half-accumulation", "close"),
    (DOUBLE, [("x * 2", "x * 2 + tl.where(offs == 40, 1.0, 0.0)")], "one-change", "in line 6: look at `x * 2 + tl"),
    (DOUBLE, [("x * 2", "x * 1.9 + tl.where(offs == 40, 0.3, 0.7)")], "unknown", "by hand"),
    (DOUBLE, [("    return y", "    return y[:, None]")], "wrong-shape", "(1024,), and it has (1024, 1)"),
    (DOUBLE, [("empty_like(x)", "empty_like(x, dtype=torch.float64)")], "wrong-dtype", "must be float32"),
    (DOUBLE, [("    return y\n", "")], "wrong-type", "must return a tensor, and it returned None"),
    (DOUBLE, [("    return y", "    return y, y")], "wrong-type", "returned 2 tensors"),
    (DOUBLE, [("def double(x)", "def dubble(x)")], "no-entry", "double_kernel, dubble"),
    (DOUBLE, [("    return y", "    return y(")], "syntax-error", "line 12"),
    (DOUBLE, [("x * 2", "z * 2")], "exception", "Line 6 uses z"),
    (DOUBLE, [("offs < n", "offs < 1000")], "hard-coded-size", "1000 is written in line 4"),
    (DOUBLE, [("x, y, x.numel()", "x, y, 1024")], "hard-coded-size", "1024 is written in line 11"),
    (DOUBLE, [("    return y", "    y += __import__('os').getpid()\n    return y")], "nondeterministic", "two"),
    (ROW_SUM, [(", other=0.0", "")], "missing-other", "Line 6"),
    (LARGEST, [(", other=0.0", "")], "missing-other", "Line 5"),
    (LARGEST, [(", other=0.0", ""), ("tl.max(tl.abs(x)", "-tl.min(-tl.abs(x)")], "missing-other", "Line 5"),
    (ROW_SUM, [("mask=mask, other=0.0", "")], "missing-load-mask", "x_ptr, in line 6"),
    (ROW_SUM, [("row * stride_xm", "row * N")], "between-rows", "Line 6"),
    (ROW_SUM, [("total = tl.sum(x * x, axis=0)", "total = tl.sum(x * x, axis=0) + 1.0")], "row-factor", "Each row"),
    (ROW_SUM, [("(x / total)", "(x / total * 0.999)")], "constant-factor", "0.999"),
    (ROW_SUM, [("kernel[(M,)]", "kernel[(M - 1,)]")], "partly-written", "first [3, 0]"),
    (COPY, [("y.stride(0), y.stride(1)", "y.stride(1), y.stride(0)")], "swapped-strides", "transposed order"),
    (COPY, [("x.stride(0), x.stride(1)", "x.stride(1), x.stride(0)")], "swapped-strides", "transposed order"),
    (COPY, [("[:, None] * stride_ym", "[:, None] * (stride_ym + 1)")], "wrong-stride", "next along axis 0"),
    (ROW_SUM, [("row * stride_ym", "row * (stride_ym + 1)")], "wrong-stride", "elements after program"),
    (COPY, [("mask = (offs_m[:, None] < M) & ", "mask = ")], "mask-too-wide", "Along axis 0 of the block it holds"),
    (COPY, [("offs_m[:, None] < M", "offs_m[:, None] <= M")], "mask-too-wide", "one too many along axis 0"),
    (DOUBLE, [("x * 2, mask=mask", "x * 2, mask=(mask == 0)")], "mask-too-wide", "Which way round"),
    (DOUBLE, [("x.numel(), 128)", "x.numel(), 128) + 1"), ("offs < n", "offs < n + 128")], "mask-too-wide", "`n + 12"),
    (DOUBLE, [("x * 2", "tl.minimum(x, 1.0) + tl.minimum(x, 1.0)")], "partly-wrong", "where `x` is above 1"),
    (COPY, [("program_id(1)", "program_id(0)")], "program-id-unused", "every axis of the grid"),
    (COPY, [("triton.cdiv(N, 16))", "N // 16)")], "grid-floor-division", "positions along dimension 1"),
]  # fmt: skip


@pytest.mark.parametrize("exercise, edits, code, words", MISTAKES, ids=[f"{m[0].entry}-{m[1][0][1]}" for m in MISTAKES])
def test_the_mistake_is_named(exercise, edits, code, words):
    answer = SOLUTIONS[exercise]
    for old, new in edits:
        assert old in answer, old
        answer = answer.replace(old, new)
    report = grade(exercise, answer)
    assert report.diagnosis is not None, "it passed"
    assert report.diagnosis.code == code and words in report.diagnosis.sentence, report


def test_where_no_program_asks_which_it_is_nothing_more_is_looked_for():
    right = SOLUTIONS[DOUBLE]
    report = grade(DOUBLE, right.replace("tl.program_id(0) * BLOCK + ", ""), solution=right)
    assert report.diagnosis.code == "program-id-unused"
    assert report.diagnosis.sentence.endswith("does every axis of the grid appear in the offsets?")


def test_torch_alone_is_told_so():
    assert grade(DOUBLE, "def double(x):\n    return 2 * x\n").diagnosis.code == "no-kernel"


def test_a_borrowed_kernel_does_not_count():
    code = "import course_kernels\n\ndef double(x):\n    return course_kernels.vector_add(x, x)\n"
    assert grade(DOUBLE, code).diagnosis.code == "no-kernel"


def test_a_kernel_that_stores_moved_by_one_is_told_so():
    code = SOLUTIONS[DOUBLE].replace("y_ptr + offs, x * 2, mask=mask", "y_ptr + (offs + 1) % n, x * 2, mask=mask")
    report = grade(DOUBLE, code)
    assert report.diagnosis.code == "shifted"
    assert report.diagnosis.sentence.startswith(SENTENCES["shifted"].format(shift=1))


def test_a_suspect_must_explain_every_wrong_case():
    wrong_twice = SOLUTIONS[DOUBLE].replace("x * 2", "tl.where(n == 500, x + 1, x * x)")
    assert grade(DOUBLE, wrong_twice).diagnosis.code != "squared"


def test_a_suspect_that_would_spoil_what_is_right_is_none():
    """Where all is -inf, the square and what was done give the same."""
    lowest = Case("-inf", lambda g: (torch.full((40,), float("inf")),), 0, 0)
    exercise = replace(DOUBLE, reference=lambda x: x.clamp(max=9.0), cases=(DOUBLE.cases[0], lowest))
    clamped = SOLUTIONS[DOUBLE].replace("x * 2", "tl.minimum(x, 9.0)")
    assert grade(exercise, clamped).passed
    assert grade(exercise, clamped.replace("tl.minimum(x, 9.0)", "x"), search=False).diagnosis.code != "squared"
    assert grade(exercise, clamped.replace("tl.minimum(x, 9.0)", "x * x"), search=False).diagnosis.code == "squared"


def test_a_suspect_that_explains_nearly_all_is_named():
    more = tuple(Case(f"{n} elements", vector(n), 1e-5, 1e-5) for n in (7, 30, 60, 90))
    overflows = SOLUTIONS[DOUBLE].replace("x * 2", "tl.where(n == 60, x * 1e30 * 1e30, x * x)")
    assert grade(replace(DOUBLE, cases=more), overflows).diagnosis.code == "squared"


GATHER = Exercise(
    "91.5",
    "Gather",
    1,
    5,
    "gather",
    lambda x, index: x[index],
    (Case("40 of 100", lambda g: (torch.randn(100, generator=g), torch.arange(40).flip(0)), 0.0, 0.0),),
    ("", "", ""),
)
GATHER_SOLUTION = """
@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    index = tl.load(index_ptr + offs, mask=mask, other=-1)
    x = tl.load(x_ptr + index, mask=index >= 0)
    tl.store(y_ptr + offs, x, mask=mask)


def gather(x, index):
    y = torch.empty(len(index))
    gather_kernel[(1,)](x, index, y, len(index), BLOCK=64)
    return y
"""


@pytest.mark.parametrize("fill, code", [("-1", "padding-slot"), ("-2", "out-of-bounds")])
def test_idle_lanes_that_were_given_no_place_and_go_there_are_padding(fill, code):
    assert grade(GATHER, GATHER_SOLUTION).passed
    wrong = GATHER_SOLUTION.replace("other=-1", f"other={fill}").replace(", mask=index >= 0", "")
    assert grade(GATHER, wrong, search=False).diagnosis.code == code


TWO = """
@triton.jit
def two_kernel(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, x * x)
    tl.store(z_ptr + offs, x + 1)


def double(x):
    y, z = torch.empty_like(x), torch.empty_like(x)
    two_kernel[(1,)](x, y, z, BLOCK=64)
    return y, z
"""


def test_a_mistake_in_one_of_two_results_is_recognised_though_it_may_change_both():
    both = Suspect("squares", "Both are squares.", lambda x: (x * x, x * x))
    cases = (Case("64", vector(64), 1e-5, 1e-5),)
    exercise = replace(DOUBLE, reference=lambda x: (2 * x, x + 1), suspects=(both,), cases=cases)
    assert grade(exercise, TWO).diagnosis.code == "squares"


def test_a_load_without_a_mask_comes_before_a_mistake_recognised_by_its_numbers():
    exercise = replace(
        DOUBLE, suspects=(Suspect("rounds", "It rounds.", lambda x: x * 3 if x.numel() == 500 else x * 2),)
    )
    code = SOLUTIONS[DOUBLE].replace("x_ptr + offs, mask=mask", "x_ptr + offs")
    wrong = code.replace("x * 2", "tl.where(n == 500, x * 3, x * 2)")
    assert grade(exercise, wrong).diagnosis.code == "missing-load-mask"


def test_pytorch_that_computes_before_the_kernel_is_found_and_a_copy_is_none():
    halved = SOLUTIONS[DOUBLE].replace("x * 2", "x").replace("](x, y", "](x + x, y")
    report = grade(DOUBLE, halved)
    assert report.diagnosis.code == "torch-before" and "the numbers of x" in report.diagnosis.sentence
    assert grade(DOUBLE, SOLUTIONS[DOUBLE].replace("](x, y", "](x.flip(0).flip(0).float().to(x.dtype), y")).passed


def with_cases(*cases: Case) -> Exercise:
    return Exercise("91.9", "t", 1, 1, "double", lambda x: 2 * x, cases, ("", "", ""))


def test_a_factor_is_said_where_a_case_has_one_element_and_another_rounds():
    cases = (
        Case("one", vector(1), 0, 0),
        Case("many", vector(200), 0, 0),
        Case("16 bits", vector(200, torch.half), 0, 0),
    )
    triples = SOLUTIONS[DOUBLE].replace("x * 2", "x * 3")
    found = grade(with_cases(*cases), triples).diagnosis
    assert found.code == "constant-factor"
    assert found.sentence.startswith(SENTENCES["constant-factor"].format(factor=1.5)), found.sentence
    but_one = triples.replace("x * 3", "tl.where(n == 1, x * 5, x * 3)")
    assert grade(with_cases(*cases), but_one).diagnosis.code == "unknown"


def test_a_tile_that_is_as_long_as_a_passing_case_is_no_hard_coded_size():
    cases = Case("a block", vector(256), 0, 0), Case("more", vector(1000), 0, 0)
    odd = SOLUTIONS[DOUBLE].replace("x * 2", "x * 2 + tl.where((n > 256) & (offs == 40), 1.0, 0.0)")
    assert grade(with_cases(*cases), odd).diagnosis.code == "hard-coded-size"
    for tile in (odd.replace("BLOCK=128", "BLOCK=256"), odd.replace("x.numel(), BLOCK=128", "x.numel(), 256")):
        assert grade(with_cases(*cases), tile.replace(", 128)", ", 256)")).diagnosis.code == "one-change"


def test_a_number_of_the_stub_is_no_hard_coded_size():
    fixed = SOLUTIONS[DOUBLE].replace("offs < n", "offs < 1000")
    assert grade(DOUBLE, fixed, stub="").diagnosis.code == "hard-coded-size"
    assert grade(DOUBLE, fixed, stub="def double(x):\n    n = 1000").diagnosis.code == "mask-too-wide"


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("BLOCK=128", "BLOCK=32", "8 of 8 programs wrote, 32 elements each"),
        ("(triton.cdiv(x.numel(), 128),)", "(2,)", "2 of 2 programs wrote, 128 elements each"),
        ("(x, y, x.numel(), BLOCK", "(x, y, len(x), BLOCK", "after 333 elements no mask lets a lane through"),
        ("offs < n", "(offs < n) & (offs % 2 < 1)", "Which program should write it?"),
    ],
)
def test_what_was_left_unwritten_is_put_down_to_the_grid_or_the_mask(old, new, words):
    exercise = replace(DOUBLE, cases=(Case("a matrix", lambda g: (torch.randn(333, 3, generator=g),), 0, 0),))
    report = grade(exercise, SOLUTIONS[DOUBLE].replace(old, new))
    assert report.diagnosis.code == "partly-written" and words in report.diagnosis.sentence


@pytest.mark.parametrize("mask", ["offs < n & offs >= 0", "(offs >= 0) & offs < n", "offs < n & (offs >= 0)"])
def test_an_ampersand_between_bare_comparisons_is_named(mask):
    report = grade(DOUBLE, SOLUTIONS[DOUBLE].replace("offs < n", mask))
    assert report.diagnosis.code == "missing-parentheses" and "line 4" in report.diagnosis.sentence
    assert grade(DOUBLE, SOLUTIONS[DOUBLE].replace("offs < n", "(0 <= offs) & (offs < n)")).passed


def test_running_out_of_time_does_not_hide_what_was_seen_before():
    slow = "    for _ in range(len(x) == 500 and 10**10):\n        pass\n    return y"
    quick = replace(DOUBLE, time_limit=2.0)
    unmasked = SOLUTIONS[DOUBLE].replace("x * 2, mask=mask", "x * 2").replace("    return y", slow)
    assert grade(quick, unmasked).diagnosis.code == "missing-store-mask"
    odd = SOLUTIONS[DOUBLE].replace("x * 2", "x * 2 + tl.where(offs == 40, 1.0, 0.0)").replace("    return y", slow)
    assert grade(quick, odd).diagnosis.code == "timeout"


@pytest.mark.parametrize("square", [True, False])
def test_a_transposed_output_is_recognised_in_both_shapes(square):
    exercise = Exercise(
        "91.7", "t", 1, 1, "copy", lambda x: x.clone(), COPY.cases[: 1 if square else 2][-1:], ("", "", "")
    )  # fmt: skip
    code = COPY_SOLUTION.replace("y.stride(0), y.stride(1)", "1, M")
    assert grade(exercise, code).diagnosis.code == "swapped-strides"


def test_integer_outputs_are_compared_exactly():
    big = 2**60
    case = Case("large", lambda generator: (torch.tensor([big, big + 1]),), 0, 0)
    exercise = Exercise("91.8", "t", 1, 1, "double", lambda x: x.clone(), (case,), ("", "", ""))
    code = SOLUTIONS[DOUBLE].replace("x * 2", "x + {}")
    assert grade(exercise, code.format(0)).passed
    assert "1 of 2" not in str(grade(exercise, code.format(1))) and not grade(exercise, code.format(1)).passed


@pytest.mark.parametrize(
    "type_, message, sentence",
    [
        ("NameError", "name 'foo' is not defined", "Line 3 uses foo, and nothing of that name is defined there."),
        ("TypeError", "missing a required argument: 'BLOCK'", "A call in line 3 leaves out BLOCK."),
        ("NotImplementedError", "", "Line 3 says that this part is still to be written."),
        ("ValueError", "odd\nand long", "Line 3 raised ValueError: odd"),
        ("RuntimeError", "Cannot call @triton.jit'd outside of the scope of a kernel", "Line 3 calls a kernel"),
        ("TypeError", "object of type 'int' has no len()", "Line 3: a number has no length. If it is the grid"),
        (
            "AttributeError",
            "'torch.dtype' object has no attribute 'scalar'",
            "Line 3 names a type that is none of Trit",
        ),
        ("AttributeError", "'tensor' object has no attribute 'mul'", "Line 3 asks a block for mul"),
        ("AttributeError", "module 'triton.language' has no attribute 'tanh'", "Line 3: Triton has no tl.tanh."),
        ("AttributeError", "'Tensor' object has no attribute 'foo'", "Line 3 asks for foo"),
        ("AssertionError", "cannot cast [0.5 0.25\n 1.5] to pointer<fp32>", "Line 3 converts numbers"),
        ("TypeError", "only 0-dimensional arrays can be converted to Python scalars", "Line 3 needs one number"),
        ("TypeError", "'int' object is not iterable", "Line 3: a number where a tuple belongs"),
        ("TypeError", "add(): argument 'input' (position 1) must be Tensor, not tensor", "Line 3 gives a block to"),
        (
            "TypeError",
            "where() received an invalid combination of arguments - got (tensor, int)",
            "Line 3 gives a block",
        ),
        ("TypeError", "add(): argument 'input' (position 1) must be Tensor, not Tensor", "Line 3 raised TypeError"),
        (
            "ValueError",
            "Unsupported ptr type <['256'], fp32> in `tl.store`",
            "Line 3: what tl.store takes first are ad",
        ),
        (
            "ValueError",
            "Mask argument cannot be block type if pointer argument is not a block",
            "Line 3: the mask is a",
        ),
        ("ValueError", "Mask must have boolean scalar type", "Line 3: a mask says yes or no"),
        ("ValueError", "axis 1 out of bounds for shape ['constexpr[128]']", "Line 3: the block has no axis 1."),
        ("ValueError", "axis [ 1.0 2.0\n 3.0]", "Line 3: tl.min and tl.max go over one block"),
        (
            "TypeError",
            "maximum() missing 1 required positional argument: 'y'",
            "Line 3: tl.maximum compares two blocks",
        ),
        ("TypeError", "store() got multiple values for argument 'mask'", "Line 3 hands tl.store too much"),
        ("TypeError", "unsupported operand type(s) for @: 'tensor' and 'tensor'", "Line 3: @ is no operator"),
        ("TypeError", "unsupported operand type(s) for &: 'int' and 'float'", "Line 3 joins things"),
        ("TypeError", "unsupported operand type(s) for ** or pow(): 'tensor' and 'int'", "Line 3: ** is no operator"),
        ("E", "invalid operands of type pointer<int64> and triton.language.float32", "Line 3: an offset is a whole"),
        ("E", "invalid operands of type pointer<fp32> and pointer<fp32>", "Line 3 computes with addresses."),
        (
            "ValueError",
            "Expected pointer argument to have shape ['constexpr[32]', 'constexpr[16]'] but got ['constexpr[32]']",
            "Line 3: the pointer has the shape [32], where the values have [32, 16].",
        ),
    ],
)
def test_exceptions_in_plain_words(type_, message, sentence):
    assert plain_exception(Problem(type_, message, 3)).startswith(sentence)


def test_every_code_is_kebab_case_and_every_sentence_ends():
    for code, sentence in SENTENCES.items():
        assert code == code.lower() and " " not in code and "_" not in code
        assert sentence[-1] in ".?}" and "\n" not in sentence


def test_what_was_to_stay_and_is_gone_is_no_hole_of_a_kernel():
    def reference(x):
        x[:50].mul_(2)

    exercise = replace(IN_PLACE, reference=reference)
    right = IN_PLACE_SOLUTION.replace("x.numel()", "50")
    assert grade(exercise, right).passed
    found = grade(exercise, right.replace("    double_kernel[", "    x[50:] = 0\n    double_kernel[")).diagnosis
    assert found.code == "kept-lost" and "50 elements of x were to stay as they are" in found.sentence, found


WALKS = """\
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n)
        tl.store(y_ptr + offs, x * 2, mask=offs < n)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(1,)](x, y, x.numel(), BLOCK=128)
    return y
"""


def test_a_turn_that_begins_inside_the_block_before_is_named():
    assert grade(DOUBLE, WALKS).passed
    found = grade(DOUBLE, WALKS.replace("range(0, n, BLOCK)", "range(0, n // BLOCK)")).diagnosis
    assert "In line 6 the block of each turn begins 1 further than the one before, and is 128 long" in found.sentence


def test_what_pytorch_writes_over_a_kernels_result_is_no_kernels():
    right = SOLUTIONS[DOUBLE]
    over = right.replace("x * 2", "x * 3").replace("    return y", "    y.copy_(x + x)\n    return y")
    found = grade(DOUBLE, over).diagnosis
    assert found.code == "torch-result"
    between = right.replace("    double_kernel[", "    y.zero_()\n    double_kernel[")
    assert grade(DOUBLE, between).passed, "before the launch it does no harm"


def test_an_argument_that_stays_as_it_was_is_named():
    code = IN_PLACE_SOLUTION.replace("tl.store(x_ptr", "tl.store(y_ptr").replace("(x_ptr, n", "(x_ptr, y_ptr, n")
    code = code.replace("](x, x.numel()", "](x, torch.empty_like(x), x.numel()")
    found = grade(IN_PLACE, code).diagnosis
    assert found.code == "output-untouched" and "stored to the argument x" in found.sentence


def test_a_block_that_ends_within_a_row_is_too_short_and_no_grid_is():
    cases = tuple(Case(f"{m} x {n}", matrix(m, n), 1e-5, 1e-5) for m, n in ((3, 8), (5, 8), (1, 20)))
    fixed = ROW_SUM_SOLUTION.replace("triton.next_power_of_2(N)", "16")
    assert fixed != ROW_SUM_SOLUTION
    found = grade(replace(ROW_SUM, cases=cases), fixed, search=False).diagnosis
    assert found.code == "block-too-short", found


def test_a_tile_found_by_its_number_says_nothing_of_an_axis():
    copied = COPY_SOLUTION.replace("tl.program_id(0)", "tl.program_id(0) // tl.cdiv(N, 16)")
    copied = copied.replace("tl.program_id(1)", "tl.program_id(0) % tl.cdiv(N, 16)")
    copied = copied.replace("(triton.cdiv(M, 16), triton.cdiv(N, 16))", "(triton.cdiv(M, 16) * triton.cdiv(N, 16),)")
    assert grade(COPY, copied, search=False).passed
    fewer = copied.replace("(triton.cdiv(M, 16) * triton.cdiv(N, 16),)", "(M // 16 * triton.cdiv(N, 16),)")
    assert grade(COPY, fewer, search=False).diagnosis.code not in ("block-too-short", "mask-too-narrow")


def test_where_only_a_second_call_is_wrong_something_was_kept():
    case = replace(DOUBLE.cases[0], again=True)
    kept = SOLUTIONS[DOUBLE].replace("    y = torch.empty_like(x)\n", "    x = KEPT.setdefault(x.shape, x.clone())\n")
    kept = "KEPT = {}\n" + kept.replace("    double_kernel[", "    y = torch.empty_like(x)\n    double_kernel[")
    found = grade(replace(DOUBLE, cases=(case,)), kept).diagnosis
    assert found.code == "nondeterministic" and "keep from the first" in found.sentence, found


BRANCHED = """\
@triton.jit
def my_kernel(x_ptr, y_ptr, stride_xm, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    total = tl.sum(x * x, axis=0)
    if row != 2:
        tl.store(y_ptr + row * N + cols, (x / total).to(y_ptr.dtype.element_ty), mask=cols < N)


def normalise(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    my_kernel[(M,)](x, y, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y
"""


@pytest.mark.parametrize("change", ["", "the other branch", "no rule"])
def test_a_condition_that_keeps_a_program_from_its_store_is_named(change):
    code = BRANCHED
    if change == "the other branch":
        code = code.replace("row != 2:", "row == 2:\n        total = 0.0\n    else:")
    if change == "no rule":  # programs that write each other's rows
        code = code.replace("row = tl.program_id(0)", "row = tl.num_programs(0) - 1 - tl.program_id(0)")
    runs = grading.make_runs(ROW_SUM)
    assert grading._run_on_interpreter(ROW_SUM, code, answer.parse(code), runs, lambda stage: None) is None
    said = branches.passed_by(ast.parse(code), [run for run in runs if run.values_wrong])
    wanted = {"": "`row != 2` in line 7 holds", "the other branch": "`row == 2` in line 7 does not hold", "no rule": ""}
    assert said.startswith("Program 2 does not come to the store") == (change != "no rule"), said
    assert wanted[change] in said, said


def test_whole_numbers_that_went_through_float32_are_told():
    cases = (Case("odd numbers above 2^24", lambda g: (2**24 + 1 + 2 * torch.arange(200),), 0, 0),)
    rounded = SOLUTIONS[DOUBLE].replace("x * 2", "(x.to(tl.float32) * 2).to(tl.int64)")
    assert rounded != SOLUTIONS[DOUBLE]
    assert grade(with_cases(*cases), rounded).diagnosis.code == "through-float32"
    assert grade(with_cases(*cases), SOLUTIONS[DOUBLE]).passed


MARKS = """
@triton.jit
def mark_kernel(got_ptr, expected_ptr, marks_ptr, atol, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(got_ptr + offs, mask=offs < n)
    e = tl.load(expected_ptr + offs, mask=offs < n)
    near = (tl.abs(tl.abs(g) - tl.abs(e)) <= atol) | (g == e)
    tl.store(marks_ptr + offs, tl.where(near, 0, 1), mask=offs < n)


def mark_wrong(got, expected, atol):
    marks = torch.empty(got.shape, dtype=torch.int32, device=got.device)
    mark_kernel[(triton.cdiv(len(got), 128),)](got, expected, marks, atol, len(got), BLOCK=128)
    return marks
"""


def test_two_different_numbers_are_not_moved():
    """Zeros with a few ones among them lie in many places as they should."""
    found = grade("8.a", MARKS).diagnosis
    assert found is not None and found.code != "shifted", found
