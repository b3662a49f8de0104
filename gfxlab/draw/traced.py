"""What the pictures ask of a traced launch; `gfxlab.tracing` has it, and a test can make one up."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from gfxlab.engine.hooks import Access


class Traced(Protocol):
    """A launch whose loads and stores were recorded: see `gfxlab.tracing.TracedLaunch`, whose fields these are."""

    accesses: list[Access]
    watched: list[dict[str, np.ndarray]]

    @property
    def name(self) -> str: ...
    @property
    def grid(self) -> tuple[int, int, int]: ...
    @property
    def args(self) -> dict[str, Any]: ...
    def tensor(self, name: str) -> torch.Tensor: ...
    def times(self, tensor: str, kind: str = "load") -> np.ndarray: ...
    def by_program(self, tensor: str, kind: str = "load") -> dict[tuple[int, int, int], list[Access]]: ...
