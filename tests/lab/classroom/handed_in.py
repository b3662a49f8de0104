"""What learners hand in, as the tests of the classroom make it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from course_lab.authoring import lessons, source

LOOP = "while True:\n    pass\n"


def answer_cell(number: str, code: str, **more) -> dict:
    """An answer cell as JupyterLab saves it."""
    return {
        "cell_type": "code",
        "id": f"answer-{number.replace('.', '-')}",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": source.with_magic(number, code),
    } | more


def notebook(*cells: dict) -> str:
    """A notebook's text."""
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells)})


def of_answers(answers: dict[str, str]) -> str:
    """A notebook with these answers, by exercise."""
    return notebook(*(answer_cell(number, code) for number, code in answers.items()))


def hand_in(place: Path, learner: str, text: str | bytes, name: str = "exercises.ipynb") -> Path:
    """Put a notebook into a learner's folder."""
    path = place / learner / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    return path


def zipped(path: Path, members: dict[str, str | bytes]) -> Path:
    """A zip with these members, under just these names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def right(number: str = "1.1") -> str:
    """The code of a right answer."""
    return lessons.solution(number)
