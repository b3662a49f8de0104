"""Wrong answers that no rule explains, recognised by the numbers of the mistakes that the author thought of."""

from dataclasses import replace

import pytest
from small_exercises import DOUBLE, DOUBLE_SOLUTION, IN_PLACE, IN_PLACE_SOLUTION, ROW_SUM, ROW_SUM_SOLUTION

from course_lab.authoring import lessons
from course_lab.authoring.exercise import Mutant, Suspect
from course_lab.check import alike, grade, grading, repair
from gfxlab import sandbox


def wrong(*edits: tuple[str, str]) -> str:
    code = ROW_SUM_SOLUTION
    for old, new in edits:
        assert old in code, old
        code = code.replace(old, new)
    return code


CUBES = wrong(("tl.sum(x * x,", "tl.sum(x * x * x,"))
ABSOLUTE = wrong(("tl.sum(x * x,", "tl.sum(tl.abs(x),"))
# the learner's own way of adding up what ABSOLUTE adds up
ANSWER = wrong(("tl.sum(x * x,", "tl.sum(tl.where(x < 0, -x, x),"), ("normalise_kernel", "mine_kernel"))
HEAD = "An answer with this mistake gives just your numbers. "


@pytest.fixture
def asked(monkeypatch):
    """The codes of the mistakes that were run; the answer itself is not changed."""
    monkeypatch.setattr(repair, "place", lambda *about, **how: "")
    codes, real = [], sandbox.run

    def run(job, payload, **options):
        codes.extend(payload.get("codes", ()))
        return real(job, payload, **options)

    monkeypatch.setattr(sandbox, "run", run)
    return codes


def judged(answer: str, *mistakes: tuple[str, str], exercise=ROW_SUM):
    return grade(exercise, answer, mistakes=lambda: list(mistakes))


def test_the_mistake_with_the_same_numbers_is_named():
    assert judged(ANSWER).diagnosis.code == "row-factor"
    report = judged(ANSWER, ("shifted", CUBES), ("hard-coded-size", ABSOLUTE))
    assert report.status == "failed"
    assert report.diagnosis.code == "hard-coded-size"
    assert report.diagnosis.sentence == HEAD + "Which number in your code should come from the arguments?"
    assert HEAD in report._repr_html_()


def test_a_suspect_of_the_exercise_brings_its_own_sentence():
    summed = replace(ROW_SUM, suspects=(Suspect("sum-of-sizes", "These are no squares.", lambda x: 0 * x),))
    found = judged(ANSWER, ("sum-of-sizes", ABSOLUTE), exercise=summed).diagnosis
    assert found == ("sum-of-sizes", HEAD + "These are no squares.")


def test_neither_the_mistake_nor_the_solution_is_shown():
    secret = ABSOLUTE.replace("normalise_kernel", "secret_kernel")
    report = judged(ANSWER, ("hard-coded-size", secret))
    assert "secret" not in str(report) + report._repr_html_() and "tl.abs" not in str(report)


def test_two_different_diagnoses_are_none_and_two_equal_ones_are_one():
    again = ABSOLUTE.replace("tl.abs(x)", "tl.sqrt(x * x)")
    assert judged(ANSWER, ("shifted", again), ("hard-coded-size", ABSOLUTE)).diagnosis.code == "row-factor"
    assert judged(ANSWER, ("shifted", again), ("shifted", ABSOLUTE)).diagnosis.code == "shifted"


def test_other_numbers_are_no_match():
    assert judged(ANSWER, ("shifted", CUBES)).diagnosis.code == "row-factor"


def test_a_match_in_one_case_only_is_none():
    narrow = wrong(("tl.sum(x * x,", "tl.sum(tl.abs(x) if N == 64 else x,"))
    assert judged(ANSWER, ("shifted", narrow)).diagnosis.code == "row-factor"


def test_a_match_that_would_spoil_what_is_right_is_none():
    """The answer is wrong where N is 64 alone; the mistake everywhere."""
    at_64 = wrong(("tl.sum(x * x,", "tl.sum(tl.abs(x) if N == 64 else x * x,"))
    widths = {run.args[0].shape[1] for run in grading.make_runs(ROW_SUM)}
    assert 64 in widths and len(widths) > 1
    assert judged(at_64, ("shifted", ABSOLUTE)).diagnosis.code == "row-factor"
    assert judged(at_64, ("shifted", at_64)).diagnosis.code == "shifted"


def test_a_mistake_that_is_right_here_says_nothing(asked):
    small = replace(ROW_SUM, cases=(replace(ROW_SUM.cases[0], atol=0.0, rtol=1e-4),))
    near = wrong(("(x / total)", "(x / total * 1.00015)"))
    harmless = wrong(("(x / total)", "(x / total * 1.00008)"))
    assert judged(near, ("shifted", harmless), exercise=small).diagnosis.code == "unknown"


def test_rules_that_explain_go_first(asked):
    unmasked = DOUBLE_SOLUTION.replace("x * 2, mask=mask", "x * 2")
    assert judged(unmasked, ("shifted", unmasked), exercise=DOUBLE).diagnosis.code == "missing-store-mask"
    assert judged(DOUBLE_SOLUTION, ("shifted", unmasked), exercise=DOUBLE).passed
    square = DOUBLE_SOLUTION.replace("x * 2", "x * x")
    assert judged(square, ("shifted", square), exercise=DOUBLE).diagnosis.code == "squared"
    assert asked == []


def test_nothing_and_not_a_number_say_nothing(asked):
    for value, code in (("0.0", "unknown"), ("float('nan')", "not-finite")):
        nothing = wrong(("(x / total)", f"(x * 0.0 + {value})"))
        assert judged(nothing, ("shifted", nothing)).diagnosis.code == code
    assert asked == []


def test_codes_without_a_sentence_are_not_run(asked):
    assert judged(ANSWER, ("exception", ABSOLUTE), ("unknown", CUBES)).diagnosis.code == "row-factor"
    assert asked == []


@pytest.mark.parametrize(
    "edit", [("    y = torch", "    1 / 0\n    y = torch"), ("    return y", ""), ("def normalise(", "def other(")]
)
def test_a_mistake_that_fails_is_no_match(edit):
    broken = wrong(edit)
    assert judged(ANSWER, ("shifted", broken), ("hard-coded-size", ABSOLUTE)).diagnosis.code == "hard-coded-size"


def test_what_a_failed_mistake_left_in_an_argument_is_no_match():
    same = IN_PLACE_SOLUTION.replace("x * 2", "x * 1")
    early = IN_PLACE_SOLUTION.replace("def double_(x):", "def double_(x):\n    1 / 0")
    assert judged(same, ("shifted", early), exercise=IN_PLACE).diagnosis.code == "constant-factor"
    assert judged(same, ("shifted", same), exercise=IN_PLACE).diagnosis.code == "shifted"


def test_a_mistake_that_never_ends_costs_no_more_than_the_budget(monkeypatch):
    monkeypatch.setattr(alike, "_SECONDS", 1.0)
    endless = wrong(("    y = torch", "    while True: pass\n    y = torch"))
    report = judged(ANSWER, ("hard-coded-size", ABSOLUTE), ("shifted", endless), ("missing-other", CUBES))
    assert report.diagnosis.code == "hard-coded-size"


# ---- by number -------------------------------------------------------------------------------------------------------


def test_an_exercise_given_by_number_has_its_lessons_mutants(fake_course):
    code = lessons.solution("90.1").replace("2 * x", "3 * x")
    assert grade("90.1", code).diagnosis.code == "constant-factor"
    factor = 'Mutant("triples", (("2 * x", "x * 3"),), "shifted"), *_mutants("2 * x")'
    fake_course.edit("mutants.py", '"90.1": _mutants("2 * x")', f'"90.1": ({factor})')
    assert [mutant.name for mutant in lessons.mutants("90.1")][:2] == ["triples", "no store mask"]
    assert grade("90.1", code).diagnosis.code == "shifted"
    assert isinstance(lessons.mutants("90.1")[0], Mutant) and lessons.mutants("90.2")


@pytest.mark.parametrize("damage", [("2 * x", "nowhere"), ("MUTANTS =", "1 / 0; MUTANTS =")])
def test_a_lesson_with_unusable_mutants_still_grades(fake_course, damage):
    fake_course.edit("mutants.py", *damage)
    report = grade("90.1", lessons.solution("90.1").replace("2 * x", "3 * x"))
    assert report.diagnosis.code == "constant-factor"
