"""A kernel's launch, and whoever watches launches."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd.graph import increment_version


class Watcher(Protocol):
    """Who launches instead, and may look at what is launched."""

    def launch(self, kernel: Any, grid: tuple[int, ...], args: tuple, meta: dict[str, Any]) -> None:
        """Do `kernel[grid](*args, **meta)`."""

    def wrote(self, tensor: torch.Tensor) -> None:
        """A launch has written this tensor, which the caller gave."""


class _Watching(threading.local):
    """Who watches a thread's launches: each has its own."""

    now: Watcher | None = None  # of the class, because an attribute that is missing takes as long as ten that are there


_watching = _Watching()


def run(kernel: Any, grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
    """`kernel[grid](*args, **meta)`, on the GPU that holds the first of the tensors.

    Raises:
        RuntimeError: a tensor stands for many, inside `torch.vmap` or another transformation of `torch.func`.
    """
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    not_transformed(kernel.fn.__name__, tensors)
    with torch.cuda.device_of(tensors[0]):
        if (watching := watcher()) is not None:
            watching.launch(kernel, grid, args, meta)
        else:
            kernel[grid](*args, **meta)


def not_transformed(name: str, tensors: list[torch.Tensor]) -> None:
    """No tensor stands for many, or carries what a transformation of functions keeps.

    Raises:
        RuntimeError: one does.
    """
    if any(map(is_functorch_wrapped_tensor, tensors)):
        raise RuntimeError(
            f"{name} cannot be launched inside torch.vmap or another transformation of torch.func; "
            'call it outside, or take the reference with use_backend("torch")'
        )


def wrote(*tensors: torch.Tensor | None) -> None:
    """A launch has written these: PyTorch counts it, and refuses gradients that need what stood there before."""
    for tensor in tensors:
        if tensor is None:
            continue
        increment_version(tensor)
        if (watching := watcher()) is not None:
            watching.wrote(tensor)


def watcher() -> Watcher | None:
    """Who watches the launches of this thread."""
    return _watching.now


@contextmanager
def watched_by(watching: Watcher) -> Iterator[None]:
    """Tell of every launch of this thread inside the block."""
    before, _watching.now = watcher(), watching
    try:
        yield
    finally:
        _watching.now = before
