"""What a GPU is given when a kernel is launched: constants gone, tuples and tensor descriptors taken apart.

The order and the types are those of Triton's own launcher; behind them the compiled kernel expects pointers to scratch
memory, which stay null unless it asks for some.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton.backends import driver

from gfxlab.bound import Launch, Specialisation, Value


def values(launch: Launch, spec: Specialisation) -> list[Value]:
    """The run-time values of a launch, in the order of the kernel's argument segment."""
    return of(spec.signature, launch.args)


def of(signature: dict[str, Any], args: dict[str, Any]) -> list[Value]:
    """The same from a signature by parameter and the arguments by parameter."""
    return [value for name, kind in signature.items() for value in _parts(name, kind, args[name])]


def _parts(name: str, kind: Any, content: Any) -> Iterator[Value]:
    if kind == "constexpr":
        return
    if isinstance(kind, tuple):
        for i, (one, item) in enumerate(zip(kind, content, strict=True)):
            yield from _parts(f"{name}[{i}]", one, item)
    elif kind.startswith("tensordesc"):
        yield from _descriptor(name, kind, content)
    else:
        yield Value(name, kind, getattr(content, "base", content) if kind[0] == "*" and _wraps(content) else content)


def _wraps(content: Any) -> bool:
    """Whether it is a tensor under another type (triton.reinterpret), not a tensor, whose `_base` is another matter."""
    return type(content).__name__ == "TensorWrapper"


def _descriptor(name: str, kind: str, descriptor: Any) -> Iterator[Value]:
    """Base, shape, strides and flags, then shape and strides once more."""
    if not hasattr(driver, "expand_signature"):
        raise NotImplementedError(
            f"{name} is a tensor descriptor; as an argument the simulator takes it from Triton 3.9 on"
        )
    kinds = driver.expand_signature([kind], None, "tensordesc")
    for one, content in zip(kinds, driver.decompose_descriptor(descriptor), strict=True):
        yield from _parts(name, one, content)
