"""The report of a check as the page shows it."""

from course_lab.check.report import CaseResult, Report
from course_lab.check.sentences import Diagnosis

CASES = (CaseResult("whole blocks", "passed"), CaseResult("a tail", "failed", ("3 elements are wrong",)))


def test_the_likely_mistake_comes_first_and_what_passed_is_folded():
    found = Diagnosis("grid-floor-division", "The grid is one program short.")
    page = Report("2.1", "Sum", "failed", CASES, found, ("line 3: n // BLOCK",))._repr_html_()
    parts = ["not right yet", "one program short", "line 3", "a tail", "3 elements are wrong", "<details>", "1 case pa"]
    assert parts == sorted(parts, key=page.index)
    assert page.index("<details>") < page.index("whole blocks") < page.index("</details>")


def test_nothing_is_folded_where_nothing_passed():
    assert "<details>" not in Report("2.1", "Sum", "failed", CASES[1:])._repr_html_()
