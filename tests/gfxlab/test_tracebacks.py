"""In a notebook an instrument's refusal shows the reader's own lines, and none of the way through Triton and gfxlab."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from gfxlab import tracebacks

CELL = """
import torch, triton, triton.language as tl
from gfxlab import amd_report, using

def kernel(x_ptr):
    offs = tl.arange(0, 64)
    tl.store(x_ptr + offs, 1.0)

def launch(**options):
    jitted[(1,)](torch.zeros(40), **options)
"""


@pytest.fixture
def shell(tmp_path) -> InteractiveShell:
    """A shell of its own in which `jitted` is a kernel of a file that stores past the end of its tensor."""
    (tmp_path / "own.py").write_text(CELL.replace("def kernel", "@triton.jit\ndef jitted"))
    shell = InteractiveShell.instance()
    shell.run_cell(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import gfxlab; gfxlab.enable(); import own")
    yield shell
    shell.run_cell("sys.path.remove(sys.modules.pop('own').__file__.rpartition('/')[0])")
    InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    "code, ends_with",
    [
        ("own.launch()", "past the end of its 40 elements"),
        ("with own.using('gfx942', quiet=True): own.launch()", "by `"),
        ("own.amd_report(own.jitted, torch.zeros(4), num_warps=64)", "num_warps"),
    ],
)
def test_only_the_readers_lines_are_shown(shell, capsys, code, ends_with):
    shell.run_cell("import torch")
    shell.run_cell(code)
    shown = capsys.readouterr().out
    assert ends_with in shown
    assert "Cell" in shown and "site-packages/triton" not in shown and "gfxlab/" not in shown
    assert len(shown.splitlines()) < 40


def test_nothing_is_left_of_a_traceback_without_own_lines():
    assert tracebacks.own_frames(None) is None
