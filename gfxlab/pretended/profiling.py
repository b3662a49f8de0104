"""Proton, Triton's profiler, on a pretended GPU: scopes, launches and their metrics as ever, times NaN.

Proton's Python stays; the functions of its C++ library, which would load ROCm's profiler, are these. The file that a
session writes has the form of Proton's "hatchet": a tree of frames with metrics, and the device.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gfxlab import hardware
from gfxlab.pretended.attaching import CannotPretend

_numbers = itertools.count(0)
_here = threading.local()
_sessions: dict[int, _Session] = {}


_Surrounding = Callable[[str], contextlib.AbstractContextManager[Any] | None]
_surrounding: list[_Surrounding] = []


@dataclass
class _Node:
    name: str
    metrics: dict[str, Any] = field(default_factory=dict)
    children: dict[str, _Node] = field(default_factory=dict)

    def below(self, names: list[str]) -> _Node:
        node = self
        for name in names:
            node = node.children.setdefault(name, _Node(name))
        return node

    def add(self, metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def as_json(self) -> dict[str, Any]:
        children = [child.as_json() for child in self.children.values()]
        return {"frame": {"name": self.name, "type": "function"}, "metrics": self.metrics, "children": children}


@dataclass
class _Session:
    path: Path
    arch: str
    active: bool = True
    around: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    root: _Node = field(default_factory=lambda: _Node("ROOT", {"count": 0}))

    def write(self) -> None:
        """Into <name>.hatchet, where the profiler's viewer looks for it."""
        card = hardware.card(self.arch)
        device = {"arch": self.arch, "num_sms": card.compute_units, "bus_width": 0, "clock_rate": 0}
        devices = {"HIP": {"0": {**device, "memory_clock_rate": 0}}}
        self.path.write_text(json.dumps([self.root.as_json(), devices]), encoding="utf-8")


@contextlib.contextmanager
def recorded(arch: str) -> Iterator[None]:
    """Inside the block Proton's library is the one here, where this Triton has Proton."""
    try:
        from triton._C.libproton import proton
    except ImportError:
        yield
        return
    stock = {name: getattr(proton, name) for name in vars(_Library) if hasattr(proton, name) and name[0] != "_"}
    ours = _Library(arch)
    for name in stock:
        setattr(proton, name, getattr(ours, name))
    try:
        yield
    finally:
        for name, function in stock.items():
            setattr(proton, name, function)


@contextlib.contextmanager
def within(surrounding: _Surrounding) -> Iterator[None]:
    """Inside the block each session that begins is inside of what `surrounding` makes of its name, until it ends."""
    _surrounding.append(surrounding)
    try:
        yield
    finally:
        _surrounding.remove(surrounding)


def launched(name: str, instructions: int) -> None:
    """Count a launch under the scopes that this thread is in."""
    for node in _nodes([*_scopes(), name]):
        node.add({"count": 1, "time (ns)": math.nan, "wave_instructions": instructions})
        node.metrics |= {"device_id": "0", "device_type": "HIP"}


def _scopes() -> list[str]:
    if not hasattr(_here, "scopes"):
        _here.scopes = []
    return _here.scopes


def _nodes(names: list[str]) -> list[_Node]:
    return [session.root.below(names) for session in list(_sessions.values()) if session.active]


class _Library:
    """The functions of triton._C.libproton.proton that a session calls."""

    def __init__(self, arch: str):
        self._arch = arch

    def start(self, name: str, context: str, data: str, backend: str, mode: str = "") -> int:
        if backend == "instrumentation" or data != "tree":
            raise CannotPretend(
                f"Proton's backend {backend!r} with data={data!r} needs a real GPU: a pretended one has no clock; "
                "take the default backend, or gfxlab step"
            )
        number = min(set(range(len(_sessions) + 1)) - _sessions.keys())
        session = _sessions[number] = _Session(Path(f"{name}.hatchet"), self._arch)
        for surrounding in _surrounding:
            if (block := surrounding(Path(name).name)) is not None:
                session.around.enter_context(block)
        return number

    def activate(self, session: int) -> None:
        _sessions[session].active = True

    def activate_all(self) -> None:
        for session in _sessions.values():
            session.active = True

    def deactivate(self, session: int, flushing: bool = False) -> None:
        _sessions[session].active = False

    def deactivate_all(self, flushing: bool = False) -> None:
        for session in _sessions.values():
            session.active = False

    def finalize(self, session: int, output_format: str = "") -> None:
        if session in _sessions:
            ended = _sessions.pop(session)
            ended.around.close()
            ended.write()

    def finalize_all(self, output_format: str = "") -> None:
        for session in list(_sessions):
            self.finalize(session)

    def record_scope(self) -> int:
        return next(_numbers)

    def enter_scope(self, number: int, name: str) -> None:
        _scopes().append(name)

    def exit_scope(self, number: int, name: str) -> None:
        if _scopes():
            _scopes().pop()

    enter_op, exit_op = enter_scope, exit_scope

    def enter_state(self, name: str) -> None: ...
    def exit_state(self) -> None: ...

    def add_metrics(self, number: int, metrics: dict[str, Any], tensors: dict[str, Any] | None = None) -> None:
        values = {name: tensor._value.sum().item() for name, tensor in (tensors or {}).items()}
        for node in _nodes(_scopes()):
            node.add({**metrics, **values})

    def set_metric_kernels(self, *kernels: Any) -> None: ...

    def get_context_depth(self, session: int) -> int:
        return len(_scopes())

    def get_data(self, session: int, phase: int = 0) -> str:
        return json.dumps([_sessions[session].root.as_json()])
