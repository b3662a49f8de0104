"""A small course in a temporary folder, for the tests of the builder and of grading."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from course_lab.authoring import build, lessons, source

LESSON = "90_double"
SOURCE = Path(__file__).parent / "fake_lessons"


@dataclass
class FakeCourse:
    """A copy of fake_lessons, registered as an instructor's own lessons would be."""

    root: Path

    @property
    def lesson(self) -> Path:
        return self.root / "fake_lessons" / "l90_double"

    def build(self, **options) -> build.BuildReport:
        return build.build_notebooks(LESSON, **options)

    def path(self, folder: str) -> Path:
        return self.root / folder / f"{LESSON}.ipynb"

    def notebook(self, folder: str) -> NotebookNode:
        return nbformat.read(self.path(folder), as_version=4)

    def save(self, folder: str, notebook: NotebookNode) -> None:
        """Write as JupyterLab does."""
        nbformat.write(notebook, self.path(folder))

    def edit(self, file: str, old: str, new: str) -> None:
        """Change one of the lesson's source files."""
        path = self.lesson / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        self.forget()

    @staticmethod
    def forget() -> None:
        """Forget what was read and imported of the lessons."""
        lessons._registered.cache_clear()
        source.answers.cache_clear()
        importlib.invalidate_caches()
        for name in [name for name in sys.modules if name.split(".")[0] == "fake_lessons"]:
            del sys.modules[name]


def _lay_out(root: Path) -> None:
    shutil.copytree(SOURCE, root / "fake_lessons", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "pyproject.toml").touch()
    metadata = root / "fake-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{lessons.GROUP}]\n{LESSON} = fake_lessons.l90_double\n")


def _activated(root: Path, patch: pytest.MonkeyPatch) -> FakeCourse:
    patch.syspath_prepend(str(root))
    before = os.environ.get("PYTHONPATH", "")
    patch.setenv("PYTHONPATH", f"{root}{os.pathsep}{before}")  # the kernels import the lesson too
    patch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second would go unseen
    FakeCourse.forget()
    return FakeCourse(root)


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small course after a first build. Tests copy it."""
    root = tmp_path_factory.mktemp("course")
    _lay_out(root)
    with pytest.MonkeyPatch.context() as patch:
        report = _activated(root, patch).build()
        assert report.ok, report
    return root


@pytest.fixture
def fake_course(built_once: Path, tmp_path: Path) -> Iterator[FakeCourse]:
    """A built copy of the small course that the test may change."""
    root = tmp_path / "course"
    shutil.copytree(built_once, root)
    with pytest.MonkeyPatch.context() as patch:
        yield _activated(root, patch)
    FakeCourse.forget()


@pytest.fixture
def fake_source(tmp_path: Path) -> Iterator[FakeCourse]:
    """The small course before its first build."""
    root = tmp_path / "course"
    root.mkdir()
    _lay_out(root)
    with pytest.MonkeyPatch.context() as patch:
        yield _activated(root, patch)
    FakeCourse.forget()
