"""The compiled part of the simulator. Where there is no C compiler, gfxlab is installed without it, and only slower.

Environment: GFXLAB_PURE=1 leaves it out, for a wheel that fits every machine.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

FOLDER = Path("simulator", "compiled")
sys.path.insert(0, str(FOLDER))
from sources import files, stamp  # noqa: E402

# No contraction of a * b + c to one rounding, and nothing that changes a result: errno and traps are not looked at.
FLAGS = [] if sys.platform == "win32" else ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
LANES = Extension(
    "gfxlab.simulator.compiled.lanes",
    [str(FOLDER / "lanes.c")],
    depends=[str(path) for path in files(FOLDER)],
    define_macros=[("GFXLAB_STAMP", f'"{stamp(FOLDER)}"')],
    extra_compile_args=FLAGS,
    optional=True,
)


class Modules(build_py):
    """This file lies among the modules, but is none."""

    def find_package_modules(self, package, package_dir):
        return [module for module in super().find_package_modules(package, package_dir) if module[1] != "setup"]


setup(ext_modules=[] if os.environ.get("GFXLAB_PURE") else [LANES], cmdclass={"build_py": Modules})
