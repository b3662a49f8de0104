"""Addresses compared as sums of products: what is named, and what is left alone because it may be right."""

import ast

import pytest

from course_lab.check import addresses

SOLUTION = """
@triton.jit
def copy_kernel(x_ptr, index_ptr, y_ptr, stride_xm, stride_xn, stride_ym, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    index = tl.load(index_ptr + row)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = (cols < N) & (row < M)
        x = tl.load(x_ptr + index * stride_xm + cols * stride_xn, mask=mask)
        tl.store(y_ptr + row * stride_ym + cols, x, mask=mask)
"""
X = "x_ptr + index * stride_xm + cols * stride_xn"
LOOP = "for start in range(0, N, BLOCK):\n        cols = start + tl.arange(0, BLOCK)"


def changed(*edits: tuple[str, str]) -> ast.Module:
    code = SOLUTION
    for old, new in edits:
        assert old in code
        code = code.replace(old, new)
    return ast.parse(code)


@pytest.mark.parametrize(
    ("edits", "code", "words"),
    [
        ([("row * stride_ym", "row * stride_xm")], "other-stride", "`stride_xm` stands where `stride_ym` belongs"),
        (
            [("index * stride_xm + cols * stride_xn", "index * stride_xn + cols * stride_xm")],
            "other-stride",
            "`stride_xn` stands where `stride_xm` belongs",
        ),
        ([("index * stride_xm", "row * stride_xm")], "without-offset", "where the number loaded from `index_ptr`"),
        ([("row * stride_ym", "2 * row * stride_ym")], "without-offset", "multiplied by `stride_ym` is counted twice"),
        (
            [("for start", "x_ptr += index * stride_ym\n    for start"), (X, "x_ptr + cols * stride_xn")],
            "other-stride",
            "`stride_ym` stands where `stride_xm` belongs",
        ),
    ],
)
def test_what_stands_where_something_else_belongs_is_named(edits, code, words):
    found = addresses.clue(changed(*edits), SOLUTION)
    assert found is not None
    assert found.code == code
    assert words in found.sentence


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [(LOOP, "for i in range(tl.cdiv(N, BLOCK)):\n        cols = i * BLOCK + tl.arange(0, BLOCK)")],
        [(X, "(x_ptr + cols * stride_xn) + stride_xm * index")],
        [("for start", "x_ptr += index * stride_xm\n    for start"), (X, "x_ptr + cols * stride_xn")],
        [("row * stride_ym", "row * N")],  # rows without gaps
        [("tl.program_id(0)", "tl.program_id(1)")],  # with another grid
        [("copy_kernel", "my_kernel"), ("row * stride_ym", "row * stride_xm")],  # nothing to compare with
    ],
)
def test_what_may_be_right_is_left_alone(edits):
    assert addresses.clue(changed(*edits), SOLUTION) is None


def test_a_stride_at_another_index_is_named():
    wrong = changed((X, "x_ptr + index + cols * stride_xn * stride_xm"))
    assert "`stride_xm` is multiplied by" in addresses.clue(wrong, SOLUTION).sentence
    assert addresses.clue(changed((X, "x_ptr + stride_xn * cols + stride_xm * index")), SOLUTION) is None


def test_offsets_made_of_a_number_that_was_looked_up_elsewhere_are_not_right():
    load = SOLUTION[: SOLUTION.index("x = tl.load")].count("\n") + 1
    assert addresses.has_right_offsets(changed(), SOLUTION, load)
    wrong = changed(("index_ptr + row", "index_ptr + row * N"))
    assert not addresses.has_right_offsets(wrong, SOLUTION, load)
    assert addresses.with_sources(wrong, ["x_ptr"]) == {"x_ptr", "index_ptr"}
    assert "index_ptr" in addresses.odd_products(wrong, SOLUTION, addresses.with_sources(wrong, ["x_ptr"]))


def test_only_the_tensors_that_are_asked_for():
    wrong = changed(("row * stride_ym", "row * stride_xm"))
    assert addresses.clue(wrong, SOLUTION, ("y_ptr",)) is not None
    assert addresses.clue(wrong, SOLUTION, ("x_ptr",)) is None


def test_a_mask_that_does_not_look_at_a_size():
    store = SOLUTION[: SOLUTION.index("tl.store")].count("\n") + 1
    one = changed(("(cols < N) & (row < M)", "cols < N"))
    assert addresses.unasked(one, SOLUTION, store) == "The offsets there are right, and the mask does not look at `M`."
    assert addresses.unasked(changed(), SOLUTION, store) == ""
    assert addresses.has_right_offsets(changed(("row < M", "row <= M")), SOLUTION, store)
    assert not addresses.has_right_offsets(changed(("row * stride_ym", "row * N")), SOLUTION, store)


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([], ""),
        ([("row * stride_ym + cols", "row * stride_ym + cols + 3 * M")], "`M` is added, and does not belong there."),
        ([("row * stride_ym + cols", "row + cols")], "`tl.program_id(0)` lacks a factor."),
        ([("row * stride_ym + cols", "row * stride_ym * M + cols")], "has a factor too many."),
        ([("row * stride_ym + cols", "(row // 2) * M + cols")], "look at `row // 2` times `M`."),
        ([("row * stride_ym + cols", "row * stride_ym + cols + 1")], ""),  # the next row's, perhaps
        ([("row * stride_ym + cols", "cols")], "nothing depends on `tl.program_id(0)`."),
        (
            [("row * stride_ym + cols", "(row // 2) * M + (cols % 7)")],  # start and arange are missing
            "",
        ),
        (
            [("index * stride_xm + cols * stride_xn", "(row % 2) * stride_xm + (cols // 2) + start * stride_xn")],
            "look at `row % 2` times `stride_xm` and at `cols // 2`.",
        ),
        ([("row * stride_ym + cols", "(row // 2) * M + (row // 3) + (row // 4) + cols")], ""),  # three: written anew
    ],
)
def test_up_to_two_odd_products_are_pointed_at(edits, said):
    found = addresses.odd_products(changed(*edits), SOLUTION)
    assert said in found and bool(found) == bool(said), found


def test_nothing_is_missing_where_the_loop_may_add_it():
    moved = ("tl.store(y_ptr + row * stride_ym + cols, x, mask=mask)", "tl.store(y_ptr + cols, x, mask=mask)")
    assert addresses.odd_products(changed(moved), SOLUTION)
    assert not addresses.odd_products(changed(moved, ("row < M)", "row < M)\n        y_ptr += 0 * cols")), SOLUTION)


WALKS = [
    ("    for start", "    x_ptr += index * stride_xm + tl.arange(0, BLOCK) * stride_xn\n    for start"),
    (X, "x_ptr"),
    ("x, mask=mask)\n", "x, mask=mask)\n        x_ptr += BLOCK * stride_xn\n"),
]


def test_a_pointer_that_walks_is_where_it_is_in_each_turn():
    assert addresses.odd_products(changed(*WALKS), SOLUTION) == ""
    assigned = (*WALKS[:2], (WALKS[2][0], WALKS[2][1].replace("x_ptr += BLOCK", "x_ptr = x_ptr + BLOCK")))
    assert addresses.odd_products(changed(*assigned), SOLUTION) == ""
    wrong = (*WALKS[:2], (WALKS[2][0], "x, mask=mask)\n        x_ptr += BLOCK\n"))
    assert "`BLOCK` times the turn of the loop lacks a factor." in addresses.odd_products(changed(*wrong), SOLUTION)


def test_a_loop_that_counts_by_itself_is_the_same_loop():
    counted = [("for start in range(0, N, BLOCK):", "start = 0\n    while start < N:")]
    step = ("x, mask=mask)\n", "x, mask=mask)\n        start += BLOCK\n")
    assert addresses.odd_products(changed(*counted, step), SOLUTION) == ""
    twice = (step[0], step[1].replace("+= BLOCK", "+= BLOCK * stride_xn"))
    assert "turn of the loop" in addresses.odd_products(changed(*counted, twice), SOLUTION)


def test_a_product_that_counts_too_few_times_is_named():
    twice = SOLUTION.replace("row * stride_ym", "row * 2 * stride_ym")
    said = addresses.odd_products(changed(), twice, ["y_ptr"])
    assert said.endswith("counts fewer times than it should.") and "`stride_ym`" in said


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("mask = (cols < N) & (row < M)", "mask = (lanes < N) & (row < M)", "whether `lanes` lies inside"),
        ("mask=mask)\n", "mask=lanes < N)\n", "by `BLOCK` times the turn of the loop"),
        ("mask=mask)\n", "mask=first)\n", "whether `lanes` lies inside"),
    ],
)
def test_a_mask_that_asks_for_the_place_in_the_block_is_seen(old, new, words):
    with_lanes = SOLUTION.replace(
        "    for start", "    lanes = tl.arange(0, BLOCK)\n    first = lanes < N\n    for start"
    )
    with_lanes = with_lanes.replace("start + tl.arange(0, BLOCK)", "start + lanes")
    load = with_lanes[: with_lanes.index(" x = tl.load")].count("\n") + 1
    assert addresses.asked_of_another(ast.parse(with_lanes), load) == ""
    assert words in addresses.asked_of_another(ast.parse(with_lanes.replace(old, new, 1)), load)


def test_a_row_of_its_own_start_is_no_further_block():
    """Rows begin at a stride, and not at the length of a block."""
    plain = changed(("index * stride_xm", "row * BLOCK * stride_xm"))
    load = SOLUTION[: SOLUTION.index(" x = tl.load")].count("\n") + 1
    assert addresses.asked_of_another(plain, load) == ""
