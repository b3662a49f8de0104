"""Build the notebooks from the lessons' source; see `builder`."""

from course_lab.authoring.build.builder import BuildReport, build_notebooks
from course_lab.authoring.build.files import BuildError

__all__ = ["BuildError", "BuildReport", "build_notebooks"]
