"""Which implementation a call takes: the Triton kernel, or the PyTorch reference.

`COURSE_KERNELS_BACKEND`, `set_backend` and `use_backend` choose among

- `auto`    the Triton kernel where one can run (GPU tensors; CPU tensors while Triton interprets), else the reference
- `triton`  always the Triton kernel; an error where none can run
- `torch`   always the reference
"""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from course_kernels import launch

try:
    import triton
except ImportError:  # no wheel for this platform, or not installed: everything runs on the reference
    triton = None

try:
    from gfxlab.engine import dual_mode, target
except ImportError as error:  # on a GPU nothing of it is missed
    dual_mode = None
    _missing = "gfxlab is not installed" if "gfxlab" in str(error.name) else f"gfxlab cannot be imported ({error})"
else:
    _missing = ""

    def _simulated_gpu() -> launch.Gpu | None:
        simulated = target.simulated()
        return launch.Gpu(simulated.arch, simulated.compute_units) if simulated else None

    launch.connect_simulator(_simulated_gpu)
    if dual_mode.env_interpret():  # a user's own TRITON_INTERPRET=1: repaired and guarded, whoever launches
        dual_mode.enable()

CHOICES = ("auto", "triton", "torch")
VARIABLE = "COURSE_KERNELS_BACKEND"
_INSTALL = "install gfxlab (`pip install -e ./gfxlab`)"


def _validated(name: str, source: str) -> str:
    if name not in CHOICES:
        raise ValueError(f"{source} must be one of {', '.join(CHOICES)}; got {name!r}")
    return name


_choice = _validated(os.environ.get(VARIABLE) or "auto", VARIABLE)


def set_backend(name: str) -> None:
    """Choose the implementation for all calls from now on.

    Raises:
        ValueError: `name` is not "auto", "triton" or "torch".
    """
    global _choice
    _choice = _validated(name, "the backend")


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Choose the implementation for the calls inside a `with` block.

    Raises:
        ValueError: `name` is not "auto", "triton" or "torch".
    """
    before = _choice
    set_backend(name)
    try:
        yield
    finally:
        set_backend(before)


def current_backend() -> str:
    """ "triton" or "torch": what a call takes now, with its tensors on the GPU if there is one."""
    if _choice == "auto":
        return "triton" if triton and (torch.cuda.is_available() or _interpreting()) else "torch"
    return _choice


def uses_triton(x: torch.Tensor) -> bool:
    """True when a call with this tensor is to run the Triton kernel, False when it is to run the reference.

    Raises:
        RuntimeError: the choice is "triton" and no kernel can run on this tensor.
    """
    if _choice == "torch":
        return False
    if x.is_cuda and triton:
        return True
    if x.device.type == "cpu" and _interpreting():
        return True
    if _choice == "triton":
        raise RuntimeError(
            f'the backend is "triton" but {_why_not(x)}; use set_backend("auto") for the PyTorch reference'
        )
    if triton and not dual_mode and not torch.compiler.is_compiling():
        _warn_once()
    return False


def _interpreting() -> bool:
    return dual_mode is not None and dual_mode.is_interpreting()


def _why_not(x: torch.Tensor) -> str:
    if not triton:
        return "triton is not installed"
    if not dual_mode and x.device.type == "cpu":
        return f"x is on cpu and {_missing}, which interprets kernels there: {_INSTALL} or move x to a GPU"
    return f"Triton runs on a GPU or interpreted, and x is on {x.device}"


@cache
def _warn_once() -> None:
    warnings.warn(
        f"tensors on the CPU take course_kernels' PyTorch reference, not its Triton kernels: {_missing}. "
        f"To run the kernels here, {_INSTALL}; on a GPU they run without it.",
        stacklevel=_frames_inside(),
    )


def _frames_inside() -> int:
    """How far up the stack the package was called, seen from the function that asks."""
    package, frame, count = __name__.rpartition(".")[0], sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(package):
        frame, count = frame.f_back, count + 1
    return count


def info() -> dict[str, str | bool | None]:
    """What the kernels run on: chosen and current backend, versions, GPU, interpreter."""
    return {
        "backend": current_backend(),
        "choice": _choice,
        "torch": torch.__version__,
        "triton": triton.__version__ if triton else None,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "interpreting": _interpreting(),
    }
