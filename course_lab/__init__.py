"""The instruments of the course. The first cell of every notebook imports this package.

Importing it makes kernels launch on CPU tensors, and gives a notebook its magics (`%%exercise`, `%hint`, `%solution`).

    from course_lab import amd_report, guard, my_kernel, progress, trace     # functions
    from course_lab import bench, draw, engines, model                       # modules
"""

import importlib
import sys
from types import ModuleType
from typing import Any

# Functions by the module that holds them: imported when a lesson asks for them.
_FUNCTIONS = {
    "amd_report": "course_lab.amd",
    "guard": "course_kernels._triton.hooks",
    "my_kernel": "course_lab.check.magics",
    "progress": "course_lab.progress",
    "trace": "course_lab.trace",
}


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        """Whoever imports the module `course_lab.trace` puts it here under its name, which is its function's too."""
        function = name in _FUNCTIONS and isinstance(value, ModuleType)
        super().__setattr__(name, getattr(value, name) if function else value)


sys.modules[__name__].__class__ = _Package


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
    from course_kernels._triton import dual_mode

    dual_mode.enable()
    _register_magics()
