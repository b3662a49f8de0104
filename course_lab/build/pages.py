"""Pages of the repository that are made from stored results, whole or between two marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import course_lab
from course_lab.build import compat
from course_lab.simulator import survey

ROOT = Path(course_lab.__file__).parent.parent
_BEGIN, _END = "<!-- {name}: written by `course build` -->", "<!-- {name}: end -->"
_SIMULATOR = """\
<!-- Written by `course build` from course_lab/simulator/survey.json; `make test-simulator` measures it. -->
# The simulator, kernel by kernel

Each case runs machine code that Triton's compiler makes for the GPU, on the CPU, and is compared with the PyTorch
reference. Errors are the largest |got - expected| / (1 + |expected|) of all targets and all results, gradients
included, in units of the dtype's last place at 1. The last column compares processor time on one core with Triton's
interpreter, in bfloat16 for gfx942, where the launch has 64 programs or more.

{table}
"""


def pages(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every such page and the text that it must have; none where the package stands alone."""
    readme = root / "README.md"
    if not readme.exists() or not survey.STORED.exists():
        return
    results = survey.stored()
    text = readme.read_text(encoding="utf-8")
    text = between("simulator", survey.summary(results), text)
    yield readme, between("compat", compat.table(compat.stored()), text)
    yield root / "docs" / "simulator.md", _SIMULATOR.format(table=survey.table(results))


def between(name: str, block: str, text: str) -> str:
    """`text` with what stands between the marks called `name` replaced; unchanged where there are no such marks."""
    begin, end = _BEGIN.format(name=name), _END.format(name=name)
    before, found, rest = text.partition(begin)
    if not found or end not in rest:
        return text
    return f"{before}{begin}\n{block}\n{end}{rest.partition(end)[2]}"
