"""Calls that were made before: checked once, launched directly from then on.

A call of a public function checks its arguments, chooses blocks and a grid, and has Triton bind the arguments of the
kernel.  That takes Python several times as long as the launch itself, and all of it follows from the *layout* of the
arguments: dtype, shape, strides and alignment of each tensor, which of them begin at one place, the other arguments by
value.  So a call whose layout has come a few times is watched: what it allocates, what it launches and what it returns
make a `Plan`, and the next call with this layout carries that out instead.

Nothing is remembered of a call that does anything else: that copies, or looks at a value, or is to be differentiated.
A call that is refused has no plan, and no call takes the plan of another layout.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from itertools import accumulate
from operator import itemgetter
from typing import Any

import torch
import triton
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode

from . import checks, launch
from .backend import uses_triton

CALLS_BEFORE = 3  # of a layout, until one is watched: a sequence that grows by each call is not worth it
LAYOUTS = 1024  # that a function remembers; then it begins anew
ALIGNMENT = 16  # bytes: what Triton's compiler makes use of
STORAGE = 2**31 - 1  # bytes: AMD's compiler addresses a larger tensor in another way
SHARED = 256  # up to here equal numbers are one object in Python
BY_VALUE = (bool, int, float, str, type(None), torch.dtype)
EMPTY = {"aten::" + name for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")}
FULL = "aten::full"


@dataclass(frozen=True)
class Plan:
    """What a call does.

    Its tensors are numbered, with what else its kernels are given: the arguments, what it makes, parts of all these,
    constants.
    """

    make: list[Callable[[], torch.Tensor]]
    parts: list[tuple[int, tuple]]  # number of a tensor; shape, strides and offset of the part
    constants: list[Any]
    launches: list[tuple[Callable, Callable]]  # a launcher, and what picks its arguments
    result: Callable  # picks it
    written: list[int]  # numbers of the arguments that a launch writes
    checks_values: bool  # where COURSE_KERNELS_CHECKS asks for it
    run: Callable  # Triton's way to launch, then: who replaces it wants to see launches

    def holds(self) -> bool:
        """Nobody wants more of a call than it does."""
        if self.checks_values and os.environ.get(checks.VARIABLE) == "1":
            return False
        return triton.JITFunction.run is self.run

    def carry_out(self, arguments: tuple) -> Any:
        """Allocate, launch, return."""
        numbered = [*arguments, *[make() for make in self.make]]
        if self.parts:
            numbered += [numbered[number].as_strided(*part) for number, part in self.parts]
        numbered += self.constants
        for start, pick in self.launches:
            start(*pick(numbered))
        for number in self.written:
            increment_version(arguments[number])
        return self.result(numbered)


def remembered(function: Callable, number: str | None = None, writes: tuple[str, ...] = ()) -> Callable:
    """Let a public function carry out what calls with the same layout of arguments did; a decorator.

    number: the name of an int that may be another in each call and is handed to a kernel as it is, as a seed.
    writes: names of tensors that must share no memory with others, so that it is a part of the layout whether they do.
    """
    plans: dict[tuple, Plan | int | None] = {}  # or how often the layout has come; None: it has no plan
    names = list(signature(function).parameters)
    place = names.index(number) if number else None
    written = [(name, names.index(name)) for name in writes]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not _depends_on_arguments():
            return function(*args, **kwargs)
        arguments = (*args, *kwargs.values()) if kwargs else args
        targets = [args[i] if i < len(args) else kwargs.get(name) for name, i in written] if written else ()
        layout = _layout(arguments if place is None else _with_a_kind(arguments, place), kwargs, targets)
        if layout is None:
            return function(*args, **kwargs)
        plan = plans.get(layout, 0)
        if type(plan) is Plan:
            return plan.carry_out(arguments) if plan.holds() else function(*args, **kwargs)
        if plan == CALLS_BEFORE and (place is None or _is_known_again(arguments, place)):
            watch = _Watch(arguments)
            result = watch.call(function, args, kwargs)
            plans[layout] = watch.plan(result)
            return result
        if plan is not None and plan < CALLS_BEFORE:
            if len(plans) >= LAYOUTS:
                plans.clear()
            plans[layout] = plan + 1
        return function(*args, **kwargs)

    return call


def _with_a_kind(arguments: tuple, place: int) -> tuple:
    """The number there as what Triton compiles for: 1, a multiple of 16, how many bits."""
    if len(arguments) <= place or type(number := arguments[place]) is not int:
        return arguments
    bits = number.bit_length()
    kind = (number == 1) + 2 * (number % ALIGNMENT == 0) + 4 * (number < 0) + 8 * ((bits > 31) + (bits > 63))
    return *arguments[:place], kind, *arguments[place + 1 :]


def _is_known_again(arguments: tuple, place: int) -> bool:
    """Python has one object for all small numbers that are equal: only a larger one is surely the argument."""
    return len(arguments) > place and type(arguments[place]) is int and arguments[place] > SHARED


def _depends_on_arguments() -> bool:
    """And on nothing else: no other sizes, no derivatives forward; and it is no part of a call that is watched.

    Nor of a function that `torch.func` transforms, whose tensors may have an address that is none.
    """
    plain = forward_ad._current_level < 0 and peek_interpreter_stack() is None
    return plain and not launch.overridden() and launch.watcher() is None


def _layout(arguments: tuple, names: dict, written: Sequence[Tensor | None]) -> tuple | None:
    """All that a call depends on; None where it may depend on more, or has no GPU to depend on."""
    first = arguments[0] if arguments else None
    if first is None:
        first = next((x for x in arguments if x is not None), None)
    if not isinstance(first, Tensor) or not first.is_cuda or not uses_triton(first):
        return None
    device, grad, amd = torch.cuda.current_device(), torch.is_grad_enabled(), torch.version.hip
    layout, starts = [device, grad, *names], []
    try:
        for x in arguments:
            kind = type(x)
            if kind is Tensor or kind is Parameter:
                if x.get_device() != device or (grad and x.requires_grad) or x.is_neg():
                    return None
                start = x.data_ptr()
                starts.append(start)
                layout += x.dtype, x.shape, x.stride(), start % ALIGNMENT
                if amd:
                    layout.append(x.untyped_storage().nbytes() > STORAGE)
            elif kind in BY_VALUE:
                layout += kind, x if x != 0 else str(x)  # 0.0 and -0.0 are equal
            else:
                return None
    except RuntimeError:  # no strides or no address: sparse, nested, inside a transformation of torch.func
        return None
    if len(set(starts)) < len(starts):
        layout.append(tuple(map(starts.index, starts)))
    for target in written:
        if target is not None:
            layout.append(_beside(target, starts))
    return tuple(layout)


def _beside(target: Tensor, starts: list[int]) -> tuple[int, ...]:
    """How far into the storage of a tensor that is written each tensor begins; -1: elsewhere."""
    storage = target.untyped_storage()
    first = storage.data_ptr()
    end = first + storage.nbytes()
    return tuple([start - first if first <= start < end else -1 for start in starts])


class _Watch(TorchDispatchMode):
    """Sees what a call does, and whether a plan can do it again."""

    def __init__(self, arguments: tuple):
        super().__init__()
        self.arguments = arguments
        self.made: list[Tensor] = []  # kept, so that no address is given out twice
        self.fills: list[Any] = []
        self.launches: list[tuple[Callable, list]] = []
        self.written: list[int] = []
        self.launching = False
        self.run = triton.JITFunction.run
        self.can_repeat = self.run.__module__.startswith("triton.")

    def call(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the function returns."""
        with launch.watched_by(self), self:
            return function(*args, **kwargs)

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        if self.launching:
            return result
        name = operator._schema.name
        if name in EMPTY or name == FULL:
            self.made.append(result)
            self.fills.append(args[1] if name == FULL else None)
        elif operator._schema.is_mutable or not self._is_view(result, args[0] if args else None):
            self.can_repeat = False
        return result

    def _is_view(self, result: Any, base: Any) -> bool:
        """Of a tensor that the call made; or of an argument, from its first element on."""
        if not isinstance(base, Tensor) or base.numel() == 0:
            return False
        views = result if isinstance(result, (list, tuple)) else [result]
        if not all(isinstance(x, Tensor) and _storage(x) == _storage(base) for x in views):
            return False
        return self.number_made(base) is not None or all(x.data_ptr() == base.data_ptr() for x in views)

    def launch(self, kernel: Any, grid: tuple[int, ...], args: tuple, meta: dict[str, Any]) -> None:
        """Launch; keep the launcher, and its arguments in the order of the kernel's parameters."""
        self.launching = True  # what Triton allocates now, its launcher will again
        compiled = kernel[grid](*args, **meta)
        self.launching = False
        if not isinstance(compiled, triton.compiler.CompiledKernel):
            self.can_repeat = False
            return
        parameters = signature(kernel.fn)
        bound = parameters.bind(*args, **{name: x for name, x in meta.items() if name in parameters.parameters})
        bound.apply_defaults()
        self.launches.append((compiled[(*grid, 1, 1)[:3]], list(bound.arguments.values())))

    def wrote(self, tensor: Tensor) -> None:
        """Keep which argument, or the start of which, a launch wrote."""
        self.written += [i for i, x in enumerate(self.arguments) if isinstance(x, Tensor) and _same_start(x, tensor)]

    def number_made(self, x: Tensor) -> int | None:
        """Which of the tensors that the call made holds x."""
        storages = [_storage(made) for made in self.made]
        return storages.index(_storage(x)) if _storage(x) in storages else None

    def plan(self, result: Any) -> Plan | None:
        """How to do it again; None if that cannot be known."""
        results = result if isinstance(result, tuple) else (result,)
        if not self.can_repeat or not self.launches or (isinstance(result, tuple) and len(result) < 2):
            return None
        numbers = _Numbers(self, results)
        picked = [[numbers.of_operand(x) for x in values] for _, values in self.launches]
        returned = [numbers.of_result(x) for x in results]
        if any(None in places for places in (*picked, returned)):
            return None
        return Plan(
            make=[_maker(x, fill) for x, fill in zip(numbers.made, self.fills)],
            parts=numbers.parts,
            constants=numbers.constants,
            launches=[(start, numbers.picker(places)) for (start, _), places in zip(self.launches, picked)],
            result=numbers.picker(returned),
            written=list(dict.fromkeys(self.written)),
            checks_values=any(isinstance(x, Tensor) and x.dtype not in checks.FLOATING for x in self.arguments),
            run=self.run,
        )


class _Numbers:
    """Gives everything in a call its place: first as (kind, number in the kind), in the end as one number."""

    def __init__(self, watch: _Watch, results: tuple):
        self.watch, self.parts, self.constants = watch, [], []
        self.made = list(watch.made)
        for x in results:
            if isinstance(x, Tensor) and (number := watch.number_made(x)) is not None:
                made = watch.made[number]
                if x.is_contiguous() and made.is_contiguous() and x.numel() == made.numel() and x.dtype == made.dtype:
                    self.made[number] = x  # made in the shape in which it is returned

    def picker(self, places: list[tuple[str, int]]) -> Callable:
        """Picks these from all."""
        kinds = {"argument": self.watch.arguments, "made": self.made, "part": self.parts, "constant": self.constants}
        first = dict(zip(kinds, accumulate(map(len, kinds.values()), initial=0)))
        return itemgetter(*(first[kind] + number for kind, number in places))

    def of_operand(self, x: Any) -> tuple[str, int] | None:
        """What a kernel is given: of a tensor only the address counts."""
        if not isinstance(x, Tensor):
            same = [i for i, given in enumerate(self.watch.arguments) if given is x and type(x) is int and x > SHARED]
            return ("argument", same[0]) if same else self._constant(x)
        if (number := self.watch.number_made(x)) is not None:
            return ("made", number) if x.data_ptr() == self.made[number].data_ptr() else self._part(number, x)
        arguments = enumerate(self.watch.arguments)
        same = [i for i, given in arguments if isinstance(given, Tensor) and given.data_ptr() == x.data_ptr()]
        return ("argument", same[0]) if same else None

    def of_result(self, x: Any) -> tuple[str, int] | None:
        """What is returned: an argument itself, or of what was made all or a part, or None."""
        if x is None:
            return self._constant(None)
        same = [i for i, given in enumerate(self.watch.arguments) if given is x]
        if same:
            return "argument", same[0]
        if not isinstance(x, Tensor) or x.requires_grad or (number := self.watch.number_made(x)) is None:
            return None
        made = self.made[number]
        whole = x.shape == made.shape and x.stride() == made.stride() and x.data_ptr() == made.data_ptr()
        return ("made", number) if whole and x.dtype == made.dtype else self._part(number, x)

    def _constant(self, x: Any) -> tuple[str, int]:
        self.constants.append(x)
        return "constant", len(self.constants) - 1

    def _part(self, number: int, x: Tensor) -> tuple[str, int] | None:
        if x.dtype != self.made[number].dtype:
            return None
        self.parts.append((len(self.watch.arguments) + number, (tuple(x.shape), x.stride(), x.storage_offset())))
        return "part", len(self.parts) - 1


def _same_start(x: Tensor, y: Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and _storage(x) == _storage(y)


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _maker(x: Tensor, fill: Any) -> Callable[[], Tensor]:
    """Makes a tensor like x, empty or full."""
    if fill is None:
        return partial(torch.empty_strided, tuple(x.shape), x.stride(), dtype=x.dtype, device=x.device)
    return partial(torch.full, tuple(x.shape), fill, dtype=x.dtype, device=x.device)
