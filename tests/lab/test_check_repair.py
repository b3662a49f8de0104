"""The place of a mistake: what one change makes right was wrong there."""

import ast

import pytest
from small_exercises import COPY, COPY_SOLUTION, DOUBLE, DOUBLE_SOLUTION, ROW_SUM, ROW_SUM_SOLUTION, ROW_SUM_WALKED

from course_lab.authoring.operators.single_changes import repairs
from course_lab.check import client, grade, grading, repair
from course_lab.check.protocol import Job
from gfxlab import sandbox

LOOP = ROW_SUM_WALKED.replace("row * stride_ym", "row * N")  # rows of y without gaps
LOOP = LOOP.replace("stride_xm, stride_ym,", "stride_xm,").replace("x.stride(0), y.stride(0)", "x.stride(0)")


SHORT = LOOP.replace("range(0, N, BLOCK):", "range(0, N - BLOCK, BLOCK):", 1)


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    monkeypatch.setattr(grading, "_SEARCH_SECONDS", 60.0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "wrong, place",
    [
        (LOOP.replace("squares += x * x", "squares = x * x"), "in line 8: look at `squares = x * x`"),
        (LOOP.replace("x / total", "x * total"), "in line 13: look at `x * total`"),
        (LOOP.replace("squares += x * x", "squares += x - x * x"), "in line 8: look at"),
        (SHORT, "in line 5: look at `N - BLOCK`"),
        (LOOP.replace("N + cols, (x", "BLOCK + cols, (x").replace("=16", "=512"), "in line 13: look at `BLOCK`"),
    ],
)
def test_the_place_is_said_and_not_the_change(wrong, place):
    assert wrong != LOOP
    found = grade(ROW_SUM, wrong).diagnosis
    assert place in found.sentence, found


def test_arguments_the_wrong_way_round():
    wrong = COPY_SOLUTION.replace("(x, y, M, N,", "(x, y, N, M,")
    assert wrong != COPY_SOLUTION
    assert "in line" in grade(COPY, wrong).diagnosis.sentence


def test_what_two_changes_would_mend_has_no_place():
    wrong = DOUBLE_SOLUTION.replace("x * 2", "x * 1.9 + tl.where(offs == 40, 0.3, 0.7)")
    assert "look at" not in grade(DOUBLE, wrong).diagnosis.sentence


def test_a_change_that_spoils_another_case_is_none():
    """What makes the smallest case right must not make another one wrong."""
    wrong = ROW_SUM_SOLUTION.replace(
        "tl.sum(x * x, axis=0)", "tl.sum(tl.where(N > 20, tl.exp(x) * x, x * x - x), axis=0)"
    )
    assert "look at" not in grade(ROW_SUM, wrong).diagnosis.sentence


def test_code_in_another_style_is_no_obstacle():
    odd = LOOP.replace("tl.program_id(0)", "tl.program_id(axis=0)").replace(
        "tl.arange(0, BLOCK)", "tl.arange(start=0, end=BLOCK)"
    )
    made = list(repairs(odd + "\n\nf = lambda x: x.stride()\n"))
    assert len({one.code for one in made}) == len(made) > 30 and all(one.text and one.line for one in made)


def test_what_was_left_in_memory_what_a_loop_begins_with_and_an_axis_are_put_in():
    """Memory that an atomic adds to, a maximum that begins at 0, a tile that is added up whole."""
    code = LOOP.replace("total = tl.sum(squares, axis=0)", "total = tl.sum(squares)\n    tl.atomic_add(y_ptr, total)")
    made = {one.text: one.code for one in repairs(code) if "float(" in one.code or "zeros((M" in one.code}
    assert "torch.zeros((M, N)" in made["torch.empty"]
    assert 'tl.full((BLOCK,), -float("inf"), tl.float32)' in made["tl.zeros((BLOCK,), tl.float32)"]
    assert any("tl.sum(squares, axis=0)" in one.code for one in repairs(code))
    assert not any("torch.zeros" in one.code for one in repairs(LOOP)), "nothing is added to it"


ONLINE = """\
@triton.jit
def weigh(x_ptr, r_ptr, y_ptr, sx, sr, H, KH, N, G: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    head = row // G
    top, total = -float("inf"), 0.0
    largest = 0.0
    for start in range(0, N, B):
        cols = start + tl.arange(0, B)
        x = tl.load(x_ptr + row * sx + cols, mask=cols < N, other=0.0)
        r = tl.load(r_ptr + head * sr + cols, mask=cols < N, other=0.0)
        more = tl.load(r_ptr + head * sr + N + cols, mask=cols < N, other=0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(x), axis=0))
        new = tl.maximum(top, tl.max(x * r * more, axis=0))
        total = total * tl.exp(top - tl.where(new == -float("inf"), 0.0, new)) + tl.sum(x, axis=0)
        top = new
    tl.store(y_ptr + row, 0.5 * (total + largest))
    tl.store(y_ptr + H + row, total / N + top)


def weights(x, r):
    (H, N), KH = x.shape, r.shape[0]
    y = torch.empty(2 * H, device=x.device)
    weigh[(H,)](x, r, y, x.stride(0), r.stride(0), H, KH, N, G=H // KH, B=16)
    return y
"""
RESCALED = 'total * tl.exp(top - tl.where(new == -float("inf"), 0.0, new)) + tl'


def place_of_right_one(old: str, new: str, accesses: frozenset[int] = frozenset(), times: int = 1) -> int:
    """Of the repairs of `ONLINE` with `new` for `old`, the place of that which undoes it; -1 where none does."""
    assert old in ONLINE
    made = [ast.dump(ast.parse(one.code)) for one in repairs(ONLINE.replace(old, new, times), accesses=accesses)]
    right = ast.dump(ast.parse(ONLINE))
    return made.index(right) if right in made else -1


@pytest.mark.parametrize(
    "old, new",
    [
        ("tl.maximum(largest, tl.max(tl.abs(x), axis=0))", "tl.max(tl.abs(x), axis=0)"),
        (RESCALED, "total + tl"),
        (RESCALED, "tl"),
        ("0.5 * (total + largest)", "0.5 * total + largest"),
        ("total / N + top", "(total + top) / N"),
        ("cols < N", "cols > N"),
    ],
)
def test_what_a_loop_should_keep_and_other_parentheses_are_tried_early(old, new):
    assert 0 <= place_of_right_one(old, new) < 25


@pytest.mark.parametrize(
    "old, new, line, times",
    [
        ("row * sx", "row * H", 9, 1),
        ("y_ptr + row", "y_ptr + head", 16, 1),
        ("head * sr", "head * sx", 10, 2),  # both loads of the tensor
        ("H // KH", "KH // H", 10, 1),
    ],
)
def test_what_an_access_that_goes_elsewhere_is_made_of_is_tried_first(old, new, line, times):
    early, late = place_of_right_one(old, new, frozenset({line}), times), place_of_right_one(old, new, times=times)
    assert 0 <= early < 25 and (late < 0 or late > early)


TILES = """\
@triton.jit
def tiles(a_ptr, b_ptr, lse_ptr, y_ptr, M, N, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    a = tl.load(a_ptr + r[:, None] * N + c[None, :], mask=c[None, :] < N, other=0.0)
    b = tl.load(b_ptr + r[:, None] * N + c[None, :], mask=c[None, :] < N, other=0.0)
    first, second = tl.split(tl.permute(tl.reshape(a, (R, 2, C // 2)), (0, 2, 1)))
    top = tl.where(c[None, :] < N, a, -float("inf")).max(axis=1, keep_dims=True)
    p = tl.exp2(a * 1.5 - tl.load(lse_ptr + r)[:, None] * 1.4426950408889634)
    total = tl.sum(p, axis=1)
    y = (top + tl.log2(total)) * 0.5
    s = tl.dot(a, tl.trans(b)) + tl.softmax(a, dim=1)
    tl.store(y_ptr + r, y, mask=r < M)


def run(a, b, lse):
    M, N = a.shape
    y = torch.empty(M)
    if M > 0:
        tiles[(triton.cdiv(M, 8),)](a, b, lse, y, M, N, R=8, C=triton.next_power_of_2(N))
    return y
"""


@pytest.mark.parametrize(
    "old, new",
    [
        ("tl.sum(p, axis=1)", "tl.sum(p, axis=0)"),
        ("tl.sum(p, axis=1)", "tl.sum(p)"),
        (".max(axis=1, keep_dims=True)", ".max()"),
        ("tl.softmax(a, dim=1)", "tl.softmax(a)"),
        ("tl.split(tl.permute(tl.reshape(a, (R, 2, C // 2)), (0, 2, 1)))", "tl.split(tl.reshape(a, (R, C // 2, 2)))"),
        ("tl.load(lse_ptr + r)[:, None]", "tl.load(lse_ptr + r)[None, :]"),
        ("tl.dot(a, tl.trans(b))", "tl.dot(a, b)"),
        ('-float("inf")', "-1e4"),
        ("(top + tl.log2(total)) * 0.5", "top + tl.log2(total) * 0.5"),
        ("C=triton.next_power_of_2(N)", "C=64"),
        ("R=8", "R=16"),
        ("R=8, C=triton.next_power_of_2(N)", "R=triton.next_power_of_2(N), C=8"),
        ("M > 0", "M >= 0"),
        ("a_ptr + r[:, None] * N + c[None, :]", "a_ptr + c[None, :]"),
    ],
)
def test_how_a_tile_lies_its_scale_and_its_numbers_are_undone(old, new):
    """Axes, new axes, transpositions, reshapes; what stands for infinity; whole numbers; a start that is missing."""
    assert old in TILES
    made = [ast.dump(ast.parse(one.code)) for one in repairs(TILES.replace(old, new, 1))]
    right = TILES.replace("a_ptr + r[:, None] * N + c[None, :]", "a_ptr + c[None, :] + r[:, None] * N")
    assert ast.dump(ast.parse(right if new.startswith("a_ptr") else TILES)) in made


def test_a_number_in_the_other_base_is_brought_over():
    wrong = TILES.replace("[:, None] * 1.4426950408889634", "[:, None]")
    assert wrong != TILES
    assert any("[:, None]) * 1.4426950408889634)" in one.code for one in repairs(wrong))


def test_what_rounds_is_tried_first_where_numbers_are_nearly_right():
    right = TILES.replace("y, mask=r < M", "(y).to(y_ptr.dtype.element_ty), mask=r < M")
    wrong = right.replace("total = tl.sum(p, axis=1)", "total = tl.sum((p).to(tl.float16), axis=1)")
    early, late = ([ast.dump(ast.parse(one.code)) for one in repairs(wrong, rounded=how)] for how in (True, False))
    assert ast.dump(ast.parse(right)) in early[:8] and ast.dump(ast.parse(right)) not in late[:8]


def test_two_roundings_are_taken_out_together():
    wrong = TILES.replace("tl.sum(p, axis=1)", "tl.sum(p.to(tl.float16), axis=1).to(tl.float16)")
    wrong = wrong.replace("tl.log2(total)", "tl.log2(total.to(tl.bfloat16))")
    both = [one.code for one in repairs(wrong) if "bfloat16" not in one.code and "sum(p.to(tl.float16)" in one.code]
    assert any(".to(tl.float16)," in code and ".to(tl.float16)\n" not in code for code in both)


def test_a_number_is_shown_with_what_it_stands_in():
    wrong = TILES.replace("(triton.cdiv(M, 8),)", "(triton.cdiv(M, 4),)")
    shown = {one.text for one in repairs(wrong) if "triton.cdiv(M, 8)" in one.code}
    assert shown == {"triton.cdiv(M, 4)"}


def test_a_place_in_the_arithmetic_goes_before_an_exchange_of_loads(monkeypatch):
    """What two exchanged loads mend as well, is said of the line that is likelier wrong."""
    found = [repair.Repair("", 4, "got_ptr + offs"), repair.Repair("", 9, "got != got")]
    monkeypatch.setattr(repair, "mend", lambda *about, **how: found)
    assert (
        repair.place(Job("91.1", "", "double", ()), None, [], 1.0)
        == "One change makes it right, in line 9: look at `got != got`."
    )
    monkeypatch.setattr(repair, "mend", lambda *about, **how: found[:1])
    assert "line 4" in repair.place(Job("91.1", "", "double", ()), None, [], 1.0)


def test_what_a_learner_wrote_runs_where_answers_run_changed_or_not(monkeypatch):
    """A class grades in a sandbox of its own: no search may take an answer out of it, in whatever thread it runs."""
    inside, outside, run = [], [], sandbox.run

    def noting(where):
        def noted(function, payload, **limits):
            where.append((function, " ".join(payload.get("codes", [payload["job"]["code"]]))))
            return run(function, payload, **limits)

        return noted

    monkeypatch.setattr(sandbox, "run", noting(outside))
    wrong = LOOP.replace("squares += x * x", "squares = x * x").replace("total", "their_total")
    with client.answers_run_by(noting(inside)):
        found = grade(ROW_SUM, wrong, solution=ROW_SUM_SOLUTION).diagnosis
    assert "in line 8: look at" in found.sentence
    assert not any("their_total" in code for _, code in outside)
    searched = {function.rpartition(":")[2] for function, code in inside if "their_total" in code}
    assert {"run_cases", "run_answers"} <= searched and outside
