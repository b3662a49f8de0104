"""Try the parts that can crash, one by one; each prints one line of JSON.

The doctor runs this file in a process apart: a torch or Triton of the wrong build may abort the interpreter on
import, and what was printed until then still counts.
"""

from __future__ import annotations

import json
import warnings
from typing import Any


def torch() -> dict[str, str]:
    import torch

    build = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
    return {"version": torch.__version__, "build": build}


def triton() -> dict[str, str]:
    import triton
    import triton.language  # the compiled half

    return {"version": triton.__version__}


def gpu() -> dict[str, Any] | None:
    """The GPU that PyTorch sees, in the fields of engines.Gpu; None without one."""
    from gfxlab import engines

    found = engines.gpu()
    return vars(found) if found else None


def kernel() -> dict[str, Any]:
    """Run a kernel of the course where the lessons run it, and compile it for MI300X."""
    import torch

    from course_kernels import use_backend, vector_add
    from course_kernels.vector_add import vector_add_kernel
    from gfxlab import enable, engines
    from gfxlab.engine import dual_mode

    enable()
    x = torch.arange(1000.0, device=engines.device())
    with use_backend("triton"):
        right = torch.equal(vector_add(x, x), 2 * x)
    if not right:
        raise RuntimeError("vector_add gave a wrong sum")
    if not dual_mode.env_interpret():  # else the course compiles in another process
        arguments = (x, x, x, x.numel(), 1024)
        dual_mode.compile(vector_add_kernel, dual_mode.specialise(vector_add_kernel, arguments), "gfx942")
    return {"device": engines.device()}


def simulator() -> str:
    """Why the simulator has no compiled part; empty where it has one."""
    from gfxlab.simulator.compiled.extension import MISSING

    return MISSING


def weights() -> str | None:
    """Where the model's weights are; None when they are not installed."""
    from course_lab.model import weights_path

    path = weights_path()
    return str(path) if path else None


def main() -> None:
    warnings.simplefilter("ignore")
    for part in (torch, triton, gpu, kernel, simulator, weights):
        try:
            found = {"value": part()}
        except Exception as error:  # a broken installation raises anything
            found = {"error": f"{type(error).__name__}: {str(error).strip()}"}
        print(json.dumps({"part": part.__name__, **found}), flush=True)


if __name__ == "__main__":
    main()
