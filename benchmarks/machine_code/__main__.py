"""python -m benchmarks.machine_code [families] [--arch ARCH] [--path NAME=CLONE] [--stored] [--print]"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as the others' launches have it; 3.9 warns unless it is chosen

from benchmarks import report
from benchmarks.machine_code import page
from benchmarks.machine_code.contests import ARCHS, contests, run
from benchmarks.machine_code.figures import Figures, store
from benchmarks.machine_code.rivals import FOLDERS, open_paths


def main(arguments: list[str] | None = None) -> int:
    """Execute the contests, keep the figures, write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine_code", description=__doc__)
    parser.add_argument("families", nargs="*", help="all if none")
    parser.add_argument("--arch", action="append", choices=ARCHS, help="all three if none")
    parser.add_argument("--path", action="append", default=[], metavar="NAME=CLONE", help=", ".join(FOLDERS))
    parser.add_argument("--stored", action="store_true", help="only write the page, from what is stored")
    parser.add_argument("--print", action="store_true", help="only print what is found, store nothing")
    options = parser.parse_args(arguments)
    if not options.stored:
        open_paths(dict(path.partition("=")[::2] for path in options.path))
        wanted = [one for one in contests() if not options.families or one.family in options.families]
        found = [one for arch in options.arch or ARCHS for contest in wanted for one in _shown(contest, arch)]
        if not options.print:
            store(*([x for x in found if isinstance(x, Figures) is kept] for kept in (True, False)))
    if not options.print:
        page.draw()
        report.write()
    return 0


def _shown(contest, arch):
    for one in run(contest, arch):
        told = f"{one.instructions:9} instructions {one.lines:7} lines" if isinstance(one, Figures) else one.reason
        print(
            f"{arch:8} {contest.family:12} {contest.size:26} {one.name:18} {told}  {time.process_time():.0f} s",
            flush=True,
        )
        yield one


if __name__ == "__main__":
    sys.exit(main())
