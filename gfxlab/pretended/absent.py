"""What a pretended GPU has no part for: asked for, it says so in one sentence."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from typing import Any

import torch

from gfxlab.pretended.attaching import CannotPretend

_OF_CUDA = ("_cuda", "_cudnn", "_nccl", "_hip", "_rocm", "_broadcast", "_scatter", "_gather", "_nvrtc")
_EXTENSIONS = "torch.utils.cpp_extension"
_BUILDERS = ("load", "load_inline", "CUDAExtension", "SyclExtension")


class NoPart(CannotPretend, AttributeError):
    """Whoever asks first (`hasattr`, `getattr` with a default) gets no for an answer."""


def refusals() -> dict[str, Any]:
    """Every function of torch.cuda, refusing; modules and classes of data stay."""
    found = {}
    for name in torch.cuda.__all__:
        value = getattr(torch.cuda, name, None)
        refusal = refusing(f"torch.cuda.{name}")
        if inspect.isfunction(value) and not name.startswith(("amp", "check_error")):
            found[name] = refusal
        elif name in ("CUDAGraph", "graph", "MemPool", "CUDAPluggableAllocator"):
            found[name] = type(name, (), {"__init__": refusal})  # a class still: annotations name it
    return found


def refusing(what: str) -> Any:
    """A function that raises CannotPretend, whatever it is given."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise CannotPretend(f"{what} needs a real GPU: a pretended one has no such part")

    return refuse


def of_library(name: str) -> Any:
    """For torch._C, which the CPU's build made without these names."""
    if name.startswith(_OF_CUDA):
        raise NoPart(f"torch._C.{name} needs a real GPU: a pretended one has no such part")
    raise AttributeError(f"module 'torch._C' has no attribute {name!r}")


class Extensions(types.ModuleType):
    """torch.utils.cpp_extension that builds nothing for a GPU; the real one is imported when it is asked for a name."""

    name = _EXTENSIONS

    def __init__(self) -> None:
        super().__init__(self.name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__",):
            raise AttributeError(name)
        value = getattr(_real_extensions(), name)
        return _host_only(name, value) if name in _BUILDERS else value


def _real_extensions() -> types.ModuleType:
    ours = sys.modules.pop(_EXTENSIONS)
    try:
        return importlib.import_module(_EXTENSIONS)
    finally:
        sys.modules[_EXTENSIONS] = torch.utils.cpp_extension = ours


def _host_only(name: str, build: Any) -> Any:
    def built(*args: Any, **kwargs: Any) -> Any:
        sources = kwargs.get("sources") or (args[1] if len(args) > 1 else ())
        for_gpu = name == "CUDAExtension" or kwargs.get("cuda_sources") or kwargs.get("with_cuda")
        if for_gpu or any(str(source).endswith((".cu", ".hip")) for source in [*sources]):
            raise CannotPretend(
                f"torch.utils.cpp_extension.{name} builds a HIP extension, which needs hipcc and a real GPU; "
                "only Triton's kernels run on a pretended one"
            )
        return build(*args, **kwargs)

    return built
