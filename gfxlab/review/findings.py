"""A finding: what was seen, where, with which evidence, how it is usually cured, and which lesson teaches it."""

from __future__ import annotations

import linecache
from dataclasses import asdict, dataclass
from typing import Any

HAZARD, COST, NOTE = "hazard", "cost", "note"


@dataclass(frozen=True)
class Kind:
    """A kind of finding. level: hazard, cost or note; lesson: the name of the course's that teaches it, or empty."""

    level: str
    title: str
    cure: str
    lesson: str = ""


KINDS: dict[str, Kind] = {  # worst first: this is the order of the page
    "out-of-bounds": Kind(
        HAZARD,
        "Out of bounds",
        "Give the access a mask that switches off the lanes beyond the tensor, or mend the offset.",
        "01 Vector add, rung 3",
    ),
    "beyond": Kind(
        HAZARD,
        "Outside its tensor, inside the storage",
        "Give the access a mask; where the kernel is meant to find more than it is handed, hand it the whole tensor.",
        "01 Vector add, rung 3",
    ),
    "assertion": Kind(HAZARD, "An assertion of the kernel fails", "Look at the values that it was written for."),
    "endless": Kind(HAZARD, "Does not end", "Look at what the loop waits for: no program may wait for a later one."),
    "race": Kind(
        HAZARD,
        "Race within a program",
        "Put tl.debug_barrier() between the store and the load of another wave, or let one wave do both.",
    ),
    "shared": Kind(
        HAZARD,
        "Race between programs",
        "Let one program write each element, or add with tl.atomic_add.",
        "01 Vector add",
    ),
    "order": Kind(
        HAZARD,
        "The result depends on the order of programs",
        "Let no program read what another one writes in the same launch; split the launch in two, or use atomics.",
    ),
    "leak": Kind(
        HAZARD,
        "Masked lanes leak",
        "Give the masked load an other= that does no harm (0 for a sum, -inf for a maximum), or mask with tl.where.",
        "02 RMSNorm, rung 3",
    ),
    "unwritten": Kind(HAZARD, "Reads what nobody wrote", "Write the memory before it is read, or start from zeros."),
    "overflow": Kind(
        HAZARD,
        "An offset overflows",
        "Make it 64 bits wide before the product: row.to(tl.int64) * stride.",
        "05 Matmul",
    ),
    "differs": Kind(
        HAZARD,
        "The machine code computes something else than the interpreter",
        "Look for what Triton leaves open: masked lanes without other=, overflow, values that meet in LDS.",
    ),
    "misaligned": Kind(HAZARD, "Misaligned access", "Let offsets be multiples of the element's size."),
    "failed": Kind(
        HAZARD, "The script failed", "Mend what is above first; what it had not launched by then is not here."
    ),
    "undefined": Kind(
        NOTE, "The machine code reads a register that nothing wrote", "Mostly harmless: the lanes are masked."
    ),
    "last-bits": Kind(
        NOTE,
        "The last bits depend on the order of programs",
        "Additions of floats by atomics end in another order each time; sum in a fixed order where bits matter.",
    ),
    "uncompared": Kind(NOTE, "Not compared", ""),
    "uncoalesced": Kind(
        COST,
        "Uncoalesced access",
        "Let neighbouring lanes have neighbouring elements: the last axis of the block along the rows. Where places "
        "are read from memory, only their order can help.",
        "01 Vector add, the trap",
    ),
    "narrow": Kind(
        COST,
        "Narrow access",
        "Give each lane 16 bytes in a row: larger blocks, aligned rows, tl.multiple_of where the compiler cannot know.",
        "01 Vector add",
    ),
    "banks": Kind(
        COST,
        "Bank conflicts",
        "Choose another layout or width of the block, pad the row; for an operand of tl.dot, let the pointers exchange "
        "the axes instead of tl.trans, or take another num_stages.",
        "05 Matmul, rung 4",
    ),
    "spills": Kind(COST, "Registers spill", "Take smaller blocks or more num_warps.", "05 Matmul"),
    "occupancy": Kind(COST, "Few waves a SIMD", "Use fewer registers or less LDS: smaller blocks, fewer num_stages."),
    "idle-lanes": Kind(COST, "Idle lanes", "Let the block fit the data: fewer lanes, or several rows a program."),
    "idle-programs": Kind(COST, "Idle programs", "Launch no more programs than there is work."),
    "again": Kind(
        COST,
        "Bytes read again",
        "Keep them in registers or LDS, or order the programs so that a cache does.",
        "05 Matmul",
    ),
}


@dataclass(frozen=True)
class Finding:
    """One thing that was seen in one kernel.

    kind: a key of `KINDS`. evidence: what was seen, in sentences. file, line: of the kernel's source, "" and 0 where
    no line is known.
    """

    kind: str
    kernel: str
    evidence: str
    file: str = ""
    line: int = 0

    @property
    def about(self) -> Kind:
        return KINDS[self.kind]

    @property
    def level(self) -> str:
        """hazard, cost or note."""
        return self.about.level

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return list(KINDS).index(self.kind)

    @property
    def source(self) -> str:
        """The line of the kernel, as it is written."""
        return linecache.getline(self.file, self.line).strip() if self.line else ""

    def as_json(self) -> dict[str, Any]:
        about = self.about
        return {
            **asdict(self),
            "level": about.level,
            "title": about.title,
            "source": self.source,
            "cure": about.cure,
            "lesson": about.lesson,
        }
