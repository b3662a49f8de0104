"""python -m benchmarks [families] [--short] [--check] [--save FILE] [--commit NAME]"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys

import torch

from benchmarks import FAMILIES, report
from benchmarks.contest import Contest
from course_lab import bench


def main(arguments: list[str] | None = None) -> int:
    """Run the cases and print their figures; without a GPU say so, and show what is stored."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES], help="modules of this package; all if none")
    parser.add_argument("--short", action="store_true", help="few sizes")
    parser.add_argument("--check", action="store_true", help="compare with the reference, time nothing")
    parser.add_argument("--save", help="a JSON file for the figures, beside those it holds")
    parser.add_argument("--commit", help="of the course, where its folder is no clone")
    options = parser.parse_args(arguments)
    try:
        machine = bench.Machine.here()
    except bench.NothingToTime as refusal:
        print(f"{refusal}\n\n{report.without_gpu()}")
        return 0
    if options.commit:
        machine = dataclasses.replace(machine, commit=options.commit)
    results = run(machine, options.families or FAMILIES, "short" if options.short else "every", not options.check)
    print(report.console(results))
    if options.save:
        report.merge(results, options.save)
    return 0


def run(machine: bench.Machine, families, sizes: str, timed: bool, device: str = "cuda") -> bench.Results:
    """All cases of these families."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # the references are float32
    contest = Contest(device, timed)
    for family in families:
        module = importlib.import_module(f"benchmarks.{family}")
        if hasattr(module, "measure"):
            contest.measurements += module.measure(device) if timed else []
            continue
        for case in module.cases(sizes):
            print(f"{case.family}, {case.size}", file=sys.stderr, flush=True)
            contest.run(case)
            torch.cuda.empty_cache()
    absent = [f"{family}, {text}" for (family, _), text in contest.absent.items()]
    return bench.Results(machine, contest.measurements, contest.notes + absent)


if __name__ == "__main__":
    sys.exit(main())
