"""Fixtures that all tests share."""

from __future__ import annotations

from collections import Counter
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


@pytest.hookimpl(tryfirst=True)  # before pytest's own, which looks for `slow`
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that `one_in` leaves out of `make test`.

    Take a number that divides no list of parameters: then each value meets each of the others sooner or later.
    """
    cases: Counter[str] = Counter()
    for item in items:
        if mark := item.get_closest_marker("one_in"):
            test = item.nodeid.partition("[")[0]
            if cases[test] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            cases[test] += 1


@pytest.fixture
def course_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for the learner's progress, so that a test never touches the real one."""
    home = tmp_path / "course_home"
    home.mkdir()
    monkeypatch.setenv("COURSE_HOME", str(home))
    return home
