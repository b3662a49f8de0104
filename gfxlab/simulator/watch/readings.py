"""What the bits of a register mean: floats, integers or pairs of 16-bit floats, as numbers and as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from gfxlab.simulator.core.state import POISON

if TYPE_CHECKING:
    from gfxlab.simulator.core.program import Decoded

_TYPES = re.compile(r"_(bf16|f16|f32|f64|[iu]\d+|b\d+|fp8|bf8)(?=_|$)")
_OF_TENSORS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
_PLAIN = (1e-7, 1e9)  # bits whose float32 lies in this range are taken for one where nothing else tells


@dataclass(frozen=True)
class Reading:
    """The lanes of a register: a number each (for strips) and its text. unknown: lanes never written."""

    numbers: np.ndarray
    texts: tuple[str, ...]
    unknown: np.ndarray

    def summary(self, lanes: np.ndarray) -> str:
        """A few words for the lanes where `lanes` is True."""
        shown = [self.texts[i] for i in np.flatnonzero(lanes & ~self.unknown)]
        if not shown:
            return "not written yet" if (lanes & self.unknown).any() else "no lane is on"
        if len(set(shown)) == 1:
            return f"{shown[0]} in every lane" if len(shown) > 1 else f"{shown[0]} in one lane"
        return ", ".join(shown) if len(shown) <= 4 else f"{', '.join(shown[:3])} … {shown[-1]}"


def kind_of(instruction: Decoded, written: bool, dtype: torch.dtype | None = None) -> str:
    """How an instruction takes a register: "f32", "bf16", "f16", "int", or "" where it does not say.

    dtype: of the tensor that the register's value comes from or goes to.
    """
    if dtype is not None:
        return _OF_TENSORS.get(dtype, "" if dtype.is_floating_point else "int")
    found = _TYPES.findall(instruction.mnemonic)
    if not found:
        return ""
    kind = found[0] if written else found[-1]
    return kind if kind in ("f32", "bf16", "f16") else "int" if kind[0] in "iu" else ""


def read(bits: np.ndarray, kind: str = "") -> Reading:
    """Read the bits of a register, uint32 [lane]."""
    unknown = bits == POISON
    kind = kind or _guess(bits[~unknown])
    if kind in ("bf16", "f16"):
        low, high = _halves(bits, kind)
        texts = tuple(f"{a:.3g}|{b:.3g}" if upper else f"{a:.3g}" for a, b, upper in zip(low, high, bits >> 16))
        return Reading(low, texts, unknown)
    with np.errstate(invalid="ignore"):  # a signalling NaN is quieted here
        numbers = bits.view(np.float32 if kind == "f32" else np.int32).astype(np.float64)
    return Reading(numbers, tuple(f"{n:.4g}" if kind == "f32" else str(int(n)) for n in numbers), unknown)


def read_scalar(value: int) -> str:
    """A scalar register's number as text; what looks like a float is shown as one."""
    if value >> 32:
        return f"{value:#x}"
    bits = np.array([value], np.uint32)
    return f"{bits.view(np.float32)[0]:.4g}" if _guess(bits) == "f32" else str(int(bits.view(np.int32)[0]))


def _guess(bits: np.ndarray) -> str:
    magnitude = np.abs(np.nan_to_num(bits.view(np.float32).astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
    plain = (magnitude > _PLAIN[0]) & (magnitude < _PLAIN[1])
    return "f32" if plain.any() and (plain | (bits == 0)).mean() > 0.9 else "int"


def _halves(bits: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    halves = [(bits & np.uint32(0xFFFF)).astype(np.uint32), bits >> np.uint32(16)]
    if kind == "bf16":
        return tuple((half << np.uint32(16)).view(np.float32).astype(np.float64) for half in halves)
    return tuple(half.astype(np.uint16).view(np.float16).astype(np.float64) for half in halves)
