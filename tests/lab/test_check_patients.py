"""Patients of the clinic: finding, cause and repair are judged one by one; what breaks every kernel is no finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course_lab import clinic
from course_lab.authoring import lessons
from course_lab.authoring.patient import CAUSE, FINDING, PRICE, TEST, Cause, Patient
from course_lab.check import grade, patients

NUMBER = "8.1"
STUB, SOLUTION = lessons.stub(NUMBER), lessons.solution(NUMBER)
FOUND = "    return (torch.randn(4, 500) + 10.0,)"


def answer(finding: str = "", cause: str = "", repaired: bool = False) -> str:
    """The stub of 8.1 with these parts filled in."""
    code = STUB.replace("    # your code here (roughly 1 line)", finding or "    pass")
    code = code.replace('cause = ""', f'cause = "{cause}"')
    return code.replace("centred = x - mean", "centred = tl.where(mask, x - mean, 0.0)") if repaired else code


def status(report) -> dict[str, str]:
    return {case.name: case.status for case in report.cases}


def test_each_part_has_a_tick_of_its_own():
    report = grade(NUMBER, answer(FOUND))
    assert report.status == "failed" and report.diagnosis.code == "unfinished"
    assert status(report)[FINDING] == "passed" and status(report)[CAUSE] == "not-run"
    assert "`cause` and the repair" in report.diagnosis.sentence
    assert "expected" in "\n".join(report.cases[0].details), "what is wrong is shown"

    report = grade(NUMBER, answer("", "padded-lanes"))
    assert status(report)[FINDING] == "not-run" and status(report)[CAUSE] == "passed"

    report = grade(NUMBER, answer(repaired=True))
    assert {name for name, what in status(report).items() if what != "passed"} == {FINDING, CAUSE}
    assert status(report)[TEST] == status(report)[PRICE] == "passed"
    assert tuple(status(report)) == lessons.exercise(NUMBER).ticks


def test_the_untouched_cell_is_no_attempt():
    report = grade(NUMBER, STUB)
    assert report.status == "not-attempted" and not report.ran


@pytest.mark.parametrize(
    "finding, code",
    [
        ("    return (torch.randn(8, 500),)", "breaks-nothing"),
        ("    return torch.full((2, 500), 3e38),", "breaks-every-kernel"),
        ('    return torch.full((2, 500), float("nan")),', "finding-refused"),
        ("    return torch.zeros(0, 5),", "finding-refused"),
        ("    return torch.randn(2, 500, dtype=torch.float64),", "finding-refused"),
        ("    return [object()]", "finding-refused"),
        ("    return 7", "finding-refused"),
        ("    return torch.randn(1 << 20).expand(1 << 12, 1 << 20),", "finding-refused"),
        ("    raise SystemExit", "finding-failed"),
    ],
)
def test_a_finding_must_show_this_fault(finding, code):
    report = grade(NUMBER, answer(finding))
    assert report.diagnosis.code == code, report
    assert status(report)[FINDING] == "failed"


def test_an_endless_finding_ends():
    exercise = replace(lessons.exercise(NUMBER), time_limit=1.0)
    assert grade(exercise, answer("    while True: pass"), stub=STUB).diagnosis.code == "finding-failed"


def test_a_part_alone_is_a_tuple_of_one():
    assert status(grade(NUMBER, answer("    return torch.randn(4, 500) + 10.0")))[FINDING] == "passed"


def test_the_cell_may_lack_the_function_or_be_no_python():
    assert grade(NUMBER, answer().replace("def breaking_input", "def something")).diagnosis.code == "no-entry"
    assert grade(NUMBER, answer() + "\n)").diagnosis.code == "syntax-error"


def test_wrong_causes_are_refuted():
    report = grade(NUMBER, answer(FOUND, "missing-other"))
    assert report.diagnosis.code == "another-cause" and "other=0.0" in report.diagnosis.sentence
    assert "padded-lanes" in grade(NUMBER, answer(FOUND, "bug")).diagnosis.sentence, "the choices are named"


def test_what_is_wrong_with_a_part_stands_under_it_where_the_diagnosis_is_about_another():
    report = grade(NUMBER, answer("    return (torch.randn(8, 500),)", "missing-other"))
    assert report.diagnosis.code == "breaks-nothing" and not report.cases[0].details
    assert "other=0.0" in report.cases[1].details[0]


def test_lines_are_those_of_the_cell_as_it_was_handed_out():
    line = (
        STUB.splitlines().index("    tl.store(out_ptr + row, tl.sum(centred * centred, axis=0) / N)") + 2
    )  # the magic
    assert f"in line {line}:" in "\n".join(grade(NUMBER, answer(FOUND)).cases[0].details)


def test_a_finding_that_only_the_machine_code_shows_names_the_engine():
    stub = lessons.stub("8.4").replace(
        "    # your code here (roughly 2 lines)",
        "    return torch.randn(1, 128), torch.ones(1, 64) / 2, torch.ones(1, 64) / 2",
    )
    details = grade("8.4", stub).cases[0].details
    assert "machine code of gfx942, each wave to its end" in details[0] and "no kernel of yours ran" not in details


def test_the_price_stands_beside_ours():
    price = grade(NUMBER, answer(repaired=True)).cases[-1]
    assert price.name == PRICE and "ours: " in price.details[1] and "2 times" in price.details[1]


def test_a_right_repair_is_not_graded_twice(monkeypatch):
    assert status(grade(NUMBER, answer(repaired=True)))[PRICE] == "passed"
    monkeypatch.setattr(patients.client, "cost", None)  # would fail if it were asked again
    assert grade(NUMBER, answer(FOUND, "padded-lanes", repaired=True)).passed


def test_the_numbers_of_a_finding_are_no_sizes_of_the_repair():
    code = SOLUTION.replace("tl.where(mask, x - mean, 0.0)", "tl.where(mask, x - mean, 1.0)")
    assert grade(NUMBER, code).diagnosis.code != "hard-coded-size"


def test_a_patient_can_be_hunted():
    p = clinic.patient("8.3")
    p.test()
    assert "patient 8.3: append" in repr(p) and p.kernel.fn.__name__ == "append_kernel"
    with pytest.raises(lessons.LessonError, match="8.12"):
        clinic.patient("8.99")


def test_a_patient_has_one_right_cause():
    wrong = Cause("a", "b", "c")
    for causes in ((wrong,) * 4, (Cause("a", "b"),) * 4, (wrong, Cause("d", "e"))):
        with pytest.raises(ValueError, match="one of them right"):
            Patient("s", "i", "c", causes, price=lambda generator: ())
