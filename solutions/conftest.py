"""Under nbval the solutions are graded, and the reader's own progress is left alone."""

from __future__ import annotations

import tempfile

import pytest

HOME = tempfile.TemporaryDirectory(prefix="course-")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item):
    """The kernel starts during the first cell's set-up and inherits these settings; other folders' kernels don't."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_STRICT", "1")
        patch.setenv("COURSE_HOME", HOME.name)
        return (yield)
