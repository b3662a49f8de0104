"""The compile job: JSON in, JSON out, so that it can run in a child process.

A child is needed for two reasons: an LLVM error ends the process it happens in, and a process started with
TRITON_INTERPRET=1 cannot compile at all.
"""

from __future__ import annotations

from typing import Any

import triton

from gfxlab.bound import Specialisation
from gfxlab.code import ship
from gfxlab.engine import dual_mode

# Triton's cache on disk forgets which file a kernel came from; a listing would name the lines of an earlier notebook.
triton.knobs.compilation.always_compile = True

dual_mode.warm_up()  # on import, so that the fork server does it once and not each of its children


def compile_job(payload: dict[str, Any]) -> dict[str, Any]:
    """Compile a packed kernel.

    Args:
        payload: "kernel" (see `ship.pack`), "arch", "options", and the launch's specialisation: "signature"
            (name -> type), "constexprs" (paths, whose values travel with the kernel) and "attrs" ([path, value]).

    Returns:
        {"asm": text, "shared": bytes of LDS, "global_scratch": bytes a program, "num_warps": ..., "num_stages": ...},
        or, when the compiler refuses, {"error": {"type", "message", "of_a_file", "filename", "line",
        "source_line"}}; of_a_file: the compiler could not read or write one.
    """
    functions: list[Any] = []
    try:
        unpacked, constants = ship.unpack(payload["kernel"])
        functions += unpacked
        specialisation = _specialisation(payload, constants)
        compiled = dual_mode.compile(functions[0], specialisation, payload["arch"], **payload["options"])
    except Exception as error:
        return {"error": _describe(error, functions)}
    metadata = compiled.metadata
    return {
        "asm": compiled.asm["amdgcn"],
        "shared": metadata.shared,
        "global_scratch": getattr(metadata, "global_scratch_size", 0) or 0,
        "num_warps": metadata.num_warps,
        "num_stages": metadata.num_stages,
    }


def _specialisation(payload: dict[str, Any], constants: list[Any]) -> Specialisation:
    return Specialisation(
        signature={name: _kind(kind) for name, kind in payload["signature"].items()},
        constexprs={tuple(path): value for path, value in zip(payload["constexprs"], constants, strict=True)},
        attrs={tuple(path): value for path, value in payload["attrs"]},
        options={},
    )


def _kind(kind: str | dict) -> str | tuple:
    """A type; that of a tuple is a tuple, named if the argument was."""
    if isinstance(kind, str):
        return kind
    types = tuple(map(_kind, kind["types"]))
    return ship.named(kind["names"])(*types) if kind["names"] else types


def _describe(error: BaseException, functions: list[Any]) -> dict[str, Any]:
    """The innermost reason, and the innermost line of the author's own code."""
    where: dict[str, Any] = {"filename": None, "line": None, "source_line": ""}
    message = str(error)
    cause: BaseException | None = error
    while cause is not None:
        message = str(getattr(cause, "error_message", None) or cause)
        where = _place(cause, functions) or where
        last, cause = cause, cause.__cause__
    return {"type": type(last).__name__, "message": message, "of_a_file": isinstance(last, OSError), **where}


def _place(error: BaseException, functions: list[Any]) -> dict[str, Any] | None:
    """Where in the author's code Triton's CompilationError happened: its lines count from `def`."""
    text, node = getattr(error, "src", None), getattr(error, "node", None)
    for function in functions:
        if text is None or node is None or getattr(function, "src", None) != text:
            continue
        lines, start = function.raw_src, function.starting_line_number
        first = start + next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
        at = first + node.lineno - 1
        filename = function.fn.__code__.co_filename
        return {"filename": filename, "line": at, "source_line": lines[at - start]}
    return None
