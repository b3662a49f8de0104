"""What the instruction tables share: the target's peculiarities, a table's entry, and how an entry is executed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gfxlab import hardware
from gfxlab.simulator.core.operands import EXEC, VCC, Operand
from gfxlab.simulator.core.state import Waves

Step = Callable[[Waves], None]


class NotInTable(LookupError):
    """The table of this class does not know the instruction, or not with these modifiers."""


@dataclass(frozen=True)
class Target:
    """The architecture that is simulated."""

    arch: str

    @property
    def cdna(self) -> bool:
        """gfx90a, gfx942, gfx950: waves of 64, MFMA, a 16-bit result clears the upper half of its register."""
        return hardware.is_cdna(self.arch)

    @property
    def lanes(self) -> int:
        return 64 if self.cdna else 32

    @property
    def fnuz(self) -> bool:
        """gfx942's float8 formats are the FNUZ ones."""
        return self.arch == "gfx942"

    @property
    def flushes_halves(self) -> bool:
        """Products of float16 and bfloat16 know no denormals."""
        return hardware.limits(self.arch).flushes_halves

    @property
    def vcc(self) -> Operand:
        """The register that short encodings use without naming it."""
        return Operand("vcc", "s", VCC, self.lanes // 32)

    @property
    def exec(self) -> Operand:
        """The register that says which lanes are active."""
        return Operand("exec", "s", EXEC, self.lanes // 32)


@dataclass(frozen=True)
class Op:
    """An instruction without memory: `writes = compute(*reads)`, lane by lane.

    reads: the type of every source, or one type a source. writes: the type of each result (several: compute returns a
    tuple). accumulates: the destination is also the last source. reads_vcc: VCC is a last source that is not printed.
    clamped: what is computed instead under the modifier `clamp`, where that is not a matter of the result alone.
    wide: compute takes int64 and gives the exact result, which wraps into the type, or stops at its ends under `clamp`;
    a second result is whether it does not fit. exact: the same of fractions, which `rounding` needs where
    it does not know `compute`.
    """

    compute: Callable[..., np.ndarray | tuple[np.ndarray, ...]]
    reads: str | tuple[str, ...]
    writes: str | tuple[str, ...] = ""
    accumulates: bool = False
    reads_vcc: bool = False
    clamped: Callable[..., np.ndarray | tuple[np.ndarray, ...]] | None = None
    wide: bool = False
    exact: Callable | None = None

    def kinds(self, sources: int) -> tuple[str, ...]:
        """The type of each source."""
        return (self.reads,) * sources if isinstance(self.reads, str) else self.reads

    @property
    def results(self) -> tuple[str, ...]:
        """The type of each result: that of the first source where the table does not say."""
        if not self.writes:
            return (self.reads if isinstance(self.reads, str) else self.reads[0],)
        return (self.writes,) if isinstance(self.writes, str) else self.writes
