"""Which step of a kernel leads away from a right answer?  Its values are followed beside the solution's.

Every expression of both kernels hands over what it gives, program by program.  A value that the solution has nowhere,
made of values that it has, is where the answer goes astray, if it reaches what is stored: another way to the same
number comes back to the solution's values, a mistake does not.  No change is tried, so any mistake is found that the
values show; which one it is, the learner sees in the line.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from course_lab.authoring.operators.source import Code, Edit
from course_lab.check import answer, client
from course_lab.check.followed import NAME
from course_lab.check.protocol import Job, LaunchSeen, Seen
from course_lab.check.verdict import CaseRun, is_plain, right_outputs, total_bytes

LOADED = "Others are loaded there than should be."
_LONGEST = 60  # characters of code in a sentence
_PATIENCE = 2.0  # seconds, for a right answer
_SECONDS = 0.5  # of processor time, for each of the two
_MOST_LINES = 2
_TILES = ("BLOCK", "TILE", "GROUP_")
_FEW = 24  # elements
_EXACT, _ROUNDED = 2e-5, 2.0**-8  # how far two ways to one number lie apart, as a part of what was added up
_MADE_UP = ("arange", "program_id", "num_programs", "cdiv", "zeros", "zeros_like")
_WRITES = ("store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas")


@dataclass
class Step:
    """An expression of a kernel.  kind: "name", "load", "made", "store" or "other".  inside: what it is made of.

    sums: it is a sum, of which right answers make different ones: by blocks, by lanes.
    leads: steps that its value goes to.  points: loads and stores whose address it is part of.  turns: it stands in a
    loop.  stored: it is what a store writes.
    """

    line: int
    text: str
    kind: str
    inside: list[int] = field(default_factory=list)
    leads: set[int] = field(default_factory=set)
    points: set[int] = field(default_factory=set)
    turns: bool = False
    stored: bool = False
    sums: bool = False


@dataclass(frozen=True)
class Instrumented:
    """Code whose kernels hand over their values: the code, and the step of each number that they hand over."""

    code: str
    steps: list[Step]


@dataclass(frozen=True, eq=False)
class Beside:
    """An answer beside a right one.

    job: the answer's, as for the check; its cases are replaced.  solution: code of a right answer.
    """

    job: Job
    solution: str
    runs: list[CaseRun]
    _known: dict[tuple[str, int], Seen | None] = field(default_factory=dict)

    def astray(self) -> str:
        """The step that leads away, in a sentence; "" where there is none, or more than can be said."""
        run = self._wrong(_how_telling)
        if run is None or (mine := instrument(self.job.code)) is None:
            return ""
        seen, theirs = client.at_once(
            lambda: client.followed(self._asked(mine.code, run), _SECONDS),
            lambda: self._solution_followed(run),
        )
        if seen is None or theirs is None or not len(seen[0]):
            return ""
        roots = _roots(mine.steps, seen, theirs)
        if _tile_names(self.job.code) != _tile_names(self.solution):
            # what is right in a tile of one shape, another does not have
            roots = {root: name for root, name in roots.items() if not _is_condition(seen, root)}
        return _said(mine.steps, roots)

    def other_argument(self) -> str:
        """A whole number that a launch gives its kernel and no launch of the solution's does, in a sentence; or "".

        Only where the kernels have one name and the same parameters, whose meaning was given; a factor may hold
        another.
        """
        if (run := self._wrong(total_bytes)) is None:
            return ""
        seen = self._right(self.solution, run)
        for mine in run.own_launches:
            given = dict(mine.constants)
            right = [dict(launch.constants) for launch in seen.launches if launch.name == mine.name] if seen else []
            if not right or any(given.keys() != one.keys() for one in right):
                continue
            whole = [name for name, value in given.items() if type(value) is int and not name.startswith(_TILES)]
            if other := [name for name in whole if all(given[name] != one[name] for one in right)]:
                what = " and ".join(f"`{name}` is {given[name]}" for name in other[:_MOST_LINES])
                return f"In your launch {what}, and that is not what the kernel needs there."
        return ""

    def too_few_programs(self) -> str:
        """The axis of the grid along which there are fewer programs than these blocks need, in a sentence; or "".

        A program that walks in a loop may need no other.
        """
        run = self._wrong(total_bytes)
        if run is None or len(run.own_launches) != 1 or answer.has_loop(answer.parse(self.job.code)):
            return ""
        if (fitted := self._with_tiles_of(run)) is None:
            return ""
        seen = self._right(fitted, run)
        (mine,), theirs = run.own_launches, seen.launches if seen else ()
        if len(theirs) != 1 or (mine.name, mine.constants) != (theirs[0].name, theirs[0].constants):
            return ""
        few = [axis for axis, (got, wanted) in enumerate(zip(mine.grid, theirs[0].grid)) if got < wanted]
        many = any(got > wanted for got, wanted in zip(mine.grid, theirs[0].grid))
        if len(few) != 1:
            return ""
        more = ", and along another more than enough: which axis counts what?" if many else "."
        count = "is 1 program" if mine.grid[few[0]] == 1 else f"are {mine.grid[few[0]]} programs"
        return f"Along axis {few[0]} of the grid there {count}, too few for blocks of this length{more}"

    def _solution_followed(self, run: CaseRun) -> _Known | None:
        """The values of the solution with the answer's tiles; None where it cannot have these, or nothing was seen."""
        if (fitted := self._with_tiles_of(run)) is None:
            return None
        theirs = instrument(fitted)
        seen = client.followed(self._asked(theirs.code, run), _SECONDS, trusted=True)
        return _Known(theirs.steps, *seen) if seen is not None and len(seen[0]) else None

    def _with_tiles_of(self, run: CaseRun) -> str | None:
        """The solution with the answer's lengths of tiles; None where these cannot be put in.

        Blocks of other lengths hold other numbers, and could not be compared.
        """
        seen = self._right(self.solution, run)
        if seen is None or seen.problem:
            return None
        names = _tile_names(self.solution)
        theirs, mine = _tiles(seen.launches, names), _tiles(run.own_launches, names)
        if theirs == mine:
            return self.solution
        if theirs.keys() != mine.keys():
            return None
        other = {name: mine[name] for name in theirs if theirs[name] != mine[name]}
        by_value = {theirs[name]: length for name, length in other.items()}
        code = Code(self.solution)
        nodes = [node for host in code.hosts for node in ast.walk(host)]
        named = [(node.arg, node.value) for node in nodes if isinstance(node, ast.keyword)]
        named += [
            (getattr(key, "value", None), value)
            for node in nodes
            if isinstance(node, ast.Dict)
            for key, value in zip(node.keys, node.values)
        ]
        equal = [node for node in nodes if isinstance(node, ast.Constant) and node.value in by_value]
        by_name = {node: str(other[name]) for name, node in named if name in other}
        written = {node.value: text for node, text in by_name.items() if isinstance(node, ast.Constant)}
        elsewhere = {node: written[node.value] for node in equal if node.value in written}  # a grid's
        for texts in (by_name, elsewhere | by_name, {node: str(by_value[node.value]) for node in equal}):
            edits = tuple(Edit(node, text) for node, text in texts.items())
            fitted = code.with_edits(edits)
            seen = self._right(fitted, run)
            right = seen is not None and not seen.problem and right_outputs(seen.outputs, run)
            if right and _tiles(seen.launches, names) == mine:
                return fitted
        return None

    def _wrong(self, order: Callable[[CaseRun], Any]) -> CaseRun | None:
        """The first failing case in this order; None where there is nothing to be followed."""
        wrong = [run for run in self.runs if is_plain(run) and run.values_wrong]
        return min(wrong, key=order) if wrong and not self.job.driver else None

    def _asked(self, code: str, run: CaseRun) -> Job:
        return replace(self.job, code=code, cases=(run.args,))

    def _right(self, code: str, run: CaseRun) -> Seen | None:
        """What right code does in a case, which is run once; None where it does not get through."""
        key = code, id(run)
        if key not in self._known:
            seen = client.run_cases(self._asked(code, run), time_limit=_PATIENCE, trusted=True).seen
            self._known[key] = seen[0] if seen else None
        return self._known[key]


def _tile_names(code: str) -> set[str]:
    return answer.tile_names(answer.parse(code))


def _is_condition(seen: tuple[torch.Tensor, torch.Tensor], root: int) -> bool:
    """Whether a step gives a mask, or a part of one."""
    made_by, figures = seen
    return bool((figures[made_by[:, 0] == root][:, -1] == 1).any())


def _how_telling(run: CaseRun) -> tuple[bool, int]:
    """The smallest first, but those last in which different steps give the same number by luck: one key, one row."""
    alone = any(1 in a.shape for a in run.args if isinstance(a, torch.Tensor))
    return alone or all(expected.numel() < _FEW for expected in run.expected), total_bytes(run)


def _tiles(launches: Iterable[LaunchSeen], names: Collection[str]) -> dict[str, int]:
    """What kernels got as lengths of their blocks, by name."""
    found = [pair for launch in launches for pair in launch.constants if type(pair[1]) is int]
    return {name: value for name, value in found if name in names}


def _said(steps: list[Step], roots: dict[int, str]) -> str:
    """roots: steps that lead away, and of each the name of what a loop left unfinished, or ""."""
    lines = {steps[root].line: root for root in reversed(roots)}
    if not 0 < len(lines) <= _MOST_LINES:
        return ""
    places = " and ".join(f"`{_short(steps[lines[line]].text)}` in line {line}" for line in sorted(lines))
    root = lines[min(lines)]
    if roots[root]:
        return (
            f"Followed step by step: `{roots[root]}` goes into {places} as it is on the way, and not at its end. "
            f"Does the loop before reach every block, and keep what came before?"
        )
    first = f"Followed step by step, your kernel's values are right up to {places}, and no longer there."
    if all(steps[one].kind == "load" for one in lines.values()):
        return f"{first} {LOADED}"
    return f"{first} Is that wrong, or is something missing before it?"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


# ---- the values -----------------------------------------------------------------------------------------------------


class _Known:
    """The solution's values, by program: those outside loops, those of each turn of a loop, those that it stores."""

    def __init__(self, steps: list[Step], made_by: torch.Tensor, figures: torch.Tensor) -> None:
        self._values: list[tuple[tuple[int, ...], int | None, bool, np.ndarray]] = []
        self._pools: dict[tuple, np.ndarray] = {}
        self._memo: dict[tuple, bool] = {}
        self.turns = 0
        for step, program, turn, row in _in_turns(steps, made_by, figures):
            self._values.append((program, turn, steps[step].stored, row))
            self.turns = max(self.turns, turn or 0)
        self.programs = {program for program, *_ in self._values}

    def has(self, row: np.ndarray, program: _Program, turns: set[int | None] | None, *, stored: bool = False) -> bool:
        """Whether a value is among those of a program and these turns, up to the roundings of its type.

        program: None for any.  turns: None for all; in the set None stands for what is outside loops.
        """
        key = program, turns and tuple(turns), stored
        if (*key, row.tobytes()) not in self._memo:
            self._memo[*key, row.tobytes()] = _is_among(self._pool(*key), row)
        return self._memo[*key, row.tobytes()]

    def _pool(self, program: _Program, turns: tuple[int | None, ...] | None, stored: bool) -> np.ndarray:
        key = program, turns, stored
        if key not in self._pools:
            rows = [
                row
                for one, turn, is_stored, row in self._values
                if program in (None, one) and (turns is None or turn in turns) and is_stored >= stored
            ]
            self._pools[key] = np.unique(np.stack(rows), axis=0) if rows else np.zeros((0, 7))
        return self._pools[key]


_Program = tuple[int, ...] | None


def _in_turns(steps: list[Step], made_by: torch.Tensor, figures: torch.Tensor) -> Iterator[tuple]:
    """(step, program, turn or None, figures) of each value; a step in a loop has its n-th value of a program in turn n.

    A step that gives several values at once is one that has so many turns.
    """
    count: Counter[tuple] = Counter()
    for (step, *program), row in zip(made_by.tolist(), figures.numpy()):
        turn = None
        if steps[step].turns:
            turn = count[step, *program]
            count[step, *program] += 1
        yield step, tuple(program), turn, row


def _roots(steps: list[Step], seen: tuple[torch.Tensor, torch.Tensor], known: _Known) -> dict[int, str]:
    """Steps whose value the solution has nowhere, made of values that it has, and that lead to what is stored.

    Of each the name of what goes in and is a value of one of the solution's turns, but none behind its loop; or "".
    Where nothing leads away, what is stored and should not be.
    """
    if len(seen[0]) and int(seen[0][:, 0].max()) >= len(steps):
        return {}
    values = list(_in_turns(steps, *seen))
    same_grid = known.programs == {program for _, program, _, _ in values}
    same_turns = known.turns == max((turn or 0 for _, _, turn, _ in values), default=0)
    last: dict[int, tuple[bool, np.ndarray]] = {}  # of each step's last value: whether the solution has it
    bad: set[int] = set()
    found: dict[int, str] = {}
    unstored: dict[int, str] = {}
    for step, place, turn, row in values:
        one, program = steps[step], place if same_grid else None
        fine = known.has(row, program, {turn, None} if same_turns and turn is not None else None)
        fine |= not row[1] and not row[5] and not same_grid  # a program with nothing to do
        parts = [part for part in one.inside if part in last and (last[part][1][-1] or _counts(steps[part], row))]
        right_parts = all(last[part][0] for part in parts)
        last[step] = fine or (one.sums and right_parts and not one.stored), row
        if last[step][0]:
            if one.stored and row[-1] and not known.has(row, program, None, stored=True):
                unstored[step] = ""
            continue
        bad.add(step)
        if one.kind in ("load", "other") and right_parts and step not in found:
            names = [part for part in parts if steps[part].kind == "name" and not one.turns]
            names = [part for part in names if not known.has(last[part][1], program, {None})]
            found[step] = steps[names[0]].text if names else ""
    never = set(range(len(steps))) - last.keys()  # addresses
    offsets = {step for step in found if steps[step].kind != "load" and not last[step][1][-1]}
    return {
        root: name
        for root, name in found.items()
        if _reaches_a_store(steps, bad | never, root, by_address=root not in offsets)
    } or unstored


def _counts(part: Step, row: np.ndarray) -> bool:
    """Whether an integer that goes into a value must be right for it: offsets can be put together in many ways."""
    return part.kind == "load" or not row[-1]


def _is_among(pool: np.ndarray, figures: np.ndarray) -> bool:
    total, size, squares, most, least, odd, bits = figures
    near = _EXACT if bits >= 32 else _ROUNDED if bits > 1 else 0.0
    largest = max(abs(most), abs(least))
    limits = near * np.array([size, size, squares, largest, largest]) + 1e-30
    alike = (np.abs(pool[:, :5] - figures[:5]) <= limits).all(axis=1) & (pool[:, 5] == odd)
    kinds = np.minimum(pool[:, 6], 2.0)  # numbers, conditions, integers
    return bool((alike & (kinds == min(bits, 2.0))).any())


def _reaches_a_store(steps: list[Step], bad: set[int], root: int, *, by_address: bool) -> bool:
    """by_address: also as a part of an address, which says where to load or store."""
    left, reached = [root], {root}
    while left:
        step = left.pop()
        if steps[step].kind == "store":
            return True
        for other in (steps[step].leads | (steps[step].points if by_address else set())) - reached:
            if other in bad or steps[other].kind == "store":
                reached.add(other)
                left.append(other)
    return False


# ---- the code -------------------------------------------------------------------------------------------------------


def instrument(code: str) -> Instrumented | None:
    """The code with every expression of its kernels handing over its value; None where Python cannot parse it."""
    tree = answer.parse(code)
    if isinstance(tree, answer.SyntaxProblem):
        return None
    kernels = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.decorator_list}
    steps: list[Step] = []
    returned: dict[str, list[int]] = defaultdict(list)
    passed: dict[tuple[str, str], list[int]] = defaultdict(list)
    read: dict[tuple[str, str], list[int]] = defaultdict(list)
    called: dict[str, list[int]] = defaultdict(list)
    for kernel in kernels.values():
        wrapper = _Wrapper(kernel, kernels, code, steps)
        kernel.body = [wrapper.visit(statement) for statement in kernel.body]
        returned[kernel.name] += wrapper.returned
        for (function, name), ends in wrapper.passed.items():
            passed[function, name] += ends
        for name, places in wrapper.read.items():
            read[kernel.name, name] += places
        for name, places in wrapper.called.items():
            called[name] += places
    for place, ends in passed.items():
        for end in ends:
            steps[end].leads |= set(read[place])
    for name, ends in returned.items():
        for end in ends:
            steps[end].leads |= set(called[name])
    return Instrumented(ast.unparse(ast.fix_missing_locations(tree)) + "\n", steps)


class _Wrapper(ast.NodeTransformer):
    """Puts a call around every expression of one kernel, and notes which goes into which."""

    def __init__(self, kernel: ast.FunctionDef, kernels: dict[str, ast.FunctionDef], code: str, steps: list[Step]):
        self.steps, self.code, self.kernels = steps, code, kernels
        self.returned: list[int] = []
        self.passed: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.read: dict[str, list[int]] = defaultdict(list)
        self.called: dict[str, list[int]] = defaultdict(list)
        self._set: dict[str, list[int]] = defaultdict(list)
        self._pointing: dict[int, list[int]] = {}  # of each call, what its first argument is made of
        self._loops = 0
        stored = (
            node.id for node in ast.walk(kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        self._own = {*stored, *(argument.arg for argument in kernel.args.args)}

    # ---- statements

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value, ends = self._wrapped(node.value)
        for target in node.targets:
            self._assigned(target, ends)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return node  # a constant of the compiler

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        total = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
        total.source = ast.get_source_segment(self.code, node) or ""
        value, ends = self._wrapped(total)
        self._assigned(node.target, ends)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Call):
            node.value, _ = self._wrapped(node.value)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value is not None:
            node.value, ends = self._wrapped(node.value)
            self.returned += ends
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """Conditions and the bounds of loops stay as they are."""
        node.body = [self.visit(statement) for statement in node.body]
        node.orelse = [self.visit(statement) for statement in node.orelse]
        return node

    def visit_For(self, node: ast.For | ast.While) -> ast.AST:
        self._loops += 1
        self.visit_If(node)
        self._loops -= 1
        return node

    visit_While = visit_For

    def _assigned(self, target: ast.expr, ends: list[int]) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self._set[node.id] += ends
                for end in ends:
                    self.steps[end].leads |= set(self.read[node.id])

    # ---- expressions

    def _wrapped(self, node: ast.expr) -> tuple[ast.expr, list[int]]:
        """The expression, and the steps at its top."""
        if isinstance(node, (ast.Lambda, ast.IfExp, ast.ListComp, ast.GeneratorExp, ast.Constant, ast.JoinedStr)):
            return node, []
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Subscript):
            node.value, ends = self._wrapped(node.value)
            return node, ends
        text = getattr(node, "source", None) or ast.get_source_segment(self.code, node) or ""
        inside = self._children(node)
        if not isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Call, ast.Compare)) and not self._turned(node):
            return node, inside
        kind = self._kind(node)
        step = self._new(node.lineno, text, kind, inside)
        self.steps[step].sums = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "sum"
        if kind in ("load", "store"):
            for part in self._pointing.pop(id(node), ()):
                self.steps[part].leads.discard(step)
                self.steps[part].points.add(step)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.kernels:
            self.called[node.func.id].append(step)
        return self._call(step, node), [step]

    def _name(self, node: ast.Name) -> tuple[ast.expr, list[int]]:
        if node.id not in self._own or not isinstance(node.ctx, ast.Load):
            return node, []
        step = self._new(node.lineno, node.id, "name", [])
        self.read[node.id].append(step)
        for end in self._set[node.id]:
            self.steps[end].leads.add(step)
        return self._call(step, node), [step]

    def _children(self, node: ast.expr) -> list[int]:
        inside: list[int] = []
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and not self._is_module(node.func.value):
                node.func.value, ends = self._wrapped(node.func.value)
                inside += ends
            for i, argument in enumerate(node.args):
                node.args[i], ends = self._wrapped(argument)
                inside += ends
                self._pass(node, i, ends)
                if i == 0:
                    self._pointing[id(node)] = ends
                if i == 1 and self._kind(node) == "store":
                    for end in ends:
                        self.steps[end].stored = True
            for keyword in node.keywords:
                keyword.value, ends = self._wrapped(keyword.value)
                inside += ends
            return inside
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                new, ends = self._wrapped(value)
                setattr(node, name, new)
                inside += ends
            elif isinstance(value, list):
                for i, one in enumerate(value):
                    if isinstance(one, ast.expr):
                        value[i], ends = self._wrapped(one)
                        inside += ends
        return inside

    def _pass(self, call: ast.Call, position: int, ends: list[int]) -> None:
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name in self.kernels and position < len(self.kernels[name].args.args):
            self.passed[name, self.kernels[name].args.args[position].arg] += ends

    def _is_module(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in self._own

    def _turned(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "T"

    def _kind(self, node: ast.expr) -> str:
        name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        return {"load": "load"}.get(name, "store" if name in _WRITES else "made" if name in _MADE_UP else "other")

    def _new(self, line: int, text: str, kind: str, inside: list[int]) -> int:
        step = len(self.steps)
        self.steps.append(Step(line, " ".join(text.split()), kind, inside, turns=self._loops > 0))
        for part in inside:
            self.steps[part].leads.add(step)
        return step

    def _call(self, step: int, node: ast.expr) -> ast.Call:
        called = ast.Call(ast.Name(NAME, ast.Load()), [ast.Constant(step), node], [])
        return ast.copy_location(called, node)
