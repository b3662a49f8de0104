"""Mutation operators: what they make of a kernel, and that every generated mutant is killed or argued about."""

import ast

import pytest

from course_lab.authoring import generated, lessons
from course_lab.authoring.operators import OPERATORS, generate
from course_lab.authoring.operators.equivalent import Equivalent

SCALE = """\
@triton.jit
def scale_kernel(x_ptr, y_ptr, stride_xm, stride_ym, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride_ym + cols, x - eps, mask=cols < N)


def scale(x, eps):  # ≈ a comment whose bytes are not its characters
    M, N = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(N)
    scale_kernel[(M,)](x, y, x.stride(0), y.stride(0), N, eps, BLOCK=block)
    return y
"""


def lines_of(operator):
    """The changed lines of every mutant that an operator makes of SCALE."""
    before = SCALE.splitlines()
    made = [mutant.code.splitlines() for mutant in generate(SCALE) if mutant.operator == operator]
    return [[line.strip() for line in after if line not in before] for after in made]


@pytest.mark.parametrize(
    "operator, line",
    [
        ("other-stride", "x = tl.load(x_ptr + row * stride_ym + cols, mask=cols < N, other=0.0).to(tl.float32)"),
        ("drop-mask", "tl.store(y_ptr + row * stride_ym + cols, x - eps)"),
        ("drop-other", "x = tl.load(x_ptr + row * stride_xm + cols, mask=cols < N).to(tl.float32)"),
        ("off-by-one", "tl.store(y_ptr + row * stride_ym + cols, x - eps, mask=(cols <= N))"),
        ("without-int64", "row = tl.program_id(0)"),
        ("opposite-sign", "tl.store(y_ptr + row * stride_ym + cols, (x + (eps)), mask=cols < N)"),
        ("fixed-number", "tl.store(y_ptr + row * stride_ym + cols, x - 1e-6, mask=cols < N)"),
        ("other-host-size", "scale_kernel[(M,)](x, y, x.stride(-1), y.stride(0), N, eps, BLOCK=block)"),
        ("grid-axis", "scale_kernel[(max(M - 1, 1),)](x, y, x.stride(0), y.stride(0), N, eps, BLOCK=block)"),
        ("fixed-block", "block = 1024"),
    ],
)  # fmt: skip
def test_an_operator_makes_its_mistake(operator, line):
    assert [line] in lines_of(operator)


WRAPPED = """\
class Shipped(torch.autograd.Function):
    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            raise ValueError("no gradient")
        x, scale = ctx.saved_tensors
        return dy.float() * scale, (dy * x).sum()
"""
HANDED_IN = f"""\
def breaking_input():
    return (torch.zeros(3),)


cause = "padded-lanes"


{SCALE}

def test_scale():
    assert torch.equal(scale(torch.zeros(2, 2), 0.0), torch.zeros(2, 2))
"""


@pytest.mark.parametrize(
    "code, operator, says",
    [
        (WRAPPED, "lost-refusal", "does not refuse `dy is None`"),
        (WRAPPED, "lost-conversion", "leaves `.float` out behind `dy`"),
        (WRAPPED, "swapped-results", "returns `(dy * x).sum()` and `dy.float() * scale` the wrong way round"),
        (WRAPPED, "lost-operand", "leaves out `scale`"),
        (HANDED_IN, "lost-finding", "has nothing in `breaking_input`"),
        (HANDED_IN, "other-cause", "names no cause"),
    ],
)
def test_answers_that_wrap_a_kernel_or_find_a_fault_have_operators_of_their_own(code, operator, says):
    assert (operator, says) in [(mutant.operator, mutant.says) for mutant in generate(code)]


def test_a_finding_and_an_authors_test_are_no_place_for_a_kernels_mistakes():
    """Any finding counts that breaks the kernel, and of the author's test the check has its own."""
    changed = {mutant.line for mutant in generate(HANDED_IN) if mutant.operator not in ("lost-finding", "other-cause")}
    lines = HANDED_IN.splitlines()
    assert changed and not any("zeros" in lines[line - 1] for line in changed)


def test_every_mutant_parses_says_what_it_is_and_occurs_once():
    mutants = list(generate(SCALE))
    assert len({mutant.code for mutant in mutants}) == len(mutants) > 30
    for mutant in mutants:
        assert ast.parse(mutant.code) and mutant.says and mutant.says.count("`") % 2 == 0
        assert "≈" in mutant.code


def test_every_operator_finds_work_in_the_solutions():
    made = {mutant.operator for number in generated.numbers() for mutant in generate(lessons.solution(number))}
    assert made == set(OPERATORS)


def test_an_equivalent_is_found_by_operator_and_words():
    mutant = next(one for one in generate(SCALE) if one.operator == "drop-other")
    assert Equivalent("drop-other", "lanes of `x_ptr`", "never stored").fits(mutant)
    assert not Equivalent("drop-other", "`w_ptr`", "never stored").fits(mutant)
    assert not Equivalent("drop-mask", "`x_ptr`", "never stored").fits(mutant)


@pytest.mark.parametrize("number", ["0.1", "0.4", "1.1", "1.3"])
def test_a_fixed_sample_of_the_generated_mutants_is_killed_or_argued_about(number):
    judged = generated.judge(number, every=9, first=2)
    assert judged and not [str(one) for one in judged if one.survives]
