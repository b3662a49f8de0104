"""What the instruments' tests share."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from gfxlab import cli


@pytest.fixture
def gfxlab(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: gfxlab("trace", "file.py") -> (exit status, output, error stream)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gfxlab", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        return exit.value.code or 0, *capsys.readouterr()

    return run
