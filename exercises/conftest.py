"""Under nbval an exercise notebook is graded: an answer that doesn't pass fails its cell, an untouched stub too."""

from __future__ import annotations

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item):
    """The kernel starts during the first cell's set-up and inherits the setting; lessons in the same run don't."""
    if hasattr(item, "cell"):
        item.options["check"] = False  # what a learner's cells print is theirs; a cell fails by raising
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_STRICT", "1")
        return (yield)
