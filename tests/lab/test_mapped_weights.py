"""The dequantised weights in a file that processes share: the same numbers, trusted by hash alone, never written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from course_lab.model import loading, mapped, weights_path
from course_lab.model.weights import GgufFile

SOME = {
    "a": torch.arange(1 << 20, dtype=torch.float32),
    "b": torch.ones(3, 5),
    "text": torch.zeros(7, dtype=torch.uint8),
}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A small file in place of the model's, and the hash that makes it the right one."""
    monkeypatch.setenv("COURSE_WEIGHTS", str(tmp_path / "shared"))
    assert not mapped.keep(SOME) and not mapped.path().exists()  # another hash than the model's
    from safetensors.torch import save_file

    save_file(SOME, tmp_path / "small")
    monkeypatch.setattr(mapped, "SHA256", mapped.sha256(tmp_path / "small"))
    assert mapped.tensors() is None
    assert mapped.keep(SOME)
    return mapped.path()


def test_what_is_kept_is_what_is_mapped(kept):
    found = mapped.tensors()
    assert found.keys() == SOME.keys() and all(torch.equal(found[name], SOME[name]) for name in SOME)
    assert kept.stat().st_mode & 0o777 == 0o444 and [kept] == list(kept.parent.iterdir())


def test_a_write_stays_in_its_process(kept):
    mapped.tensors()["b"].zero_()
    assert torch.equal(mapped.tensors()["b"], SOME["b"])


def test_a_changed_byte_is_noticed_and_another_file_made(kept):
    kept.chmod(0o644)
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    assert mapped.tensors() is None
    assert mapped.keep(SOME) and mapped.tensors() is not None


def test_nothing_is_lost_where_no_file_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("COURSE_WEIGHTS", str(tmp_path / "file" / "folder"))
    assert mapped.tensors() is None and mapped.keep(SOME) is False


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_its_pages_are_the_files(kept):
    found = mapped.tensors()
    found["a"].sum()
    for part in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        if part.partition("\n")[0].endswith(str(kept)) and "r--s" not in part:
            assert int(re.search(r"Anonymous:\s+(\d+)", part)[1]) == 0
            break
    else:
        pytest.fail("the tensors are a copy")


@pytest.mark.skipif(weights_path() is None, reason="the weights are not installed")
def test_the_hash_is_the_models(tmp_path, monkeypatch):
    """Otherwise nothing is shared, and nothing says so."""
    monkeypatch.setenv("COURSE_WEIGHTS", str(tmp_path))
    plain = loading.dequantised(GgufFile(weights_path()), progress=False)
    assert mapped.keep(plain)
    found = mapped.tensors()
    assert found.keys() == plain.keys() and all(torch.equal(found[name], plain[name]) for name in plain)
