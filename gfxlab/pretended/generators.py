"""Random numbers of the device: a stream of their own, drawn by the CPU's generator.

A seed gives the same numbers in every run, but not a card's: there they come from Philox.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from gfxlab.pretended.attaching import index

_stock = torch.Generator


_made: set[int] = set()  # PyTorch hands a generator on as an object of its own class; its address stays


class _Kind(type(_stock)):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _stock)


class Generator(_stock, metaclass=_Kind):
    """torch.Generator, which takes device="cuda" as well."""

    def __new__(cls, device: Any = "cpu"):
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if device.type != "cuda":
            return _stock(device)
        made = super().__new__(cls)
        made._device = torch.device("cuda", index(device))
        _made.add(made._cdata)
        return made

    def __init__(self, device: Any = "cpu"): ...

    @property
    def device(self) -> torch.device:
        return self._device


default = Generator("cuda")


@contextlib.contextmanager
def drawing(op: Any, kwargs: dict[str, Any]) -> Iterator[None]:
    """Inside the block the CPU's generator draws the device's numbers, where the operation names no generator.

    Raises:
        RuntimeError: the generator is the CPU's; a card says the same.
    """
    given = kwargs.get("generator")
    if given is not None and given._cdata not in _made:
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    if given is not None or torch.Tag.nondeterministic_seeded not in op.tags:
        yield
        return
    before = torch.get_rng_state()
    torch.default_generator.set_state(default.get_state())
    try:
        yield
    finally:
        default.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(before)
