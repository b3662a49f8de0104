"""AMD GPUs in numbers: what a compute unit holds, what a card can reach, and how soon a kernel can be done at best.

Sources:
- compute units, wave size, LDS, caches: AMD's "GPU specifications" page in the ROCm documentation
- banks of the LDS: Composable Kernel's sources (`kLdsBankCount`)
- registers, granules and wave slots: LLVM's `AMDGPUBaseInfo.cpp`; they reproduce the occupancy that LLVM prints, but
  for workgroups of more than 4 waves that VGPRs limit: LLVM counts single waves there, `occupancy` whole workgroups,
  which is what the hardware can place (263 of 1,665 points compared are lower than LLVM's for that reason)
- peak rates, clocks and memory bandwidth: AMD's product data sheets (dense, boost clock)
- copy bandwidth reached: named with each figure
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gfxlab.units import format_bytes, format_flops, format_seconds

MAX_THREADS = 1024  # work-items in a workgroup, on every AMD GPU


@dataclass(frozen=True)
class Limits:
    """What the hardware shares out, by LLVM architecture.

    The SIMDs of one compute unit (CDNA) or of one work-group processor of two compute units (RDNA) share the LDS and
    run whole workgroups between them.
    """

    arch: str
    family: str  # 'CDNA' (Instinct) or 'RDNA' (Radeon)
    generation: int  # of the family: CDNA 3 is gfx942, RDNA 3 is gfx11, RDNA 4 is gfx12
    wave_size: int  # lanes
    vgprs: int  # vector registers of a SIMD, per lane
    vgprs_per_wave: int  # the most that one wave can address
    vgpr_granule: int
    waves_per_simd: int
    simds: int  # that share the LDS
    lds: int  # bytes that those SIMDs share
    lds_per_workgroup: int  # bytes
    lds_granule: int  # bytes
    lds_banks: int  # of 4 bytes, that one cycle can read
    workgroups: int  # resident at once, for workgroups of more than one wave

    @property
    def repeats_operands(self) -> bool:
        """RDNA 3's WMMA wants A and B in both halves of the wave; RDNA 4's wants half of them in each."""
        return (self.family, self.generation) == ("RDNA", 3)

    @property
    def flushes_halves(self) -> bool:
        """CDNA 2's products of float16 and bfloat16 take denormals as 0 and give 0 for them, float32 results too.

        AMD, "MI200 matrix fused multiply-add (MFMA) behavior specifics" (MIOpen's documentation); PyTorch, "Numerical
        accuracy", says the same of V_DOT2.
        """
        return (self.family, self.generation) == ("CDNA", 2)

    @property
    def workgroup_in_traps(self) -> bool:
        """On RDNA 4 the number of the workgroup arrives in trap registers."""
        return (self.family, self.generation) == ("RDNA", 4)


def _cdna(arch: str, generation: int, lds: int = 64 << 10, lds_granule: int = 512, lds_banks: int = 32) -> Limits:
    return Limits(arch, "CDNA", generation, 64, 512, 512, 8, 8, 4, lds, lds, lds_granule, lds_banks, 16)


def _rdna(arch: str, generation: int) -> Limits:
    return Limits(arch, "RDNA", generation, 32, 1536, 256, 24, 16, 4, 128 << 10, 64 << 10, 512, 32, 32)


LIMITS: dict[str, Limits] = {
    limits.arch: limits
    for limits in (
        _cdna("gfx90a", 2),
        _cdna("gfx942", 3),
        _cdna("gfx950", 4, lds=160 << 10, lds_granule=1280, lds_banks=64),
        _rdna("gfx1100", 3),
        _rdna("gfx1101", 3),
        _rdna("gfx1151", 3),
        _rdna("gfx1200", 4),
        _rdna("gfx1201", 4),
    )
}


def limits(arch: str) -> Limits:
    """The limits of an LLVM architecture such as "gfx942".

    Raises:
        ValueError: it is not in the table; the message lists those that are.
    """
    if arch not in LIMITS:
        raise ValueError(f"unknown AMD architecture {arch!r}; known: {', '.join(LIMITS)}")
    return LIMITS[arch]


def is_cdna(arch: str) -> bool:
    """True for Instinct GPUs (gfx9..), false for Radeons; also of an architecture that is not in the table."""
    return arch.startswith("gfx9")


def wave_size(arch: str) -> int:
    """Lanes in a wave as Triton compiles for it: 64 on CDNA, 32 on RDNA; also of one that is not in the table."""
    return 64 if is_cdna(arch) else 32


@dataclass(frozen=True)
class Occupancy:
    """How many waves a SIMD holds, and why not more.

    waves: per SIMD; below one per SIMD it is an average. most: the hardware's wave slots.
    limit: 'wave slots', 'VGPRs', 'LDS' or 'workgroup slots'. workgroups: resident on the SIMDs that share an LDS.
    """

    waves: float
    most: int
    limit: str
    workgroups: int


def occupancy(arch: str, vgprs: int, lds: int, num_warps: int) -> Occupancy:
    """Waves per SIMD of a kernel that takes `vgprs` registers a lane and `lds` bytes a workgroup of `num_warps` waves.

    A workgroup runs as a whole, so its waves are counted in whole workgroups.
    """
    spec = limits(arch)
    taken = -(-max(vgprs, 1) // spec.vgpr_granule) * spec.vgpr_granule
    by_vgprs = min(spec.waves_per_simd, max(1, spec.vgprs // taken))
    slots = spec.waves_per_simd * spec.simds
    # in the order in which a tie is named: the first of the smallest
    candidates = {
        "wave slots": slots // num_warps,
        "VGPRs": spec.simds * by_vgprs // num_warps,
        "LDS": spec.lds // (-(-lds // spec.lds_granule) * spec.lds_granule) if lds else math.inf,
        "workgroup slots": spec.workgroups if num_warps > 1 else math.inf,
    }
    limit = min(candidates, key=candidates.__getitem__)
    workgroups = int(candidates[limit])
    return Occupancy(workgroups * num_warps / spec.simds, spec.waves_per_simd, limit, workgroups)


@dataclass(frozen=True)
class Card:
    """One GPU as PyTorch sees it. Rates in FLOP/s and bytes/s; None where the hardware has no such unit.

    copy: the copy bandwidth that somebody measured and published, with `copy_source`; None when we know of none.
    """

    name: str
    arch: str
    compute_units: int
    memory_gb: int
    bandwidth: float
    fp32: float
    bf16_matrix: float | None
    fp8_matrix: float | None
    l2_mib: int
    infinity_cache_mib: int = 0
    copy: float | None = None
    copy_source: str = ""
    fp32_matrix: float | None = None  # where it is more than on the vector units

    def rate(self, unit: str) -> float:
        """FLOP/s of 'fp32' (vector units), 'bf16', 'fp8' or 'fp32 matrix' (matrix units).

        Raises:
            ValueError: there is no such unit on this card.
        """
        rates = {"fp32": self.fp32, "bf16": self.bf16_matrix, "fp8": self.fp8_matrix}
        rates["fp32 matrix"] = self.fp32_matrix or self.fp32
        if rates.get(unit) is None:
            raise ValueError(f"{self.name} has no unit {unit!r}; it has {', '.join(k for k, v in rates.items() if v)}")
        return rates[unit]

    def ridge(self, unit: str = "bf16") -> float:
        """FLOPs per byte from which arithmetic, not memory, is the limit."""
        return self.rate(unit) / self.bandwidth


_AZURE = "BabelStream Copy, Azure AI benchmarking guide, ND MI300X v5"
_T = 1e12

CARDS: dict[str, Card] = {
    card.name: card
    for card in (
        Card("MI210", "gfx90a", 104, 64, 1.6 * _T, 22.6 * _T, 181 * _T, None, 8, fp32_matrix=45.3 * _T),
        Card("MI250X (one die)", "gfx90a", 110, 64, 1.6 * _T, 23.9 * _T, 191.5 * _T, None, 8, fp32_matrix=47.9 * _T),
        Card("MI300X", "gfx942", 304, 192, 5.3 * _T, 163.4 * _T, 1307 * _T, 2615 * _T, 32, 256, 4.11 * _T, _AZURE),
        Card("MI325X", "gfx942", 304, 256, 6.0 * _T, 163.4 * _T, 1307 * _T, 2615 * _T, 32, 256),
        Card("MI350X", "gfx950", 256, 288, 8.0 * _T, 144.2 * _T, 2307 * _T, 4614 * _T, 32, 256),
        Card("MI355X", "gfx950", 256, 288, 8.0 * _T, 157.3 * _T, 2517 * _T, 5033 * _T, 32, 256),
        Card("RX 7900 XTX", "gfx1100", 96, 24, 0.96 * _T, 61.4 * _T, 123 * _T, None, 6, 96),
        Card("PRO W7900", "gfx1100", 96, 48, 0.864 * _T, 61.3 * _T, 123 * _T, None, 6, 96),
        Card("RX 9070 XT", "gfx1201", 64, 16, 0.64 * _T, 48.7 * _T, 195 * _T, 389 * _T, 8, 64),
        Card("Radeon 8060S", "gfx1151", 40, 128, 0.256 * _T, 29.7 * _T, 59 * _T, None, 2, 32),
    )
}


def card(gpu: str | Card) -> Card:
    """A card by name ("MI300X", in any case) or by architecture (the first listed of "gfx942").

    Raises:
        ValueError: it is not in the table; the message lists those that are.
    """
    if isinstance(gpu, Card):
        return gpu
    for candidate in CARDS.values():
        if gpu.lower() in (candidate.name.lower(), candidate.arch):
            return candidate
    raise ValueError(f"unknown GPU {gpu!r}; known: {', '.join(CARDS)}")


def card_of_device(device: str) -> Card | None:
    """The card that the driver calls by such a name as "AMD Instinct MI300X"; None if it is not in the table."""
    words = device.lower().split()
    for candidate in CARDS.values():
        name = candidate.name.lower().split(" (")[0].split()
        if any(words[i : i + len(name)] == name for i in range(len(words))):
            return candidate
    return None


@dataclass(frozen=True)
class LeastTime:
    """The least time that a kernel can take: it cannot be faster than its memory traffic, nor than its arithmetic."""

    card: Card
    unit: str
    bytes: float
    flops: float
    memory_seconds: float
    compute_seconds: float
    copy_seconds: float | None  # the memory traffic at the copy bandwidth that was really measured

    @property
    def roof(self) -> str:
        """What limits it: 'memory' or 'compute'."""
        return "memory" if self.memory_seconds >= self.compute_seconds else "compute"

    @property
    def seconds(self) -> float:
        """At the peak rates of the data sheet."""
        return max(self.memory_seconds, self.compute_seconds)

    def __str__(self) -> str:
        lines = [f"{self.card.name}: at least {format_seconds(self.seconds)}, limited by {self.roof}"]
        peak = f"{self.card.bandwidth / _T:g} TB/s peak"
        lines.append(f"  memory   {format_bytes(self.bytes):>10}  {format_seconds(self.memory_seconds):>9}  at {peak}")
        if self.copy_seconds is not None:
            rate = f"{self.card.copy / _T:g} TB/s reached ({self.card.copy_source})"
            lines.append(f"  {'':19}  {format_seconds(self.copy_seconds):>9}  at {rate}")
        rate = f"{self.card.rate(self.unit) / _T:g} TFLOP/s {self.unit} peak"
        lines.append(f"  compute  {format_flops(self.flops):>10}  {format_seconds(self.compute_seconds):>9}  at {rate}")
        return "\n".join(lines)


def lower_bound(bytes: float, flops: float, gpu: str | Card = "MI300X", unit: str = "fp32") -> LeastTime:
    """How soon a kernel that moves `bytes` and computes `flops` can be done on `gpu`, at best.

    Args:
        unit: which arithmetic: 'fp32' on the vector units, 'bf16' or 'fp8' on the matrix units.

    Raises:
        ValueError: a negative amount, an unknown GPU, or a unit that it does not have.
    """
    if bytes < 0 or flops < 0:
        raise ValueError(f"bytes and flops must not be negative, got {bytes} and {flops}")
    spec = card(gpu)
    copy = bytes / spec.copy if spec.copy else None
    return LeastTime(spec, unit, bytes, flops, bytes / spec.bandwidth, flops / spec.rate(unit), copy)
