"""Build the notebooks from the lessons' source; see `builder`."""

from typing import Any

from course_lab.authoring.build.files import BuildError

__all__ = ["BuildError", "BuildReport", "build_notebooks"]


def __getattr__(name: str) -> Any:
    """The builder when it is asked for: it imports torch, which a learner's `course sync` does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from course_lab.authoring.build import builder

    return getattr(builder, name)
