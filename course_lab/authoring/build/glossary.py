"""The glossary of the whole course: the terms of all lessons in one page, and what others call the same thing.

The terms are those of the lessons' glossaries.  The table of vocabularies is ours; each of its rows leads to a term.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from course_lab.authoring import source
from course_lab.authoring.lessons import Lesson
from gfxlab.tables import Table

HEADING = "### Glossary"
LINK = "[All terms of the course](../docs/glossary.md), with AMD's, NVIDIA's and OpenCL's words for them."
PAGE = "docs/glossary.md"
_ENTRY = re.compile(r"^- (\*\*.+?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"\*\*(.+?)\*\*")

_TEXT = """\
<!-- Written by `course build` from the lessons' glossaries. -->
# Glossary

Every term of the lessons, with the lesson that introduces it. First what the same thing is called elsewhere.

## Triton, AMD, NVIDIA, OpenCL

{vocabularies}

A dash: the vocabulary has no word for it. Sources:
[HIP's table of terms](https://rocm.docs.amd.com/projects/HIP/en/latest/reference/terms.html),
[LLVM's AMDGPU guide](https://llvm.org/docs/AMDGPUUsage.html) for waves, workgroups and LDS, the
[CUDA programming guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/) and the
[OpenCL specification](https://registry.khronos.org/OpenCL/specs/3.0-unified/html/OpenCL_API.html).

## The terms

{terms}
"""

# The term of this course, then what Triton's own interface, AMD, NVIDIA and OpenCL call it.
VOCABULARIES = (
    ("kernel", "`@triton.jit` function", "kernel", "kernel", "kernel"),
    ("grid", "grid", "grid", "grid", "NDRange"),
    ("launch", "`kernel[grid](...)`", "dispatch", "launch", "enqueue of an NDRange"),
    ("program", "program", "workgroup", "thread block, CTA", "work-group"),
    ("workgroup", "program", "workgroup, block (HIP)", "thread block, CTA", "work-group"),
    ("block", "block, tile", "-", "tile", "-"),
    ("wave", "warp (`num_warps` counts them)", "wave, wavefront", "warp", "sub-group"),
    ("lane", "-", "lane, work-item, thread (HIP)", "thread", "work-item"),
    ("register", "-", "VGPR; SGPR where a wave shares it", "register", "private memory"),
    ("spill", "`n_spills`", "scratch", "local memory", "private memory"),
    ("LDS", "shared memory", "LDS, local data share", "shared memory", "local memory"),
    ("bank", "-", "LDS bank", "shared memory bank", "-"),
    ("barrier", "`tl.debug_barrier`", "`s_barrier`", "`__syncthreads`", "`barrier(CLK_LOCAL_MEM_FENCE)`"),
    ("DPP", "-", "DPP, `ds_swizzle`, `ds_bpermute`", "warp shuffle", "sub-group shuffle"),
    ("compute unit", "-", "CU; two make a WGP on Radeon", "streaming multiprocessor, SM", "compute unit"),
    ("SIMD", "-", "SIMD, execution unit (EU)", "SM sub-partition", "-"),
    ("matrix unit", "`tl.dot`", "matrix core", "tensor core", "-"),
    ("MFMA", "`tl.dot`", "MFMA (Instinct), WMMA (Radeon)", "`mma`, `wgmma`", "-"),
    ("XCD", "-", "XCD, accelerator complex die", "-", "-"),
    ("L2", "-", "L2", "L2", "-"),
    ("line", "-", "cache line, 128 bytes", "cache line, 128 bytes", "-"),
    ("coalescing", "coalescing", "coalescing", "coalescing", "-"),
    ("gfx942", '`GPUTarget("hip", "gfx942", 64)`', "gfx target, ISA", "compute capability, `sm_90`", "-"),
    ("stage", "`num_stages`", "-", "pipeline stage", "-"),
    ("constexpr switch", "`tl.constexpr`", "template argument (HIP)", "template argument", "`-D` macro"),
    (
        "device function",
        "`@triton.jit` function that kernels call",
        "`__device__` function",
        "`__device__` function",
        "function",
    ),
)


@dataclass(frozen=True)
class Term:
    """One entry of a lesson's glossary: its names, what it says, and the lesson."""

    names: tuple[str, ...]
    meaning: str
    lesson: Lesson

    @property
    def link(self) -> str:
        """To the glossary that it stands in."""
        return f"[{self.lesson.title}](../notebooks/{self.lesson.name}.ipynb#Glossary)"


def terms(of: Iterable[Lesson]) -> list[Term]:
    """All entries of the lessons' glossaries, by their first names."""
    found = [term for lesson in of for term in _of(lesson)]
    return sorted(found, key=lambda term: term.names[0].lower())


def _of(lesson: Lesson) -> list[Term]:
    cells = [cell.text for cell in source.read(lesson.file("lesson.py")) if cell.kind == "markdown"]
    glossary = "\n".join(cells).partition(HEADING)[2]
    return [_term(entry, lesson) for entry in _ENTRY.findall(glossary)]


def _term(entry: str, lesson: Lesson) -> Term:
    text = " ".join(entry.split())
    head, _, meaning = text.partition(": ")
    return Term(tuple(_NAME.findall(head)), meaning or text, lesson)


def page(of: list[Lesson]) -> str:
    """The page for these lessons, in Markdown."""
    every = terms(of)
    rows = [(_heading(term), _from(term.meaning), term.link) for term in every]
    listed = Table(rows, ("term", "what it is", "introduced in")).markdown()
    return _TEXT.format(vocabularies=_vocabularies(every), terms=listed)


def _heading(term: Term) -> str:
    return ", ".join(f"**{name}**" for name in term.names)


def _from(meaning: str) -> str:
    """What an entry says, its links to other lessons led from docs/."""
    return re.sub(r"\]\((\d\d_\w+\.ipynb)", r"](../notebooks/\1", meaning)


def _vocabularies(every: list[Term]) -> str:
    owner = {name: term for term in every for name in term.names}
    rows = [(_linked(name, owner[name]), *words) for name, *words in VOCABULARIES if name in owner]
    return Table(rows, ("here", "Triton", "AMD", "NVIDIA", "OpenCL")).markdown()


def _linked(name: str, term: Term) -> str:
    return f"[{name}](../notebooks/{term.lesson.name}.ipynb#Glossary)"
