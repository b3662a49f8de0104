"""The AMD machine code of a kernel, on any CPU: registers, memory widths, matrix instructions, annotated listing.

amd_report(add_kernel, x, y, out, n, BLOCK=1024, arch="gfx942")
compare(report_a, report_b)
regressions(report_a, report_b)
"""

from course_lab.amd.card import Comparison, compare
from course_lab.amd.errors import AmdError, AmdLimitError
from course_lab.amd.regressions import regressions
from course_lab.amd.report import AmdReport, amd_report

__all__ = ["AmdError", "AmdLimitError", "AmdReport", "Comparison", "amd_report", "compare", "regressions"]
