"""The AMD machine code of a kernel, on any CPU: registers, memory widths, matrix instructions, annotated listing.

amd_report(add_kernel, x, y, out, n, BLOCK=1024, arch="gfx942")
compare(report_a, report_b)
regressions(report_a, report_b)
"""

from gfxlab.code.card import Comparison, compare
from gfxlab.code.errors import AmdError, AmdLimitError
from gfxlab.code.report import AmdReport, amd_report
from gfxlab.code.verdicts import regressions

__all__ = ["AmdError", "AmdLimitError", "AmdReport", "Comparison", "amd_report", "compare", "regressions"]
