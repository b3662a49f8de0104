"""Generated mutants that are no mistakes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from course_lab.authoring.operators.generation import Generated


@dataclass(frozen=True)
class Equivalent:
    """Mutants of one exercise that are right answers.

    operator: whose they are.  about: a regular expression found in what such a mutant says or in its changed line.
    reason: why no input that the statement promises shows a difference.
    """

    operator: str
    about: str
    reason: str

    def fits(self, mutant: Generated) -> bool:
        line = mutant.code.splitlines()[mutant.line - 1]
        return self.operator == mutant.operator and bool(re.search(self.about, f"{mutant.says}\n{line}"))
