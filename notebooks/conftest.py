"""Under nbval a lesson gives the same outputs for everybody: it sees no progress and no answers of the reader's."""

from __future__ import annotations

import tempfile

import pytest

HOME = tempfile.TemporaryDirectory(prefix="course-")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item):
    """The kernel starts during the first cell's set-up and inherits these settings; other folders' kernels don't."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COURSE_STRICT", raising=False)
        patch.setenv("COURSE_HOME", HOME.name)
        return (yield)
