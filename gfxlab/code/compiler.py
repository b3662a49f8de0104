"""Compile a kernel for an AMD GPU that need not be there, in a worker process, and remember the answer."""

from __future__ import annotations

import contextlib
import hashlib
import json
import linecache
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton

from gfxlab import hardware, sandbox
from gfxlab.bound import Specialisation
from gfxlab.code import ship
from gfxlab.code.errors import AmdError, AmdLimitError, compile_error
from gfxlab.latest import Latest

_SECONDS = 120.0  # a large unrolled kernel takes LLVM a while
_answers: Latest[dict[str, Any]] = Latest()


@dataclass(frozen=True)
class Compiled:
    """What the compiler made: assembly text, bytes of LDS, waves a workgroup."""

    name: str
    arch: str
    asm: str
    lds: int
    num_warps: int
    num_stages: int
    sources: dict[str, dict[int, str]]  # filename -> line number -> text, for the functions of the kernel
    global_scratch: int = 0  # bytes of global memory that each program is lent


def compile(kernel: Any, spec: Specialisation, arch: str, **options: Any) -> Compiled:
    """Compile `kernel` for `arch` as a launch with this specialisation would.

    Raises:
        ValueError: `arch` is unknown.
        AmdLimitError: num_warps is no power of two, or the workgroup is larger than the hardware's.
        AmdError: the compiler refuses the kernel (with the line), or the worker died.
    """
    packed = ship.pack(kernel, _constants(spec))
    name = packed["functions"][0]["name"]
    check_workgroup(name, arch, options.get("num_warps", 4))
    payload = {"kernel": packed, "arch": arch, "options": {**spec.options, **options}, **_as_json(spec)}
    answer = _remembered(name, payload)
    return Compiled(
        name=name,
        arch=arch,
        asm=answer["asm"],
        lds=answer["shared"],
        num_warps=answer["num_warps"],
        num_stages=answer["num_stages"],
        sources=_sources(packed),
        global_scratch=answer["global_scratch"],
    )


def _constants(spec: Specialisation) -> list[tuple[str, Any]]:
    """The parameter of each constant, and its value."""
    names = list(spec.signature)
    return [(names[path[0]], value) for path, value in spec.constexprs.items()]


def _as_json(spec: Specialisation) -> dict[str, Any]:
    return {
        "signature": {name: _type_as_json(kind) for name, kind in spec.signature.items()},
        "constexprs": [list(path) for path in spec.constexprs],
        "attrs": [[list(path), value] for path, value in spec.attrs.items()],
    }


def _type_as_json(kind: Any) -> Any:
    """A type; of a tuple the names of its parts, if it has some, and their types."""
    if not isinstance(kind, tuple):
        return kind
    return {"names": getattr(kind, "_fields", None), "types": [_type_as_json(one) for one in kind]}


def check_workgroup(name: str, arch: str, num_warps: Any) -> None:
    """Refuse what only the launch would refuse, with a message that says nothing ("invalid argument").

    Raises:
        ValueError: `arch` is unknown.
        AmdLimitError: num_warps is no power of two, or the workgroup is larger than the hardware's.
    """
    limits = hardware.limits(arch)
    if not isinstance(num_warps, int) or num_warps < 1 or num_warps & (num_warps - 1):
        raise AmdLimitError(f"{name}: num_warps must be a power of two, got {num_warps}")
    threads = num_warps * limits.wave_size
    if threads > hardware.MAX_THREADS:
        most = hardware.MAX_THREADS // limits.wave_size
        raise AmdLimitError(
            f"{name}: num_warps={num_warps} makes workgroups of {num_warps} x {limits.wave_size} = {threads} threads; "
            f"{limits.arch} takes at most {hardware.MAX_THREADS}, so num_warps <= {most}"
        )


def check_lds(compiled: Compiled) -> None:
    """Refuse what only the launch would refuse.

    Raises:
        AmdLimitError: it needs more LDS than a workgroup may have.
    """
    limits = hardware.limits(compiled.arch)
    if compiled.lds > limits.lds_per_workgroup:
        raise AmdLimitError(
            f"{compiled.name}: a workgroup needs {compiled.lds:,} bytes of LDS; {compiled.arch} has "
            f"{limits.lds_per_workgroup:,}. Take smaller blocks or fewer num_stages (now {compiled.num_stages})."
        )


def _remembered(name: str, payload: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps([triton.__version__, payload], sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()
    answer = _answers.get(key, lambda: _run(name, payload))
    if "error" in answer:
        raise compile_error(name, answer["error"])
    return answer


def _run(name: str, payload: dict[str, Any]) -> dict[str, Any]:
    if multiprocessing.current_process().daemon:  # this is a sandbox child already, which may have no children
        from gfxlab.code.job import compile_job

        with _sources_as_they_were():
            return _about_the_kernel(name, payload, compile_job(payload))
    outcome = sandbox.run("gfxlab.code.job:compile_job", payload, time_limit=_SECONDS, memory_limit=8 << 30)
    if outcome.status == "ok":
        return _about_the_kernel(name, payload, outcome.value)
    said = [line for line in outcome.output.splitlines() if "error" in line.lower()]
    reason = said[-1].strip() if said else (outcome.error.message if outcome.error else outcome.status)
    raise AmdError(f"the compiler gave up on {name} for {payload['arch']}: {reason}")


@contextlib.contextmanager
def _sources_as_they_were() -> Iterator[None]:
    """Inside the block a compiler may say what stands in which file; this process runs those files' kernels too."""
    known = dict(linecache.cache)
    try:
        yield
    finally:
        linecache.cache.clear()
        linecache.cache.update(known)


def _about_the_kernel(name: str, payload: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, unless what failed is a file of the compiler's: then nothing is known, and the next call tries again.

    Raises:
        AmdError: that.
    """
    if answer.get("error", {}).get("of_a_file"):
        raise AmdError(f"the compiler gave up on {name} for {payload['arch']}: {answer['error']['message']}")
    return answer


def _sources(packed: dict[str, Any]) -> dict[str, dict[int, str]]:
    sources: dict[str, dict[int, str]] = {}
    for function in packed["functions"]:
        lines = sources.setdefault(function["filename"], {})
        lines.update({function["start"] + i: text.rstrip("\n") for i, text in enumerate(function["lines"])})
    return sources
