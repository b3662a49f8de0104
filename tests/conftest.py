"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def course_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for the learner's progress, so that a test never touches the real one."""
    home = tmp_path / "course_home"
    home.mkdir()
    monkeypatch.setenv("COURSE_HOME", str(home))
    return home
