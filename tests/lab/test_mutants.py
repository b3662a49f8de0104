"""The kill table: mutants are made from the solution, graded, and compared with what their author expects."""

import pytest
from small_exercises import DOUBLE, DOUBLE_SOLUTION

from course_lab.authoring import edits, lessons, mutants
from course_lab.authoring.exercise import Mutant

GOOD = Mutant("factor", (("x * 2", "x * 3"),), "constant-factor")
MISLABELLED = Mutant("no mask", (("x * 2, mask=mask", "x * 2"),), "missing-other")
EQUIVALENT = Mutant("adds instead", (("x * 2", "x + x"),), "constant-factor")


def test_edits_are_applied_in_order():
    mutant = Mutant("m", (("x * 2", "x * 3"), ("x * 3", "x * 4")), "constant-factor")
    assert edits.apply(mutant, DOUBLE_SOLUTION) == DOUBLE_SOLUTION.replace("x * 2", "x * 4")


@pytest.mark.parametrize(
    "edit, words", [(("nowhere", "x"), "'nowhere' does not occur"), (("x", "x"), "changes nothing")]
)
def test_a_mutant_that_cannot_be_made_is_an_error(edit, words):
    with pytest.raises(edits.MutantError, match=words):
        edits.apply(Mutant("m", (edit,), "unknown"), DOUBLE_SOLUTION)


def test_the_table_names_survivors(monkeypatch):
    class Lesson:
        exercises, steps = (DOUBLE,), ()
        mutants = {DOUBLE.number: (GOOD, MISLABELLED, EQUIVALENT)}

    monkeypatch.setattr(lessons, "all", lambda: [Lesson])
    monkeypatch.setattr(lessons, "solution", lambda number: DOUBLE_SOLUTION)
    monkeypatch.setattr(lessons, "stub", lambda number: "")
    table = mutants.kill_table()
    got = [(row.mutant, row.expected, row.got) for row in table.rows]
    assert got == [
        ("the solution", "passed", "passed"),
        ("factor", "constant-factor", "constant-factor"),
        ("no mask", "missing-other", "missing-store-mask"),
        ("adds instead", "constant-factor", "passed"),
    ]
    assert [row.mutant for row in table.survivors] == ["no mask", "adds instead"]
    assert "2 of 4 as expected" in str(table) and "✗  91.1" in str(table)
    assert mutants.kill_table(["7.7"]).rows == ()
