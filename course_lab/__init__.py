"""The instruments of the course. The first cell of every notebook imports this package.

Importing it makes kernels launch on CPU tensors, and gives a notebook its magics (`%%exercise`, `%hint`, `%solution`).

    from course_lab import amd_report, guard, my_kernel, progress, trace     # functions
    from course_lab import bench, draw, engines, model                       # modules
"""

import importlib
import sys

# Functions by the module that holds them: imported when a lesson asks for them.
_FUNCTIONS = {
    "amd_report": "course_lab.amd",
    "guard": "course_kernels._triton.hooks",
    "my_kernel": "course_lab.check.magics",
    "progress": "course_lab.progress",
    "trace": "course_lab.trace",
}


def __getattr__(name: str):
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'course_lab' has no attribute {name!r}")
    return _bind(name)


def _bind(name: str):
    """Import a function into this package, over the module of the same name that the import puts there."""
    function = globals()[name] = getattr(importlib.import_module(_FUNCTIONS[name]), name)
    return function


def _register_magics() -> None:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        from course_lab.check import magics

        magics.register(shell)


try:
    import torch  # noqa: F401
    import triton  # noqa: F401
except Exception as error:  # missing or broken: `course doctor` must still run
    import warnings

    warnings.warn(f"No kernel can run here: {error}. `python -m course_lab doctor` says what to do.", stacklevel=2)
else:
    from course_kernels._triton import dual_mode

    dual_mode.enable()
    _bind("progress")  # now: other modules of this package import the module `progress`, which would take its name
    _register_magics()
