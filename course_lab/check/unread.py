"""Which inputs a wrong answer leaves out, though they count: never used, or a block too short, a loop that ends early.

The solution is run on the smallest failing case, and says how many different elements of each tensor take part.  A
wrong answer that reads fewer of them leaves some out, whatever else it does.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from course_lab.authoring.operators import single_changes
from course_lab.check import answer, client
from course_lab.check.protocol import Job, LaunchSeen
from course_lab.check.sentences import Diagnosis, diagnosis
from course_lab.check.verdict import CaseRun, is_plain, total_bytes

_SECONDS = 2.0


def unused(tree: ast.Module, solution: str) -> Diagnosis | None:
    """A value that a kernel loads and nothing reads, or a number that it gets and the solution's kernel uses."""
    known = answer.parse(solution)
    theirs = {} if isinstance(known, answer.SyntaxProblem) else _functions(known)
    for name, function in _functions(tree).items():
        idle = single_changes.unused(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and _is_load(node.value) and getattr(node.targets[0], "id", "") in idle:
                return diagnosis("never-used", name=f"`{node.targets[0].id}`", there=f"loaded in line {node.lineno}")
        given = [argument.arg for argument in function.args.args if argument.arg in idle]
        if name in theirs and (lost := [one for one in given if one not in single_changes.unused(theirs[name])]):
            return diagnosis("never-used", name=f"`{lost[0]}`", there=f"an argument of {name}")
    return None


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.decorator_list}


def _is_load(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "load" for part in ast.walk(node))


def left_out(job: Job, solution: str, runs: list[CaseRun]) -> tuple[Diagnosis, str] | None:
    """The tensor of which the answer reads the smallest part, among those whose name the solution shares, with what is
    to be said of it; else None.

    job: the answer's; its code and cases are replaced.  runs: the cases as the answer did them.
    """
    wrong = sorted((run for run in runs if is_plain(run) and run.values_wrong), key=total_bytes)[:1]
    if not wrong:
        return None
    seen = client.run_cases(replace(job, code=solution, cases=(wrong[0].args,)), time_limit=_SECONDS, trusted=True).seen
    if not seen or seen[0].problem:
        return None
    counts, got = _elements(seen[0].launches), _elements(wrong[0].own_launches)
    known = {name for launch in wrong[0].own_launches for name in launch.tensors}
    less = [name for name in counts if name in known and got[name] < counts[name]]
    if not less:
        return None
    tensor = min(less, key=lambda name: got[name] / counts[name])
    about = {"tensor": tensor, "got": got[tensor], "wanted": counts[tensor], "case": wrong[0].case.name}
    anywhere = any(_elements(run.own_launches)[tensor] for run in runs)
    return diagnosis("partly-read" if anywhere else "never-read", **about), tensor


def _elements(launches: Iterable[LaunchSeen]) -> Counter[str]:
    """How many different elements of each tensor each launch read, launches added up."""
    found: Counter[str] = Counter()
    for launch in launches:
        found.update({loads.tensor: loads.elements for loads in launch.loads})
    return found
