"""Is this machine ready for the course, and if not, which command mends it?  `course doctor` shows the answer.

from course_lab import doctor
doctor.findings(doctor.Machine.here())     # list of Finding(check, status, text, fix)
"""

from course_lab.doctor.checks import Finding, findings
from course_lab.doctor.machine import Machine, Probe
from course_lab.doctor.report import as_json, as_text, exit_status

__all__ = ["Finding", "Machine", "Probe", "as_json", "as_text", "exit_status", "findings"]
