"""Time kernels on a GPU, and only there: the interpreter's speed says nothing about any GPU.

    if bench.available():
        print(bench.time(lambda: add(x, y), bytes=3 * x.nbytes))

Each figure is a median of many runs with a cold L2 cache, beside the copy bandwidth of the same GPU, and knows the
machine it was taken on.  Figures that the course took, and on what, come from the results of its benchmarks:

    bench.stored("rms_norm", "64 x 4096", "16384 x 4096")
"""

from course_lab.bench.figures import Measurement, Results
from course_lab.bench.machine import Machine, NothingToTime, available
from course_lab.bench.standings import COPY, OURS, Line, Standings, lines, stored
from course_lab.bench.timing import call_times, copy_bandwidth, copy_of, time

__all__ = [
    "COPY",
    "OURS",
    "Line",
    "Machine",
    "Measurement",
    "NothingToTime",
    "Results",
    "Standings",
    "available",
    "call_times",
    "copy_bandwidth",
    "copy_of",
    "lines",
    "stored",
    "time",
]
