"""What the hub's configuration is made of, as far as it needs no root."""

from __future__ import annotations

import sys

import pytest
from guide_text import ROOT

sys.path.insert(0, str(ROOT / "workshop"))
import rooms


def test_a_folder_that_others_cannot_enter_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms.os, "geteuid", lambda: 0)
    (tmp_path / "node_modules" / ".bin").mkdir(parents=True)
    (tmp_path / "node_modules" / ".bin" / "configurable-http-proxy").touch()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(SystemExit, match="closed"):
        rooms.check(closed, tmp_path)
