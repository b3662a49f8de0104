"""The classroom of the course. The first cell of every notebook imports this package.

    from course_lab import my_kernel, progress     # functions
    from course_lab import bench, model            # modules

Under IPython, importing it makes kernels launch on CPU tensors and registers the magics (`%%exercise`, `%hint`,
`%solution`, `%%amd`). Anywhere else it loads neither torch nor triton and switches nothing on: a script that launches
kernels on CPU tensors says `gfxlab.enable()`.
"""

import importlib
import sys
import warnings

try:
    import gfxlab  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "gfxlab":
        raise
    raise ModuleNotFoundError(
        "course_lab needs gfxlab, the course's other distribution: `pip install -e ./gfxlab` where the course is",
        name="gfxlab",
    ) from None

from course_lab import moved

# Functions by the module that holds them: imported when a lesson asks for them.
_FUNCTIONS = {
    "my_kernel": "course_lab.check.mine",
    "patient": "course_lab.clinic",
    "progress": "course_lab.journal",
}


def __getattr__(name: str):
    if name in _FUNCTIONS:
        value = getattr(importlib.import_module(_FUNCTIONS[name]), name)
    elif name in moved.NAMES:
        value = moved.named(name)
    else:
        raise AttributeError(f"module 'course_lab' has no attribute {name!r}")
    globals()[name] = value
    return value


def _shell():
    """The notebook's IPython shell; None in a script, where IPython may be imported all the same."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _begin(shell) -> None:
    """Make a notebook ready: launches on CPU tensors, and the magics."""
    try:
        import torch  # noqa: F401
        import triton  # noqa: F401
    except Exception as error:  # missing or broken: `course doctor` must still run
        warnings.warn(f"No kernel can run here: {error}. `course doctor` says what to do.", stacklevel=3)
        return
    from course_lab.check import magics

    magics.register(shell)


moved.forward_imports()
if (_notebook := _shell()) is not None:
    _begin(_notebook)
