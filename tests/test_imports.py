"""What importing loads and changes: nothing heavy outside a notebook, everything inside one; old names go on."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from course_lab import moved

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"IPython", "matplotlib", "nbformat", "pytest", "torch", "triton"}


def python(code: str, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120
    )


def told(code: str, *options: str) -> str:
    done = python(code, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("package", ["gfxlab", "gfxlab.cli", "course_lab", "course_lab.cli"])
def test_a_script_that_imports_a_package_loads_nothing_heavy(package):
    loaded = told(f"import sys, {package}; print(*sys.modules)").split()
    assert not HEAVY & set(loaded)


@pytest.mark.parametrize("command", ["gfxlab", "course_lab"])
def test_the_help_of_a_command_is_there_at_once(command):
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", command, "--help"], capture_output=True, check=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.4  # seconds of processor time


# ---- in a notebook ---------------------------------------------------------------------------------------------------

NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import course_lab
"""


def test_in_a_notebook_the_engines_are_on_and_the_magics_known():
    code = """
    from gfxlab.engine import dual_mode
    print(dual_mode.is_interpreting(), *("exercise" in shell.magics_manager.magics["cell"] for _ in range(1)))
    print("amd" in shell.magics_manager.magics["cell"], "hint" in shell.magics_manager.magics["line"])
    """
    assert told(NOTEBOOK + textwrap.dedent(code)).split() == ["True"] * 4


def test_a_script_that_imports_ipython_is_no_notebook():
    code = "import IPython, sys, course_lab; print('torch' in sys.modules)"
    assert told(code) == "False"


@pytest.mark.parametrize("missing", ["torch", "triton"])
def test_without_torch_or_triton_a_notebook_is_told_what_to_do(missing):
    done = python(f"import sys; sys.modules['{missing}'] = None\n{NOTEBOOK}\nprint('goes on')", "-W", "always")
    assert done.stdout == "goes on\n"
    (warning,) = [line for line in done.stderr.splitlines() if "No kernel can run here" in line]
    assert missing in warning and "`course doctor` says what to do" in warning


def test_without_triton_an_instrument_says_what_it_needs():
    done = python(
        """
        import builtins, importlib.abc, sys
        class Without(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "triton":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
        sys.meta_path.insert(0, Without())
        import gfxlab
        gfxlab.enable
        """
    )
    assert done.stderr.splitlines()[-1].startswith(
        "ModuleNotFoundError: gfxlab.enable needs triton, which is not installed: `pip install torch triton`"
    )


def test_without_gfxlab_the_course_says_which_command_installs_it(tmp_path):
    (tmp_path / "course_lab").symlink_to(ROOT / "course_lab")
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import course_lab"], cwd=tmp_path, env={}, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1].endswith("`pip install -e ./gfxlab` where the course is")


# ---- names of before -------------------------------------------------------------------------------------------------

STATEMENTS = [
    "from course_lab import amd_report, bench, draw, eager, engines, guard, hardware, model, simulator, trace",
    "from course_lab import amd_report, bench, check, engines, model, my_kernel, progress, simulator, style, trace",
    "import course_lab.simulator; course_lab.simulator.simulate",
    "from course_lab.simulator import SimulationError, simulate, step, using",
    "import course_lab.trace; assert course_lab.trace.trace is course_lab.moved.named('trace')",
    "import course_lab.trace\nfrom course_lab import trace\nwith trace(): pass",
    "from course_lab.trace import TracedLaunch, trace",
    "from course_lab.progress import progress, record",
    "import course_lab.progress\nfrom course_lab import progress\nassert 'solved' in str(progress())",
    "from course_lab.amd import AmdLimitError, amd_report, compare; import course_lab.amd.listing",
    "import course_lab.amd as amd; amd.amd_report",
    "from course_lab.draw import program_map; from course_lab import draw; draw.roofline",
    "from course_lab.exercise import Case, Exercise, Mutant, Suspect; from course_lab import exercise; exercise.Case",
    "from course_lab.simulator.instructions import registry",
    "from course_kernels._triton import dual_mode, hooks; dual_mode.enable()",
    "import course_kernels._triton.hooks as hooks; hooks.guard",
]


def test_old_names_lead_to_the_modules_of_today(course_home):
    """In one process, in this order and in the opposite one: neither depends on what was imported before."""
    code = "import course_lab\n" + "\n".join(f"exec({text!r})" for text in (*STATEMENTS, *reversed(STATEMENTS)))
    told(code)


def test_every_old_module_has_a_successor():
    names = "\n".join(f"import {name}" for name in moved.MODULES)
    told(f"import course_lab\n{names}")


@pytest.mark.parametrize("first", ["course_lab.trace", "course_lab.progress"])
def test_a_class_of_an_old_module_is_the_class_of_today(first):
    todays = {"course_lab.trace": "gfxlab.tracing:Trace", "course_lab.progress": "course_lab.journal:Progress"}[first]
    module, name = todays.split(":")
    told(f"import course_lab, {module}, {first}\nassert {first}.{name} is {module}.{name}")


def test_a_part_that_is_elsewhere_today_is_told_in_one_sentence():
    done = python("import course_lab.simulator.stepper")
    expected = "course_lab.simulator.stepper has moved: look for it in gfxlab.simulator, which holds what "
    assert done.stderr.splitlines()[-1].endswith(f"{expected}course_lab.simulator held")


def test_what_never_was_is_an_ordinary_error():
    assert "No module named 'course_lab.nonsense'" in python("import course_lab.nonsense").stderr
    assert "cannot import name 'nonsense'" in python("from course_lab import nonsense").stderr
