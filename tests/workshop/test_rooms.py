"""What the hub's configuration is made of, as far as it needs no root."""

from __future__ import annotations

import subprocess
import sys

import pytest
from guide_text import ROOT

sys.path.insert(0, str(ROOT / "workshop"))
import rooms

CODE = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('THP_enabled')])"


def test_a_learners_programs_have_no_huge_pages():
    without, with_ = (
        subprocess.run([sys.executable, "-c", CODE], preexec_fn=before, capture_output=True, text=True).stdout.strip()
        for before in (rooms.no_huge_pages, None)
    )
    if with_ == "[]":
        pytest.skip("this kernel does not say whether a process has huge pages")
    assert without == "['0']"


def test_a_folder_that_others_cannot_enter_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms.os, "geteuid", lambda: 0)
    (tmp_path / "node_modules" / ".bin").mkdir(parents=True)
    (tmp_path / "node_modules" / ".bin" / "configurable-http-proxy").touch()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(SystemExit, match="closed"):
        rooms.check(closed, tmp_path)
