"""The classroom of the course. The first cell of every notebook imports this package.

Importing it makes kernels launch on CPU tensors, and gives a notebook its magics (`%%exercise`, `%hint`, `%solution`).

    from course_lab import my_kernel, progress     # functions
    from course_lab import bench, model            # modules
"""

import importlib
import sys

# Functions by the module that holds them: imported when a lesson asks for them.
_FUNCTIONS = {
    "my_kernel": "course_lab.check.magics",
    "progress": "course_lab.record",
}


def __getattr__(name: str):
    if name not in _FUNCTIONS:
        raise AttributeError(f"module 'course_lab' has no attribute {name!r}")
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
    import gfxlab

    gfxlab.enable()
    _register_magics()
