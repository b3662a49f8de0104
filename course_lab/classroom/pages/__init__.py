"""What a class's results are shown as: `results.csv`, `junit.xml`, `index.html`, and a page for each learner."""

from __future__ import annotations

from course_lab.classroom.pages import instructor, learner, tables
from course_lab.classroom.pages.gathered import Gathered
from course_lab.classroom.results import Results, write_text
from course_lab.classroom.verdicts import Assignment


def write_all(results: Results, learners: list[str], assignment: Assignment) -> None:
    """Write every page from the results on disk, of these learners."""
    gathered = Gathered.of(results, set(learners), assignment.exercises)
    feedback = results.folder / "feedback"
    feedback.mkdir(exist_ok=True)
    for result in gathered.each():
        write_text(feedback / gathered.page(result["learner"]), learner.page(result, gathered.titles))
    write_text(results.folder / "results.csv", tables.as_csv(gathered))
    write_text(results.folder / "junit.xml", tables.as_junit(gathered))
    write_text(results.folder / "index.html", instructor.page(gathered, assignment))
