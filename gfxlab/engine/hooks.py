"""What an interpreted launch does, seen access by access, and kept inside its tensors.

Three things happen at each `tl.load`, `tl.store` and atomic of an interpreted kernel:

- the *bounds guard* compares every active lane with the tensors given to the launch.  Outside, it raises
  `OutOfBoundsError` or, under `guard("record")`, notes a `Fault`, loads poison, stores nothing and goes on.
  (The stock interpreter reads and writes whatever memory is there: a forgotten mask corrupts the heap.)
- *poison*: masked lanes of a load without `other=` hold NaN (or the largest integer).  Hardware leaves them undefined,
  the stock interpreter makes them 0 and so hides the bug.
- *observers* receive an `Access` with the program, the argument's name, the elements and the mask.

`install()` patches the interpreter for this, once a process: its builder, its grid executor, its calls of functions.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import triton
import triton.compiler.code_generator  # keeps tl.core.builtin_min as it finds it: never import it inside a launch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import GridExecutor, InterpretedFunction, InterpreterBuilder, TensorHandle
from triton.runtime.jit import JITFunction

from gfxlab.bound import Launch, bind, tensors
from gfxlab.engine import combining, device_library, numerics, operators
from gfxlab.engine.at_once import AtOnce
from gfxlab.programs import format_program
from gfxlab.strides import Strided
from gfxlab.tracebacks import ShortTraceback

_TRITON_FOLDER = str(Path(triton.__file__).parent)
_THIS_FOLDER = str(Path(__file__).parent)


class OutOfBoundsError(ShortTraceback, IndexError):
    """A lane that no mask switched off touched memory outside every tensor of the launch."""


@dataclass(frozen=True)
class Fault:
    """An out-of-bounds access: `lanes` active lanes of one program outside the tensor nearest to them."""

    kernel: str
    kind: str
    program: tuple[int, int, int]
    tensor: str
    size: int
    first_element: int
    lanes: int
    line: int
    filename: str
    outside: np.ndarray | None = field(default=None, compare=False, repr=False)  # which lanes, as a mask of the block

    @property
    def message(self) -> str:
        """One sentence: who touched what, and where to look."""
        verb = {"load": "reads", "store": "writes", "atomic": "updates"}[self.kind]
        where = "before the start" if self.first_element < 0 else "past the end"
        advice = "Give this access a mask that switches those lanes off."
        if 0 <= self.first_element < self.size:
            where, advice = "between the rows", "They lie further apart than they are long: use the stride."
        lanes = "1 lane" if self.lanes == 1 else f"{self.lanes} lanes"
        return (
            f"program {format_program(self.program)} of {self.kernel} {verb} element {self.first_element} of "
            f"{self.tensor}, {where} of its {self.size} elements ({lanes}; line {self.line}). "
            f"{advice}"
        )


@dataclass(frozen=True)
class Access:
    """One load, store or atomic of one program. Arrays have the shape of the block."""

    kind: str  # 'load', 'store' or 'atomic'
    program: tuple[int, int, int]
    tensor: str | None  # the kernel's argument; None when every lane is masked off
    elements: np.ndarray  # int64, offset in elements from the tensor's first one; -1 where the lane is masked off
    mask: np.ndarray
    values: np.ndarray | None  # raw data as the interpreter holds it (bfloat16 in uint16)
    has_other: bool
    line: int
    filename: str
    lanes: np.ndarray | None = None  # like `elements`, but also where each masked lane points to
    ordered: bool = False  # an atomic, or a load or store by tl.atomic_load, tl.atomic_store


class Observer(Protocol):
    """Any of these methods may be left out."""

    def on_launch(self, launch: Launch) -> None: ...
    def on_access(self, access: Access) -> None: ...
    def on_finish(self, launch: Launch) -> None: ...


# ---- the tensors of a launch as address ranges ---------------------------------------------------------------------


@dataclass
class _Region:
    """The bytes that one tensor argument may touch."""

    name: str
    start: int
    itemsize: int
    strided: Strided

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> _Region:
        return cls(name, tensor.data_ptr(), tensor.element_size(), Strided.of(tensor))

    def elements(self, addresses: np.ndarray) -> np.ndarray:
        return (addresses.astype(np.int64) - self.start) // self.itemsize

    def contains(self, elements: np.ndarray) -> np.ndarray:
        return self.strided.contains(elements)

    def distance(self, element: int) -> int:
        return max(-element, element - self.strided.span + 1, 0) * self.itemsize


# ---- state of this process -----------------------------------------------------------------------------------------


@dataclass
class _State:
    policy: str = "raise"
    faults: list[Fault] = field(default_factory=list)
    poison: bool | str = True
    poisoned_line: tuple[str, int] | None = None
    observers: list[Observer] = field(default_factory=list)
    launch: Launch | None = None
    regions: list[_Region] = field(default_factory=list)
    launches: int = 0
    unseen: str = ""
    ordered: bool = False
    order: str = ""
    shared: str = ""
    at_once: AtOnce | None = None


_state = _State()
_UNSEEN = (
    "Triton {version} has changed inside: its interpreter lacks {names}. Kernels run, but accesses that go another way "
    "are neither guarded nor traced. `make compat` shows the versions that were tested."
)


def unseen() -> str:
    """A sentence on what this version of Triton hides from the guard and the trace; "" when they see everything."""
    return _state.unseen


def is_launching() -> bool:
    """True while a kernel is being interpreted."""
    return _state.launch is not None


def launches() -> int:
    """How many interpreted launches this process has made."""
    return _state.launches


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[Observer]:
    """Let `observer` see every interpreted launch inside the `with` block."""
    install()
    _state.observers.append(observer)
    try:
        yield observer
    finally:
        _state.observers.remove(observer)


@contextlib.contextmanager
def guard(policy: str) -> Iterator[list[Fault]]:
    """Choose what an out-of-bounds access does: "raise" an `OutOfBoundsError` or "record" it in the list given.

    Raises:
        ValueError: `policy` is neither.
    """
    if policy not in ("raise", "record"):
        raise ValueError(f"guard policy must be 'raise' or 'record', got {policy!r}")
    install()
    before = _state.policy, _state.faults
    _state.policy, _state.faults = policy, []
    try:
        yield _state.faults
    finally:
        _state.policy, _state.faults = before


@contextlib.contextmanager
def program_order(order: str) -> Iterator[None]:
    """Run the programs of each launch "reversed" or "shuffled" (always alike); "" is the grid's own order.

    Hardware promises none: a result that depends on it is luck.

    Raises:
        ValueError: `order` is none of these.
    """
    if order not in ("", "reversed", "shuffled"):
        raise ValueError(f"the order of programs must be '', 'reversed' or 'shuffled', got {order!r}")
    install()
    before, _state.order = _state.order, order
    try:
        yield
    finally:
        _state.order = before


@contextlib.contextmanager
def at_once(tensor: str) -> Iterator[None]:
    """Let every program of a launch find in this tensor, by its name there, what lay in it when the launch began.

    Hardware may run them so.  "" is no tensor.
    """
    install()
    before, _state.shared = _state.shared, tensor
    try:
        yield
    finally:
        _state.shared = before


@contextlib.contextmanager
def poison(on: bool | str, line: tuple[str, int] | None = None) -> Iterator[None]:
    """Switch the poisoning of masked lanes without `other=` on or off.

    "infinities" takes these, both signs in turn, instead of NaN: a maximum and a minimum pass over NaN, as on hardware.
    line: file and number of the one line whose loads are poisoned; None for all.
    """
    install()
    before = _state.poison, _state.poisoned_line
    _state.poison, _state.poisoned_line = on, line
    try:
        yield
    finally:
        _state.poison, _state.poisoned_line = before


# ---- one access ----------------------------------------------------------------------------------------------------


def _source_position() -> tuple[str, int]:
    """The innermost frame that belongs neither to Triton nor to this folder: the kernel's own line."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith((_THIS_FOLDER, _TRITON_FOLDER)):
            return filename, frame.f_lineno
        frame = frame.f_back
    return "<unknown>", 0


def _locate(addresses: np.ndarray, active: np.ndarray) -> tuple[_Region | None, np.ndarray, np.ndarray]:
    """The tensor that an access means, the element of each lane, and which active lanes lie inside.

    Several arguments may share memory; the first that holds every active lane is taken, else one that holds the first
    lane (a block that begins in one tensor may reach into the next), else the one that holds most, else the nearest.
    """
    best, first = None, np.flatnonzero(active)[0]
    for region in _state.regions:
        elements = region.elements(addresses)
        inside = region.contains(elements) & active
        count = int(inside.sum())
        if count == active.sum():
            return region, elements, inside
        key = (bool(inside.flat[first]), count, -region.distance(int(elements.flat[first])))
        if best is None or key > best[0]:
            best = key, region, elements, inside
    if best is None:
        return None, np.full(addresses.shape, -1, np.int64), np.zeros_like(active)
    return best[1:]


def _poison_value(dtype: tl.dtype, np_dtype: np.dtype):
    if dtype == tl.bfloat16:
        return np_dtype.type(0x7FC0)
    if dtype.is_floating() and np_dtype == np.uint8:
        return np_dtype.type(0x80 if dtype in (tl.float8e4b8, tl.float8e5b16) else 0x7F)
    if dtype.is_floating():
        return np_dtype.type(np.nan)
    return np_dtype.type(True) if np_dtype == np.bool_ else np.iinfo(np_dtype).max


def _infinities(count: int, dtype: tl.dtype, np_dtype: np.dtype) -> np.ndarray:
    """Infinity and its negative in turn, as bits for bfloat16."""
    values = np.where(np.arange(count) % 2, -np.inf, np.inf).astype(np.float32)
    return values.view(np.uint32) >> 16 if dtype == tl.bfloat16 else values.astype(np_dtype)


def _check(kind: str, pointers: TensorHandle, mask: np.ndarray) -> tuple[np.ndarray, _Region | None, np.ndarray]:
    """Apply the bounds guard: the mask with illegal lanes off, the tensor meant, the element of each lane."""
    addresses = np.asarray(pointers.data)
    active = np.broadcast_to(np.asarray(mask, bool), addresses.shape)
    if not active.any():
        return active, None, np.full(addresses.shape, -1, np.int64)
    region, elements, inside = _locate(addresses, active)
    outside = active & ~inside
    if outside.any():
        _report(kind, region, elements, outside)
    return inside, region, elements


def _report(kind: str, region: _Region | None, elements: np.ndarray, outside: np.ndarray) -> None:
    filename, line = _source_position()
    fault = Fault(
        kernel=_state.launch.name if _state.launch else "kernel",
        kind=kind,
        program=tuple(interpreter.interpreter_builder.grid_idx),
        tensor=region.name if region else "no tensor of this launch",
        size=region.strided.size if region else 0,
        first_element=int(elements[outside].flat[0]),
        lanes=int(outside.sum()),
        line=line,
        filename=filename,
        outside=outside,
    )
    if _state.policy == "raise":
        raise OutOfBoundsError(fault.message)
    _state.faults.append(fault)


def _notify(kind: str, mask, region, elements, values, has_other: bool) -> None:
    if _state.at_once and region and region.name == _state.shared and (_state.ordered or kind == "atomic"):
        _state.at_once.finish()
    if not _state.observers:
        return
    filename, line = _source_position()
    access = Access(
        kind=kind,
        program=tuple(interpreter.interpreter_builder.grid_idx),
        tensor=region.name if region else None,
        elements=np.where(mask, elements, -1),
        mask=mask,
        values=None if values is None else np.asarray(values),
        has_other=has_other,
        line=line,
        filename=filename,
        lanes=elements,
        ordered=_state.ordered or kind == "atomic",
    )
    for observer in _state.observers:
        if hasattr(observer, "on_access"):
            observer.on_access(access)


def _hooked_load(stock):
    def create_masked_load(self, ptrs, mask, other, *args, **kwargs):
        wanted = np.broadcast_to(np.asarray(mask.data, bool), np.shape(ptrs.data))
        allowed, region, elements = _check("load", ptrs, wanted)
        result = stock(self, ptrs, TensorHandle(allowed, tl.int1), other, *args, **kwargs)
        bad = wanted & ~allowed
        if other is None and _state.poison is not False and _state.poisoned_line in (None, _source_position()):
            bad = ~allowed
        if bad.any():
            data = np.array(result.data)
            dtype = result.dtype.scalar
            if _state.poison == "infinities" and dtype.is_floating() and data.itemsize > 1:
                data[bad] = _infinities(int(bad.sum()), dtype, data.dtype)
            else:
                data[bad] = _poison_value(dtype, data.dtype)
            result = TensorHandle(data, result.dtype)
        _notify("load", allowed, region, elements, result.data, other is not None)
        return result

    return create_masked_load


def _hooked_store(stock):
    def create_masked_store(self, ptrs, value, mask, *args, **kwargs):
        allowed, region, elements = _check("store", ptrs, mask.data)
        _notify("store", allowed, region, elements, value.data, False)
        return stock(self, ptrs, value, TensorHandle(allowed, tl.int1), *args, **kwargs)

    return create_masked_store


def _hooked_ordered(stock):
    """`tl.atomic_load` and `tl.atomic_store` are, to the interpreter, a load and a store."""

    def create_atomic(self, *args, **kwargs):
        before, _state.ordered = _state.ordered, True
        try:
            return stock(self, *args, **kwargs)
        finally:
            _state.ordered = before

    return create_atomic


def _hooked_atomic_rmw(stock):
    def create_atomic_rmw(self, op, ptr, value, mask, *args, **kwargs):
        allowed, region, elements = _check("atomic", ptr, mask.data)
        _notify("atomic", allowed, region, elements, value.data, False)
        return stock(self, op, ptr, value, TensorHandle(allowed, tl.int1), *args, **kwargs)

    return create_atomic_rmw


def _hooked_atomic_cas(stock):
    def create_atomic_cas(self, ptr, compare, value, *args, **kwargs):
        allowed, region, elements = _check("atomic", ptr, np.ones(np.shape(ptr.data), bool))
        _notify("atomic", allowed, region, elements, value.data, False)
        if allowed.all():
            return stock(self, ptr, compare, value, *args, **kwargs)
        scratch = np.zeros(np.shape(ptr.data), np.int64)  # compare-and-swap has no mask: illegal lanes swap here
        aside = scratch.ctypes.data + 8 * np.arange(scratch.size, dtype=np.uint64).reshape(scratch.shape)
        return stock(self, TensorHandle(np.where(allowed, ptr.data, aside), ptr.dtype), compare, value, *args, **kwargs)

    return create_atomic_cas


# ---- one launch ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _patched_language() -> Iterator[None]:
    """`triton.language` as the interpreter needs it, put back afterwards.

    One patch serves the kernel and every device function it calls (the stock interpreter patches again at each call of
    a device function, which costs most of its time, and leaves those patches behind).
    """
    namespace = {"__builtins__": {}, "tl": tl, "core": tl.core}
    probe = eval("lambda: None", namespace)
    scope = interpreter._patch_lang(probe)
    for name, function in _METHODS.items():
        scope.set_attr(tl.tensor, name, function)
    device_library.patch(scope)
    try:
        yield
    finally:
        scope.restore()


def _method(function: JITFunction) -> Callable:
    """`x.sum()`: the compiler passes x to the function itself; Python does so only for a function of its own."""

    def method(self, *args, **kwargs):
        return function(self, *args, **kwargs)

    return method


_METHODS = {name: _method(member) for name, member in vars(tl.tensor).items() if isinstance(member, JITFunction)}


def _math_method(name: str) -> Callable:
    """`x.exp()` before Triton 3.9: the method is what lies below the builtin, which nobody gives its semantic."""

    def method(self, *args, **kwargs):
        return getattr(tl.math, name)(self, *args, **kwargs)

    return method


_METHODS |= {
    name: _math_method(name)
    for name, member in vars(tl.math).items()
    if tl.core.is_builtin(member) and not tl.core.is_builtin(getattr(tl.tensor, name, member))
}


def _root_cause(error: BaseException) -> BaseException:
    while isinstance(error, InterpreterError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _each(method: str, value) -> None:
    for observer in list(_state.observers):
        if hasattr(observer, method):
            getattr(observer, method)(value)


def _hooked_executor_call(stock):
    def __call__(self, *args, **kwargs):
        outer = _state.launch, _state.regions, _state.at_once
        _state.launch, _state.regions, _state.at_once = bind(self.fn, args, kwargs), [], None
        _state.launches += 1
        try:
            with _patched_language(), np.errstate(all="ignore"):  # a GPU overflows without a warning
                stock(self, *args, **kwargs)
            if _state.at_once:
                _state.at_once.finish()
            _each("on_finish", _state.launch)
        except InterpreterError as error:
            raise _root_cause(error) from None
        finally:
            _state.launch, _state.regions, _state.at_once = outer

    return __call__


def _hooked_init_args(stock):
    def _init_args_hst(self, args, kwargs):
        args_hst, kwargs_hst = stock(self, args, kwargs)
        names = list(inspect.signature(self.fn).parameters)
        given = list(zip(names, args_hst, strict=False)) + list(kwargs_hst.items())
        _state.regions = [_Region.of(n, t) for name, value in given for n, t in tensors(name, value)]
        return args_hst, kwargs_hst

    return _init_args_hst


def _hooked_restore_args(stock):
    def _restore_args_dev(self, args, args_hst, kwargs, kwargs_hst):
        # A CPU tensor's "copy" is the tensor itself: copying it back would only read and write all of its storage.
        given = [*args, *kwargs.values()]
        if any(t.device.type != "cpu" for value in given for _, t in tensors("", value)):
            stock(self, args, args_hst, kwargs, kwargs_hst)

    return _restore_args_dev


def _hooked_set_grid_dim(stock):
    def set_grid_dim(self, *dims):
        stock(self, *dims)
        if _state.launch is not None:
            _state.launch.grid = tuple(int(d) for d in dims)
            shared = _state.launch.tensors.get(_state.shared)
            _state.at_once = AtOnce(shared) if shared is not None else None
            _each("on_launch", _state.launch)

    return set_grid_dim


def _hooked_set_grid_idx(stock):
    def set_grid_idx(self, x, y, z):
        if _state.at_once:
            _state.at_once.turn()
        stock(self, *(_turn(x, y, z) if _state.order and _state.launch is not None else (x, y, z)))

    return set_grid_idx


def _turn(x: int, y: int, z: int) -> tuple[int, int, int]:
    """The program that has its turn, in another order, when (x, y, z) would have it."""
    grid = _state.launch.grid
    place = (x * grid[1] + y) * grid[2] + z
    order = _order(_state.order, grid[0] * grid[1] * grid[2])
    return tuple(int(n) for n in np.unravel_index(int(order[place]), grid))


@lru_cache(maxsize=8)
def _order(name: str, count: int) -> np.ndarray:
    return np.arange(count)[::-1] if name == "reversed" else np.random.default_rng(count).permutation(count)


def _hooked_device_call(stock):
    def __call__(self, *args, **kwargs):
        if _state.launch is None:
            return stock(self, *args, **kwargs)
        return self.rewrite()(*args, **kwargs)

    return __call__


def _hooked_patch_tensor(stock):
    def _patch_lang_tensor(tensor, scope):
        stock(tensor, scope)
        scope.set_attr(tensor, "__bool__", operators.truth)

    return _patch_lang_tensor


def _hooked_patch_core(stock):
    def _patch_lang_core(lang, scope):
        stock(lang, scope)
        scope.set_attr(lang.dtype, "to_ir", numerics.to_ir(lang.dtype.to_ir))

    return _patch_lang_core


def _compile_and_exec(self, tree):
    """Run the rewritten kernel in its own module's globals, adding only the names that the rewriting introduced."""
    introduced = {name: getattr(interpreter, name, None) for name in ("interpreter_semantic", "_InterpreterComparison")}
    for name, value in {**introduced, operators.NAME: operators}.items():
        self.fn.__globals__.setdefault(name, value)
    local: dict[str, Any] = dict(self.kwargs)
    code = compile(operators.rewrite(tree, self.fn), filename=self.filename, mode="exec", dont_inherit=True)
    exec(code, self.fn.__globals__, local)
    return local[self.fn.__name__]


@cache
def install() -> None:
    """Hook this process's interpreter (and repair its numbers); calling it again does nothing."""
    numerics.install()
    combining.install()
    device_library.install()
    missing = []
    for owner, name, hooked in (
        (InterpreterBuilder, "create_masked_load", _hooked_load),
        (InterpreterBuilder, "create_masked_store", _hooked_store),
        (InterpreterBuilder, "create_atomic_rmw", _hooked_atomic_rmw),
        (InterpreterBuilder, "create_atomic_cas", _hooked_atomic_cas),
        (InterpreterBuilder, "set_grid_dim", _hooked_set_grid_dim),
        (InterpreterBuilder, "set_grid_idx", _hooked_set_grid_idx),
        (GridExecutor, "__call__", _hooked_executor_call),
        (GridExecutor, "_init_args_hst", _hooked_init_args),
        (GridExecutor, "_restore_args_dev", _hooked_restore_args),
        (InterpretedFunction, "__call__", _hooked_device_call),
        (interpreter, "_patch_lang_tensor", _hooked_patch_tensor),
        (interpreter, "_patch_lang_core", _hooked_patch_core),
    ):
        if hasattr(owner, name):
            setattr(owner, name, hooked(getattr(owner, name)))
        else:
            missing.append(name)
    if missing:
        _state.unseen = _UNSEEN.format(version=triton.__version__, names=", ".join(missing))
        warnings.warn(_state.unseen, stacklevel=3)
    for name in ("create_atomic_load", "create_atomic_store"):  # from Triton 3.9 on
        if hasattr(InterpreterBuilder, name):
            setattr(InterpreterBuilder, name, _hooked_ordered(getattr(InterpreterBuilder, name)))
    interpreter.FunctionRewriter._compile_and_exec = _compile_and_exec
