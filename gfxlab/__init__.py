"""What a Triton kernel does on AMD GPUs, found out on any machine.

    from gfxlab import amd_report, compare, enable, guard, pretend, regressions, simulate, step, trace, using
    from gfxlab import draw, engines, hardware

Importing it changes nothing and loads neither torch nor triton: a name is imported when it is first asked for. In a
script, `gfxlab.enable()` lets kernels be launched on CPU tensors, beside the AMD compiler in the same process. In a
notebook `%load_ext gfxlab` does this too, and registers `%%amd`.
"""

import importlib

_HOMES = {
    "amd_report": "gfxlab.code",
    "compare": "gfxlab.code",
    "enable": "gfxlab.engine.dual_mode",
    "guard": "gfxlab.engine.hooks",
    "pretend": "gfxlab.pretended",
    "regressions": "gfxlab.code",
    "simulate": "gfxlab.simulator",
    "step": "gfxlab.simulator",
    "trace": "gfxlab.tracing",
    "using": "gfxlab.simulator",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'gfxlab' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as missing:
        if missing.name not in ("torch", "triton"):
            raise
        raise ModuleNotFoundError(
            f"gfxlab.{name} needs {missing.name}, which is not installed: `pip install torch triton`, or for an AMD "
            "GPU PyTorch's ROCm build, which brings its own Triton",
            name=missing.name,
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


def load_ipython_extension(shell) -> None:
    """What `%load_ext gfxlab` runs: launches on CPU tensors, and the magic `%%amd`."""
    __getattr__("enable")()

    def amd(line: str, cell: str) -> None:
        from gfxlab.code.magic import amd_cell  # not before it is used: it imports the compiler

        amd_cell(shell, line, cell)

    shell.register_magic_function(amd, "cell", "amd")
