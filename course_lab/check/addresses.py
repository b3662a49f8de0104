"""Compare the addresses of an answer with the solution's, as sums of products: which stride or size stands in the wrong
place?

An address is followed back through the kernel's assignments to what it is made of: arguments, program numbers, aranges,
turns of a loop, numbers that were loaded.  Two addresses whose products differ in one of these each differ by a mistake
that can be named; what differs in any other way may be right, and nothing is said.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from course_lab.authoring.operators.source import is_pointer, is_stride
from course_lab.check import answer

Atom = tuple[str, ...]  # ("argument", name), ("loaded", tensor), ("program", axis), or what cannot be taken apart
Product = tuple[Atom, ...]  # sorted
Sum = Counter[Product]

_ACCESSES = ("load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg")
_SAME_VALUE = ("to", "cast", "trans", "expand_dims", "broadcast_to", "max_contiguous", "multiple_of", "reshape", "view")
IN_AN_ADDRESS = "In the address of"
_LONGEST = 64  # products of a sum
_MOST_ODD = 2  # products
_LOADED = re.compile(r"\('loaded', \W*(\w+)\W*\)")
_NAMED = ("argument", "loaded", "program", "turn")


@dataclass(frozen=True)
class Access:
    """A load or a store: the tensor's name in its kernel, what the address adds up to, its line.

    bounds: arguments of the kernel, no lengths of tiles, that its mask depends on.  asked: what the mask holds below a
    bound, as a sum and as code.  texts: the code of what could not
    be taken apart.  moved: in a loop a name in it is added to, perhaps behind the access.
    """

    tensor: str
    address: Sum
    line: int
    bounds: frozenset[str] = frozenset()
    asked: tuple[tuple[Sum, str], ...] = field(default=(), compare=False)
    texts: Mapping[Atom, str] = field(default_factory=dict, compare=False)
    moved: bool = False


@dataclass(frozen=True)
class Clue:
    """What stands where something else belongs, in one tensor's address.  code: the kind of mistake."""

    code: str
    sentence: str


def clue(tree: ast.Module, solution: str, tensors: Collection[str] = ()) -> Clue | None:
    """The one mistake in the answer's addresses that explains all that is different in them; None when there is none.

    tensors: only their addresses, by their names in the kernel; none means all.
    """
    compared = list(_compared(tree, solution, tensors))
    placed = {access.tensor for access, right in compared if access.address in [one.address for one in right]}
    for access, right in compared:
        if access.tensor in placed and len({str(one.address) for one in right}) == 1:
            continue  # a program that takes a block more than the solution's has it elsewhere
        if not _walks_otherwise(access, right) and (found := _difference(access, right)):
            return found
    return None


def unasked(tree: ast.Module, solution: str, line: int) -> str:
    """What the mask of an access whose offsets are the solution's does not look at; "" where there is no such thing."""
    for access, right in _compared(tree, solution):
        alike = [one for one in right if one.address == access.address]
        if access.line == line and alike and has_right_offsets(tree, solution, line):
            lost = sorted(frozenset.intersection(*(one.bounds for one in alike)) - access.bounds)
            return f"The offsets there are right, and the mask does not look at {_listed(lost)}." if lost else ""
    return ""


def asked_of_another(tree: ast.Module, line: int) -> str:
    """What a mask compares with its bound, where the address goes on from there by blocks; "" where it does not."""
    for access in (one for function in _kernels(tree) for one in accesses(function) if one.line == line):
        for part, text in access.asked:
            others = [one for one, _ in access.asked if one is not part]
            further = [one for one in _behind(access.address, part) if not any(one in other for other in others)]
            if further:
                return (
                    f"The mask there asks whether `{text}` lies inside, and the address goes on from that by "
                    f"{_product_words(access, further[0])}: which of the two must lie inside?"
                )
    return ""


def _behind(address: Sum, part: Sum) -> list[Product]:
    """Whole blocks that an address adds to a part of it, which may be multiplied by a stride there."""
    strides = [atom for atom in dict.fromkeys(atom for product in address for atom in product) if _is_argument(atom)]
    for factor in ((), *((atom,) for atom in strides)):
        scaled = _product(part, Counter({factor: 1}))
        if part and not scaled - address:
            rest = [product for product in address - scaled if not Counter(factor) - Counter(product)]
            bare = [tuple(sorted((Counter(product) - Counter(factor)).elements())) for product in rest]
            return [product for product in bare if _is_of_blocks(product)]
    return []


def _is_argument(atom: Atom) -> bool:
    return atom[0] == "argument" and not is_tile(atom[1])


def _is_of_blocks(product: Product) -> bool:
    """Whether a product counts whole blocks: lengths of tiles, programs, turns, and nothing else."""
    kinds = {"tile" if atom[0] == "argument" and is_tile(atom[1]) else atom[0] for atom in product}
    return bool(kinds & {"tile", "turn"}) and kinds <= {"tile", "turn", "program", "num_programs"}


def odd_products(tree: ast.Module, solution: str, tensors: Collection[str] = ()) -> str:
    """The few products in which an address differs from all of the solution's, in a sentence; "" where more differ.

    Less is known here than in `clue`: what may be written otherwise in a right answer is only pointed at.  tensors: as
    there.
    """
    for access, right in _compared(tree, solution, tensors):
        if access.address in [one.address for one in right] or _walks_otherwise(access, right):
            continue
        differences = [(list(access.address - one.address), list(one.address - access.address)) for one in right]
        extra, missing = min(differences, key=lambda pair: max(map(len, pair)))
        if extra == [()]:
            continue  # what is found one further on may be meant: where a row ends, the next begins
        if max(len(extra), len(missing)) <= _MOST_ODD and (extra or not access.moved):
            return f"{_where(access)}, {_pointed_at(access, extra, missing)}"
    return ""


def _walks_otherwise(access: Access, right: list[Access]) -> bool:
    """Whether the turn of a loop counts in an address, and in none of the solution's: another walk may be right."""
    return _has_turns(access) and not any(map(_has_turns, right))


def _has_turns(access: Access) -> bool:
    return any(atom[0] == "turn" for product in access.address for atom in product)


def _where(access: Access) -> str:
    return f"{IN_AN_ADDRESS} `{access.tensor}` in line {access.line}"


def _pointed_at(access: Access, extra: list[Product], missing: list[Product]) -> str:
    if not extra:
        if less := [product for product in missing if product in access.address]:
            return f"{_product_words(access, less[0])} counts fewer times than it should."
        known = {atom for product in access.address for atom in product}
        lost = [atom for product in missing for atom in product if atom[0] in _NAMED and atom not in known]
        lost.sort(key=lambda atom: atom[0] == "argument")  # whatever it was multiplied by went with it
        return f"nothing depends on {_words(lost[0])}." if lost else "a product is missing: what does it not depend on?"
    what = " and at ".join(_product_words(access, product) for product in extra)
    if not missing:
        return f"{what.replace(' and at ', ' and ')} is added, and does not belong there."
    if len(extra) == len(missing) == 1:
        (mine,), (theirs,) = map(Counter, extra), map(Counter, missing)
        if not mine - theirs:
            return f"{what} lacks a factor."
        if not theirs - mine:
            return f"{what} has a factor too many."
    return f"look at {what}."


def _product_words(access: Access, product: Product) -> str:
    return " times ".join(access.texts.get(atom) or _words(atom) for atom in product) or "a number"


def has_right_offsets(tree: ast.Module, solution: str, line: int) -> bool:
    """Whether an access has the offsets of one of the solution's, and so have the loads that these are made of."""
    compared = list(_compared(tree, solution))
    found = [access for access, _ in compared if access.line == line]
    own = {access.tensor for access in found}
    sources = with_sources(tree, own) - own
    asked = [pair for pair in compared if pair[0].line == line or pair[0].tensor in sources]
    return bool(found) and all(access.address in [one.address for one in right] for access, right in asked)


def with_sources(tree: ast.Module, tensors: Collection[str]) -> set[str]:
    """These tensors, and those whose numbers go into their addresses: a page is found in a table."""
    known, before = set(tensors), set()
    every = [access for function in _kernels(tree) for access in accesses(function)]
    while known != before:
        before = set(known)
        for access in (one for one in every if one.tensor in known):
            known = known | set(_LOADED.findall(_text(access.address)))
    return known


def _listed(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _compared(tree: ast.Module, solution: str, tensors: Collection[str] = ()) -> Iterator[tuple[Access, list[Access]]]:
    """Each access, with the solution's to the same tensor, of kernels with a name and arguments of the solution's."""
    known = answer.parse(solution)
    if isinstance(known, answer.SyntaxProblem):
        return
    theirs = {function.name: function for function in _kernels(known)}
    for function in _kernels(tree):
        other = theirs.get(function.name)
        if other is not None and _arguments(other) == _arguments(function):
            right = list(accesses(other))
            for access in accesses(function):
                same = [one for one in right if one.tensor == access.tensor]
                if same and (not tensors or access.tensor in tensors):
                    yield access, same


def _difference(access: Access, right: list[Access]) -> Clue | None:
    candidates = [one.address for one in right]
    if access.address in candidates:
        return None
    for address in candidates:
        if twice := _twice(access.address, address):
            return Clue("without-offset", f"{_where(access)}, what is multiplied by `{twice}` is counted twice.")
        if moved := _moved_factor(access.address, address):
            what, mine, theirs = moved
            mine, theirs = _product_words(access, mine), _product_words(access, theirs)
            return Clue("swapped-strides", f"{_where(access)}, `{what}` is multiplied by {mine}, and not by {theirs}.")
    named = [_named(access.address, address) for address in candidates]
    pairs = min((one for one in named if one), key=len, default=None)
    return _said(access, pairs) if pairs else None


def _moved_factor(mine: Sum, theirs: Sum) -> tuple[str, Product, Product] | None:
    """A size or stride that multiplies another index than it should, with both; None where more is different."""
    extra, missing = mine - theirs, theirs - mine
    if {*extra.values(), *missing.values()} != {1}:
        return None
    for atom in {atom for product in extra for atom in product if atom[0] == "argument"}:
        held, lacking = [one for one in extra if atom in one], [one for one in extra if atom not in one]
        without = [_without(one, atom) for one in held]
        with_it = [tuple(sorted((*one, atom))) for one in lacking]
        if all(without) and all(lacking) and lacking and missing == Counter([*without, *with_it]):
            return atom[1], without[-1], lacking[-1]
    return None


def _without(product: Product, atom: Atom) -> Product:
    rest = list(product)
    rest.remove(atom)
    return tuple(rest)


def _twice(mine: Sum, theirs: Sum) -> str:
    """The size or stride of a product that is counted once more than it should be; "" where more is different."""
    extra = list((mine - theirs).elements())
    if len(extra) != 1 or theirs - mine or extra[0] not in theirs:
        return ""
    return next((atom[1] for atom in extra[0] if atom[0] == "argument"), "")


def _named(mine: Sum, theirs: Sum) -> dict[Atom, Atom]:
    """What stands for what in every product that differs; {} where that is not all of the difference."""
    extra, missing = mine - theirs, theirs - mine
    found: dict[Atom, Atom] = {}
    if len(extra) != len(missing):
        return {}
    for product, times in extra.items():
        alike = [other for other in missing if missing[other] == times]
        fitting = [(other, pair) for other in alike if (pair := _exchanged(product, other))]
        fitting = [one for one in fitting if all(is_stride(atom[1]) for atom in one[1])] or fitting
        if len(fitting) != 1:
            return {}
        other, (here, there) = fitting[0]
        del missing[other]
        found[here] = there
    return found


def _exchanged(mine: Product, theirs: Product) -> tuple[Atom, Atom] | None:
    """The two factors in which the products differ, where both can be named and one is not the other's equal."""
    here, there = Counter(mine) - Counter(theirs), Counter(theirs) - Counter(mine)
    if here.total() != 1 or there.total() != 1:
        return None
    (one,), (other,) = here, there
    kinds = {one[0], other[0]}
    if not kinds <= {"argument", "loaded", "program"} or kinds == {"program"}:  # axes of the grid may be exchanged
        return None
    size_for_stride = one[0] == "argument" and not is_stride(one[1]) and other[0] == "argument" and is_stride(other[1])
    return None if size_for_stride else (one, other)  # rows without gaps are as long as they lie apart


def _said(access: Access, pairs: dict[Atom, Atom]) -> Clue:
    here, there = next(iter(pairs.items()))
    kinds = {atom[0] for atom in (here, there)}
    strides = all(atom[0] == "argument" and is_stride(atom[1]) for atom in (here, there))
    code = "other-stride" if strides else "other-size" if kinds == {"argument"} else "without-offset"
    return Clue(code, f"{_where(access)}, {_words(here)} stands where {_words(there)} belongs.")


def _words(atom: Atom) -> str:
    kind, *more = atom
    if kind not in _NAMED:
        return "one of its parts"
    (name,) = more
    return {
        "argument": f"`{name}`",
        "loaded": f"the number loaded from `{name}`",
        "program": f"`tl.program_id({name})`",
        "turn": "the turn of the loop",
    }[kind]


# ---- following a kernel ----------------------------------------------------------------------------------------------


def _kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.decorator_list]


def _arguments(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args]


def accesses(kernel: ast.FunctionDef) -> Iterator[Access]:
    """All loads and stores of a kernel whose address begins at one of its arguments."""
    follower = _Follower(kernel)
    follower.walk(kernel.body)
    yield from follower.accesses


class _Follower:
    """What each name holds, statement by statement."""

    def __init__(self, kernel: ast.FunctionDef) -> None:
        self.held: dict[str, Sum] = {name: _one(("argument", name)) for name in _arguments(kernel)}
        self.accesses: list[Access] = []
        self._texts: dict[Atom, str] = {}
        self._conditions: dict[str, tuple[tuple[Sum, str], ...]] = {}
        self._loops = 0
        self._made_of = _made_of(kernel)
        steady = set().union(*(_steady(loop) for loop in ast.walk(kernel) if isinstance(loop, (ast.For, ast.While))))
        added = (node.target for node in ast.walk(kernel) if isinstance(node, ast.AugAssign))
        self._added_to = {target.id for target in added if isinstance(target, ast.Name)} - steady
        self._steady: set[str] = set()
        self._sizes = {one.arg for one in kernel.args.args if not is_pointer(one.arg) and not is_tile(one.arg)}

    def walk(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, (ast.For, ast.While)):
                self._loop(statement)
                continue
            for part in ast.iter_child_nodes(statement):
                if isinstance(part, ast.expr):
                    self._note(part)
            self._assign(statement)
            for name in ("body", "orelse"):
                self.walk(getattr(statement, name, []))

    def _loop(self, loop: ast.For | ast.While) -> None:
        call = loop.iter if isinstance(loop, ast.For) else loop.test
        self._note(call)
        self._loops += 1
        turn = _one(("turn", str(self._loops)))
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and isinstance(call, ast.Call):
            start = self.sum_of(call.args[0]) if len(call.args) > 1 else Counter()
            step = self.sum_of(call.args[2]) if len(call.args) > 2 else _number(1)
            self.held[loop.target.id] = start + _product(turn, step)
        before, steady = self._steady, _steady(loop)
        for name, step in steady.items():
            self.held[name] = self.held.get(name, _one(("unknown", name))) + _product(turn, self.sum_of(step))
        self._steady = before | steady.keys()
        self.walk(loop.body)
        self._steady = before
        for name in steady:
            self.held[name] = _one(("unknown", name, f"behind loop {self._loops}"))

    def _assign(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            name, value = statement.target.id, self.sum_of(statement.value)
            by_turn = self._loops and not is_pointer(name) and name not in self._steady
            value = _product(value, _one(("turn", str(self._loops)))) if by_turn else value
            known = self.held.get(name, _one(("unknown", name)))
            self.held[name] = known + value if isinstance(statement.op, ast.Add) else _one(("unknown", name))
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                self._set(target, statement.value)

    def _set(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._conditions[target.id] = tuple(self._asked(value))
            self.held[target.id] = self.sum_of(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, of in zip(target.elts, value.elts):
                self._set(one, of)
        else:
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    self.held[node.id] = _one(("unknown", node.id, str(node.lineno)))

    def _note(self, expression: ast.expr) -> None:
        for node in ast.walk(expression):
            if isinstance(node, ast.Call) and _called(node) not in _SAME_VALUE:
                access = _called(node) in _ACCESSES
                for place in node.args[:1] if access else node.args:  # a function of the answer's may load from it
                    address = self.sum_of(place)
                    if (tensor := _pointer(address)) and (access or len(address) > 1):
                        mask = self._mask_of(node)
                        self.accesses.append(
                            Access(
                                tensor,
                                address,
                                node.lineno,
                                self._bounds(mask),
                                tuple(self._asked(mask)),
                                self._texts,
                                self._moved(place),
                            )  # fmt: skip
                        )

    def _moved(self, place: ast.expr) -> bool:
        return bool(_names(place) & self._added_to)

    def _mask_of(self, call: ast.Call) -> ast.expr | None:
        mask = next((one.value for one in call.keywords if one.arg == "mask"), None)
        at = 1 if _called(call) == "load" else 2
        return mask or (call.args[at] if len(call.args) > at and _called(call) in _ACCESSES else None)

    def _asked(self, condition: ast.expr | None) -> Iterator[tuple[Sum, str]]:
        """What a condition holds below a bound; a name stands for what it was given last."""
        if isinstance(condition, ast.Name):
            yield from self._conditions.get(condition.id, ())
        elif isinstance(condition, ast.Subscript):  # [:, None]
            yield from self._asked(condition.value)
        elif isinstance(condition, ast.BinOp) and isinstance(condition.op, ast.BitAnd):
            yield from self._asked(condition.left)
            yield from self._asked(condition.right)
        elif isinstance(condition, ast.Compare) and isinstance(condition.ops[0], (ast.Lt, ast.LtE)):
            yield self.sum_of(condition.left), ast.unparse(condition.left)

    def _bounds(self, mask: ast.expr | None) -> frozenset[str]:
        """Arguments that a mask depends on, by way of all assignments."""
        seen: set[str] = set()
        left = _names(mask) if mask is not None else set()
        while left:
            seen |= left
            left = set().union(*(self._made_of.get(name, set()) for name in left)) - seen
        return frozenset(name for name in seen & self._sizes)

    def sum_of(self, node: ast.expr) -> Sum:
        """What an expression adds up to."""
        if isinstance(node, ast.Name):
            return self.held.get(node.id, _one(("unknown", node.id)))
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return _number(node.value)
        if isinstance(node, ast.Subscript):  # [:, None]
            return self.sum_of(node.value)
        if isinstance(node, ast.BinOp):
            return self._operation(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        return _one(("unknown", ast.dump(node)))

    def _operation(self, node: ast.BinOp) -> Sum:
        left, right = self.sum_of(node.left), self.sum_of(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return _less(left, right)
        if isinstance(node.op, ast.Mult) and len(left) * len(right) <= _LONGEST:
            return _product(left, right)
        return self._whole(node, (type(node.op).__name__, _text(left), _text(right)))

    def _whole(self, node: ast.expr, atom: Atom) -> Sum:
        self._texts[atom] = f"`{ast.unparse(node)}`"
        return _one(atom)

    def _call(self, node: ast.Call) -> Sum:
        name = _called(node)
        if name == "program_id":
            axis = node.args[0] if node.args else node.keywords[0].value if node.keywords else None
            return _one(("program", str(getattr(axis, "value", "?"))))
        if name == "load" and node.args:
            return _one(("loaded", _pointer(self.sum_of(node.args[0])) or ast.dump(node)))
        if name in _SAME_VALUE and isinstance(node.func, ast.Attribute):
            method = not (isinstance(node.func.value, ast.Name) and node.func.value.id not in self.held)
            inner = node.func.value if method else node.args[0] if node.args else node
            return self.sum_of(inner) if inner is not node else _one(("unknown", ast.dump(node)))
        return self._whole(node, (name, *(_text(self.sum_of(argument)) for argument in node.args)))


def _steady(loop: ast.For | ast.While) -> dict[str, ast.expr]:
    """What is added to each name, once in every turn and always the same: after n turns it holds n times that more."""
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    assigned = Counter(name for node in inside for name in _assigned(node))
    steps = {}
    for statement in loop.body:
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
            (name,), step = _assigned(statement) or ("",), statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
            (name, *_), step = _assigned(statement) or ("",), statement.value.right
            added = isinstance(statement.value.op, ast.Add) and isinstance(statement.value.left, ast.Name)
            name = name if added and statement.value.left.id == name else ""
        else:
            continue
        target = _names(loop.target) if isinstance(loop, ast.For) else set()
        if name and assigned[name] == 1 and not _names(step) & (assigned.keys() | target):
            steps[name] = step
    return steps


def _assigned(node: ast.AST) -> tuple[str, ...]:
    """The names that a statement gives a value."""
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
        return tuple(_names(node.target))
    return tuple(name for target in node.targets for name in _names(target)) if isinstance(node, ast.Assign) else ()


def _made_of(kernel: ast.FunctionDef) -> dict[str, set[str]]:
    """The names in all values that each name is given; what is loaded is made of nothing."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(kernel):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in set().union(*map(_names, targets)):
                found.setdefault(name, set()).update(_names(node.value))
        elif isinstance(node, ast.For):
            for name in _names(node.target):
                found.setdefault(name, set())  # where a loop ends is no bound of a block
    return found


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def is_tile(name: str) -> bool:
    """Whether an argument is by its name the length of a tile."""
    return name.startswith("BLOCK")


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _one(atom: Atom) -> Sum:
    return Counter({(atom,): 1})


def _number(value: int) -> Sum:
    return Counter({(): value}) if value else Counter()


def _less(left: Sum, right: Sum) -> Sum:
    result = Counter(left)
    result.subtract(right)
    return Counter({product: count for product, count in result.items() if count})


def _product(left: Sum, right: Sum) -> Sum:
    result: Sum = Counter()
    for one, count in left.items():
        for other, times in right.items():
            result[tuple(sorted(one + other))] += count * times
    return Counter({product: count for product, count in result.items() if count})


def _text(value: Sum) -> str:
    return repr(sorted(value.items()))


def _pointer(address: Sum) -> str:
    """The argument at which an address begins; "" where that is none, or several."""
    names = [product[0][1] for product in address if len(product) == 1 and product[0][0] == "argument"]
    pointers = [name for name in names if is_pointer(name)]
    return pointers[0] if len(pointers) == 1 else ""
