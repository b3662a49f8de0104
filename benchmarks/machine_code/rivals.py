"""Where others' kernels are: an installed package, or a folder that was named; nothing of theirs is copied.

A rival that is not there, or cannot be loaded, is left out and named with the reason.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import torch

PLAIN, TUTORIAL, LIGER, FLAG_GEMS, AITER, VLLM = (
    "plain",
    "Triton's tutorial",
    "Liger-Kernel",
    "FlagGems",
    "aiter",
    "vLLM",
)
FOLDERS = {"triton": "python/tutorials", "liger": "src", "flag_gems": "src", "aiter": "", "vllm": ""}  # inside a clone


def open_paths(paths: dict[str, str]) -> None:
    """Let modules be found in the clones that were named.

    Raises:
        ValueError: an unknown name, or no such folder.
    """
    for name, path in paths.items():
        if name not in FOLDERS:
            raise ValueError(f"--path {name}=...: known are {', '.join(FOLDERS)}")
        folder = Path(path) / FOLDERS[name]
        if not folder.is_dir():
            raise ValueError(f"--path {name}={path}: there is no folder {folder}")
        if name == "triton":
            _tutorials.append(folder)
        elif name == "aiter":
            _bare_package("aiter", folder / "aiter")
        else:
            sys.path.insert(0, str(folder))
    os.environ.setdefault("GEMS_VENDOR", "amd")  # FlagGems would look for the vendor's tools


def forget() -> None:
    """Let the packages be imported again: some keep the GPU that they found when they were imported."""
    for name in list(sys.modules):
        package, _, inner = name.partition(".")
        if package in ("liger_kernel", "flag_gems", "vllm") or (package == "aiter" and inner):
            del sys.modules[name]


_tutorials: list[Path] = []


def _bare_package(name: str, folder: Path) -> None:
    """A package whose modules can be imported, without running its `__init__`, which builds HIP kernels."""
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package


def tutorial(name: str) -> ModuleType:
    """What a tutorial of Triton's defines, without what it runs: it times itself when it is imported.

    Raises:
        ImportError: no clone of Triton was named.
    """
    if not _tutorials:
        raise ImportError("give --path triton=CLONE")
    path = _tutorials[0] / name
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    linecache.checkcache(str(path))
    for node in _definitions(ast.parse(path.read_text(encoding="utf-8")).body):
        try:
            exec(compile(ast.Module([node], []), str(path), "exec"), module.__dict__)
        except Exception:  # of what it needs and we have not, only what uses it is missing
            continue
    return module


def _definitions(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a tutorial, but for its inputs, whatever is computed from them, its benchmark and its tests."""
    inputs = {"__name__"}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if not any(word in ast.unparse(d) for d in node.decorator_list for word in ("perf_report", "pytest")):
                yield node
        elif isinstance(node, ast.Assign) and _draws(node, inputs):
            inputs |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        elif isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign, ast.If)) and not _draws(node, inputs):
            yield node


def _draws(node: ast.stmt, inputs: set[str]) -> bool:
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return bool(names & inputs) or "torch.rand" in ast.unparse(node)


def loaded(load: Callable[[], Callable]) -> Callable | str:
    """The rival's function, or why it is not there."""
    try:
        return load()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else ''}"


def _liger(module: str, name: str) -> Callable:
    return getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name).apply


def _flag_gems(module: str, name: str) -> Callable:
    return getattr(importlib.import_module(f"flag_gems.ops.{module}"), name)


def _aiter(module: str, name: str) -> Callable:
    return getattr(importlib.import_module(f"aiter.ops.triton.{module}"), name)


def _tutorial_softmax() -> Callable:
    module = tutorial("02-fused-softmax.py")
    return module.softmax


def _tutorial_layer_norm() -> Callable:
    apply = tutorial("05-layer-norm.py").layer_norm
    return lambda x, weight, bias: apply(x, (x.shape[1],), weight, bias, 1e-5)


def _tutorial_attention() -> Callable:
    apply = tutorial("06-fused-attention.py").attention
    return lambda q, k, v: apply(q, k, v, False, q.shape[-1] ** -0.5, False)


def _liger_silu() -> Callable:
    apply = _liger("swiglu", "LigerSiLUMulFunction")
    return lambda x: apply(*(half.contiguous() for half in x.chunk(2, dim=1)))


def _liger_rms_norm() -> Callable:
    apply = _liger("rms_norm", "LigerRMSNormFunction")
    return lambda x, weight: apply(x, weight, 1e-6, 0.0, "llama", False)


def _liger_layer_norm() -> Callable:
    apply = _liger("layer_norm", "LigerLayerNormFunction")
    return lambda x, weight, bias: apply(x, weight, bias, 1e-5)


def _liger_rope() -> Callable:
    """It turns queries and keys together, in place: here all heads are queries but one."""
    forward = importlib.import_module("liger_kernel.ops.rope").rope_forward

    def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        q, k = x[:, :, :-1].transpose(1, 2), x[:, :, -1:].transpose(1, 2)
        wide = (torch.cat([table, table], dim=-1)[None].to(x.dtype) for table in (cos, sin))
        q, k, *_ = forward(q, k, *wide)
        return torch.cat([q, k], dim=1).transpose(1, 2)

    return turn


def _aiter_softmax() -> Callable:
    return _aiter("softmax", "softmax")


def _aiter_rms_norm() -> Callable:
    function = _aiter("normalization.rmsnorm", "rms_norm")
    return lambda x, weight: function(x, weight, 1e-6)


def _aiter_layer_norm() -> Callable:
    function = _aiter("normalization.norm", "layer_norm")
    return lambda x, weight, bias: function(x, weight, bias, 1e-5)


def _gems_norm(module: str, name: str, eps: float) -> Callable:
    function = _flag_gems(module, name)

    def norm(x: torch.Tensor, *vectors: torch.Tensor) -> torch.Tensor:
        result = function(x, (x.shape[1],), *vectors, eps)
        return result[0] if isinstance(result, tuple) else result

    return norm


def _gems_softmax() -> Callable:
    function = _flag_gems("softmax", "softmax")
    return lambda x: function(x, -1)


def _vllm(*_: str) -> Callable:
    importlib.import_module("vllm")
    raise ImportError("this package has no Triton kernel of the family")


RIVALS: dict[str, dict[str, Callable[[], Callable]]] = {
    "vector_add": {TUTORIAL: lambda: tutorial("01-vector-add.py").add, FLAG_GEMS: lambda: _flag_gems("add", "add")},
    "rms_norm": {
        LIGER: _liger_rms_norm,
        FLAG_GEMS: lambda: _gems_norm("rms_norm", "rms_norm", 1e-6),
        AITER: _aiter_rms_norm,
        VLLM: _vllm,
    },
    "layer_norm": {
        TUTORIAL: _tutorial_layer_norm,
        LIGER: _liger_layer_norm,
        FLAG_GEMS: lambda: _gems_norm("layernorm", "layer_norm", 1e-5),
        AITER: _aiter_layer_norm,
    },
    "softmax": {
        TUTORIAL: _tutorial_softmax,
        LIGER: lambda: _liger("softmax", "LigerSoftmaxFunction"),
        FLAG_GEMS: _gems_softmax,
        AITER: _aiter_softmax,
    },
    "silu_and_mul": {LIGER: _liger_silu, VLLM: _vllm},
    "rope": {LIGER: _liger_rope},
    "matmul": {TUTORIAL: lambda: tutorial("03-matrix-multiplication.py").matmul},
    "attention": {TUTORIAL: _tutorial_attention, VLLM: _vllm},
}
