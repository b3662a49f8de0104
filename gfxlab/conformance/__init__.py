"""Triton's own tests of its language, run unmodified on the simulated GPUs.

    python -m gfxlab.conformance PATH_TO_TRITON --arch gfx942 --seed 7

`plugin` runs inside pytest: it pretends the GPU, draws the sample and notes each outcome. `survey` starts pytest, again
after a test that ended the process, and counts.
"""

from gfxlab.conformance.survey import Report, conformance

__all__ = ["Report", "conformance"]
