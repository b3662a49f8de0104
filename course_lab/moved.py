"""Names that notebooks saved by learners still import from where they once stood.

    from course_lab import trace                  # gives gfxlab.trace
    from course_lab.simulator import simulate     # gives gfxlab.simulator's
    import course_kernels._triton.hooks           # gives gfxlab.engine.hooks

A module that has no successor says in one sentence where its parts went.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

# What `from course_lab import ...` gave: module and attribute, or the module itself.
NAMES = {
    "amd_report": ("gfxlab", "amd_report"),
    "guard": ("gfxlab", "guard"),
    "trace": ("gfxlab", "trace"),
    "amd": ("gfxlab.code", None),
    "draw": ("gfxlab.draw", None),
    "eager": ("gfxlab.tracing.eager", None),
    "engines": ("gfxlab.engines", None),
    "hardware": ("gfxlab.hardware", None),
    "sandbox": ("gfxlab.sandbox", None),
    "simulator": ("gfxlab.simulator", None),
    "style": ("gfxlab.style", None),
    "transport": ("gfxlab.transport", None),
}

# Modules by their old names; what lies below a package is looked for below its successor.
MODULES = {
    "course_kernels._triton": "gfxlab.engine",
    "course_lab.amd": "gfxlab.code",
    "course_lab.build": "course_lab.authoring.build",
    "course_lab.draw": "gfxlab.draw",
    "course_lab.eager": "gfxlab.tracing.eager",
    "course_lab.engines": "gfxlab.engines",
    "course_lab.exercise": "course_lab.authoring.exercise",
    "course_lab.hardware": "gfxlab.hardware",
    "course_lab.lessons": "course_lab.authoring.lessons",
    "course_lab.mutants": "course_lab.authoring.mutants",
    "course_lab.notebooks": "course_lab.authoring.notebooks",
    "course_lab.owner_report": "course_lab.doctor.owner_report",
    "course_lab.progress": "course_lab.journal",
    "course_lab.sandbox": "gfxlab.sandbox",
    "course_lab.simulator": "gfxlab.simulator",
    "course_lab.source": "course_lab.authoring.source",
    "course_lab.style": "gfxlab.style",
    "course_lab.trace": "gfxlab.tracing",
    "course_lab.transport": "gfxlab.transport",
}
_FUNCTIONS = {"course_lab.trace": "trace", "course_lab.progress": "progress"}  # modules named as their function was


def named(name: str) -> Any:
    """What `course_lab.<name>` once was: a function or a module that lives elsewhere today."""
    module, attribute = NAMES[name]
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def forward_imports() -> None:
    """Let the import statements of old notebooks find today's modules; calling it again does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())  # last: a module that exists is never covered


class _Forwarding(ModuleType):
    """Stands in sys.modules under an old name and passes everything on to the module of today."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import machinery's own questions
            raise AttributeError(name)
        return getattr(vars(self)["_today"], name)

    def __dir__(self) -> list[str]:
        return dir(vars(self)["_today"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Importing the module `course_lab.trace` hides the function of that name, so the module can be called too."""
        if self.__name__ not in _FUNCTIONS:
            raise TypeError(f"the module {self.__name__} cannot be called")
        return getattr(vars(self)["_today"], _FUNCTIONS[self.__name__])(*args, **kwargs)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if _successor(fullname) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        old, new = _successor(spec.name)
        module = _Forwarding(spec.name)
        try:
            vars(module)["_today"] = importlib.import_module(new)
        except ModuleNotFoundError as error:
            if error.name != new:
                raise
            raise ModuleNotFoundError(
                f"{spec.name} has moved: look for it in {MODULES[old]}, which holds what {old} held", name=spec.name
            ) from None
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: what the module holds is elsewhere."""


def _successor(name: str) -> tuple[str, str] | None:
    """The entry of MODULES that covers an old name, and the name of today."""
    for old, new in MODULES.items():
        if name == old or name.startswith(old + "."):
            return old, new + name.removeprefix(old)
    return None
