"""The field guide: from a symptom to its cure, and every diagnosis that a check can give, on one page.

It is made from what the exercises hold (patients, suspects) and from the check's own sentences, so it cannot say
anything else than they do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from course_lab.authoring.lessons import Lesson
from course_lab.authoring.operators import OPERATORS
from course_lab.check.sentences import SENTENCES
from gfxlab.tables import Table

_PAGE = """\
<!-- Written by `course build` from the patients, the exercises and the check's sentences. -->
# Field guide

What you see, what to look with, what it was, what helps. Each line is a patient of
[the kernel clinic](../notebooks/08_clinic.ipynb), where you can practise it. The method behind it: reproduce, shrink,
ask which engine disagrees, then which element, which program and line, and at last which assumption.

{patients}

## What a check can say

The diagnoses that every exercise can get, as the check words them (… stands for what it fills in), and the place in
the lessons that teaches what is behind them.

{general}

## Mistakes of single exercises

These are recognised by their numbers, in the exercises that are named.

{suspects}

## Mistakes in one place

Where no rule is certain, mistakes are made in the solution, one at a time. If one gives your numbers, the report names
it in words of your kernel, under the name of its kind.

{machine}

## What examiners find

Some exercises ask for more than a kernel, and a program of their lesson looks at it.

{found}
"""


def page(of: Iterable[Lesson]) -> str:
    """The guide to these lessons, as Markdown."""
    of = list(of)
    general, suspects = _general(of), _suspects(of)
    machine = _machine(general + suspects)
    return _PAGE.format(patients=_patients(of), general=general, suspects=suspects, machine=machine, found=_found(of))


def places(of: Iterable[Lesson]) -> dict[str, str]:
    """For each diagnosis of the check's own rules the place that teaches it: "01_vector_add#Rung 3: the tail"."""
    return {code: place for lesson in of for code, place in lesson.taught.items()}


def _patients(of: list[Lesson]) -> str:
    rows = [
        (p.symptom, p.instrument, p.cause.says, p.cure, f"[{exercise.number}](../exercises/{lesson.name}.ipynb)")
        for lesson in of
        for exercise in lesson.exercises
        if (p := exercise.patient)
    ]
    return Table(rows, ("symptom", "instrument", "cause", "cure", "patient")).markdown()


def _general(of: list[Lesson]) -> str:
    known = places(of)
    rows = [
        (_anchor(code), _blank(text), _link(known[code]) if code in known else "") for code, text in SENTENCES.items()
    ]
    return Table(rows, ("diagnosis", "what the check says", "taught in")).markdown()


def _suspects(of: list[Lesson]) -> str:
    found: dict[str, tuple[str, list[str]]] = {}
    for lesson in of:
        for exercise in (*lesson.exercises, *lesson.steps):
            for suspect in exercise.suspects:
                where = found.setdefault(suspect.code, (suspect.sentence, []))[1]
                where.append(f"[{exercise.number}](../notebooks/{lesson.name}.ipynb)")
    rows = [
        (_anchor(code) if code not in SENTENCES else f"`{code}`", sentence, ", ".join(dict.fromkeys(where)))
        for code, (sentence, where) in sorted(found.items())
    ]
    return Table(rows, ("diagnosis", "what the check says", "exercise and its lesson")).markdown()


def _machine(known: str) -> str:
    """The operators that make the mistakes, but those whose name has its entry in `known`."""
    rows = [
        (_anchor(name) if _anchor(name) not in known else f"`{name}`", operator.__doc__.splitlines()[0])
        for name, operator in OPERATORS.items()
    ]
    return Table(rows, ("kind", "what such a kernel does otherwise")).markdown()


def _found(of: list[Lesson]) -> str:
    rows = [
        (_anchor(code), sentence, _link(place)) for lesson in of for code, (sentence, place) in lesson.found.items()
    ]
    return Table(rows, ("finding", "what it means", "taught in")).markdown()


def _anchor(code: str) -> str:
    return f'<a id="{code}"></a>`{code}`'


def _blank(sentence: str) -> str:
    """A sentence of the check without its gaps."""
    return re.sub(r"\{[^}]*\}", "…", sentence)


def _link(place: str) -> str:
    """To a heading in a notebook, by the name that JupyterLab gives it."""
    notebook, _, heading = place.partition("#")
    return f"[{notebook.partition('_')[0]}, {heading}](../notebooks/{notebook}.ipynb#{heading.replace(' ', '-')})"
