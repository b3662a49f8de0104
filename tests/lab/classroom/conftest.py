"""A place for submissions and results, and whether a sandbox can be had here."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lab.classroom import bubble


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty folder of submissions."""
    folder = tmp_path / "submissions"
    folder.mkdir()
    return folder


@pytest.fixture
def sandbox() -> None:
    """Skip where no sandbox can be had; `course grade` says why in one sentence."""
    if reason := bubble.why_not():
        pytest.skip(reason)
