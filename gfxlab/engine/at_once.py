"""Programs of one launch as if all ran at the same time: none finds what another has stored.

The interpreter runs program after program, so that one which adds to what it finds sees the sum of those before it.
On hardware all of them may have loaded before the first has stored.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch

from gfxlab.strides import Strided


class AtOnce:
    """One tensor during one launch: each program finds in it what lay there when the launch began.

    An atomic access orders programs; with the first one to this tensor it becomes memory like any other.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        size = tensor.element_size()
        memory = (ctypes.c_uint8 * (Strided.of(tensor).span * size)).from_address(tensor.data_ptr())
        self._memory = np.frombuffer(memory, f"u{size}")
        self._before, self._stored, self._is_over = self._memory.copy(), self._memory.copy(), False

    def turn(self) -> None:
        """The next program begins."""
        if not self._is_over:
            self._keep()
            self._memory[:] = self._before

    def finish(self) -> None:
        """All programs have run, or an atomic was seen: what all of them have stored so far is there."""
        if not self._is_over:
            self._keep()
            self._memory[:] = self._stored
            self._is_over = True

    def _keep(self) -> None:
        changed = self._memory != self._before
        self._stored[changed] = self._memory[changed]
