"""`from course_lab import trace` gives the function, whoever has imported the module of that name before."""

import subprocess
import sys

import pytest

CODE = """
import {first}
from course_lab import my_kernel, progress
from gfxlab import trace
import course_lab
print(trace.__name__, callable(trace), callable(progress), gfxlab.tracing is trace)
"""


@pytest.mark.parametrize("first", ["course_lab", "gfxlab.tracing", "course_lab.check.magics", "course_lab.record"])
def test_a_function_is_never_hidden_by_its_module(first):
    done = subprocess.run([sys.executable, "-c", CODE.format(first=first)], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["trace", "True", "True", "True"], done.stderr
