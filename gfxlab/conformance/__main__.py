"""python -m gfxlab.conformance PATH_TO_TRITON [--arch ARCH] [--seed N] [--all] [--only TEST]"""

import argparse
from pathlib import Path

from gfxlab.conformance.survey import ARCHS, conformance

parser = argparse.ArgumentParser(prog="python -m gfxlab.conformance", description=conformance.__doc__.splitlines()[0])
parser.add_argument("triton", type=Path, help="a checkout of Triton")
parser.add_argument("--arch", action="append", choices=ARCHS, help="may be given several times; default: all")
parser.add_argument("--seed", type=int, default=0, help="of the sample")
parser.add_argument("--sample", type=int, default=20, help="parametrisations of each test function")
parser.add_argument("--all", action="store_true", help="every parametrisation; goes on where it stopped")
parser.add_argument("--only", action="append", default=[], help="one test by name")
parser.add_argument("--logs", type=Path, default=Path(".conformance"), help="where outcomes are kept")
given = parser.parse_args()
print(
    conformance(
        given.triton,
        archs=given.arch or ARCHS,
        seed=given.seed,
        every=given.all,
        sample=given.sample,
        only=given.only,
        logs=given.logs,
    )
)
