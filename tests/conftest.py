"""Fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gfxlab

gfxlab.enable()  # tests launch kernels on CPU tensors


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="Fail at once where PyTorch finds no GPU.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("gpu") and not torch.cuda.is_available():
        raise pytest.UsageError("--gpu: PyTorch finds no GPU here; `course doctor` says why. Leave the option out.")


@pytest.fixture
def course_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for the learner's progress, so that a test never touches the real one."""
    home = tmp_path / "course_home"
    home.mkdir()
    monkeypatch.setenv("COURSE_HOME", str(home))
    return home
