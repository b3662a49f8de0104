"""Which implementation a call takes: the Triton kernel, or the PyTorch reference.

`COURSE_KERNELS_BACKEND`, `set_backend` and `use_backend` choose among

- `auto`    the Triton kernel where one can run (GPU tensors; CPU tensors while Triton interprets), else the reference
- `triton`  always the Triton kernel; an error where none can run
- `torch`   always the reference
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

try:
    import triton
except ImportError:  # no wheel for this platform, or not installed: everything runs on the reference
    triton = dual_mode = None
else:
    from course_kernels import launch
    from gfxlab.engine import dual_mode, target

    def _simulated_gpu() -> launch.Gpu | None:
        simulated = target.simulated()
        return launch.Gpu(simulated.arch, simulated.compute_units) if simulated else None

    launch.simulated_gpu = _simulated_gpu

CHOICES = ("auto", "triton", "torch")
VARIABLE = "COURSE_KERNELS_BACKEND"


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
        return "triton" if triton and (torch.cuda.is_available() or dual_mode.is_interpreting()) else "torch"
    return _choice


def uses_triton(x: torch.Tensor) -> bool:
    """True when a call with this tensor is to run the Triton kernel, False when it is to run the reference.

    Raises:
        RuntimeError: the choice is "triton" and no kernel can run on this tensor.
    """
    if _choice == "torch":
        return False
    runs = triton is not None and (x.is_cuda or (x.device.type == "cpu" and dual_mode.is_interpreting()))
    if _choice == "triton" and not runs:
        reason = f"Triton runs on a GPU or interpreted, and x is on {x.device}" if triton else "triton is not installed"
        raise RuntimeError(f'the backend is "triton" but {reason}; use set_backend("auto") for the PyTorch reference')
    return runs


def info() -> dict[str, str | bool | None]:
    """What the kernels run on: chosen and current backend, versions, GPU, interpreter."""
    return {
        "backend": current_backend(),
        "choice": _choice,
        "torch": torch.__version__,
        "triton": triton.__version__ if triton else None,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "interpreting": bool(triton) and dual_mode.is_interpreting(),
    }
