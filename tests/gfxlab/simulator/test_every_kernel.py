"""Every kernel of the course on the simulated GPUs, against the PyTorch reference, with tight tolerances."""

import importlib
import pkgutil
import re

import pytest
import torch
from triton.runtime.jit import JITFunction

import course_kernels
from course_lab.bench import survey
from gfxlab.engine import dual_mode
from gfxlab.simulator import using
from gfxlab.simulator.compiled import extension

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")

# In units of the last place of 1 + |expected|. Half precision: sums in float32, rounded once, and where a function
# rounds twice (add + norm, the P of attention) one more. Single precision: sums of up to 576 products in another order.
WORST = {torch.float32: 48.0, torch.float16: 1.01, torch.bfloat16: 1.01}
QUICK = [("gfx942", torch.bfloat16), ("gfx1100", torch.float16)]  # `make test` takes them in turn


def turn(name: str) -> tuple[str, torch.dtype]:
    """The quick target of a case: every second one goes to the Radeon, if it runs there."""
    second = list(survey.CASES).index(name) % 2 == 1 and name in survey.names("gfx1100")
    return QUICK[second]


def cases():
    for arch in survey.ARCHS:
        for dtype in survey.DTYPES:
            for name in survey.names(arch):
                marks = () if (arch, dtype) == turn(name) else pytest.mark.slow
                yield pytest.param(name, arch, dtype, marks=marks, id=f"{name}-{arch}-{str(dtype)[6:]}")


@pytest.mark.parametrize(("name", "arch", "dtype"), list(cases()))
def test_agrees_with_the_reference(name, arch, dtype):
    assert survey.error(name, arch, dtype).worst <= WORST[dtype]


@pytest.mark.skipif(extension.EXTENSION is None, reason="the extension is not built")
@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "arch", "dtype"), list(cases()))
def test_the_same_without_the_extension(name, arch, dtype, monkeypatch):
    found = []
    for how in ("0", "1"):
        monkeypatch.setenv(extension.VARIABLE, how)
        with using(arch) as runs, course_kernels.use_backend("triton"):
            results = survey.CASES[name](survey.Inputs(dtype, arch))
        bits = [one.contiguous().view(torch.uint8) for one in results]
        found.append((bits, [(run.wrong, run.executed.tolist()) for run in runs]))
    (by_numpy, facts), (compiled, same_facts) = found
    assert same_facts == facts
    assert all(map(torch.equal, by_numpy, compiled))


def test_what_is_rounded_once_is_right_to_the_last_bit():
    for name in ("vector_add", "concat_qk"):
        assert survey.error(name, "gfx942", torch.bfloat16).worst == 0


def kernels_of_the_course() -> set[str]:
    """Names of the kernels: functions decorated with @triton.jit whose name ends in _kernel."""
    names = set()
    for module in pkgutil.iter_modules(course_kernels.__path__):
        for name, value in vars(importlib.import_module(f"course_kernels.{module.name}")).items():
            if isinstance(value, JITFunction) and name.endswith("_kernel"):
                names.add(name)
    return names


@pytest.mark.slow
def test_every_kernel_is_in_the_survey():
    launched = set()
    for name in survey.names("gfx942"):
        with using("gfx942") as runs, course_kernels.use_backend("triton"):
            survey.CASES[name](survey.Inputs(torch.bfloat16, "gfx942"))
        launched |= {run.program.name for run in runs}
    assert kernels_of_the_course() - launched == set()


def test_a_wrong_kernel_shows(monkeypatch):
    case = survey.CASES["vector_add"]
    monkeypatch.setitem(
        survey.CASES,
        "vector_add",
        lambda x: tuple(y + 0.01 * (course_kernels.current_backend() == "triton") for y in case(x)),
    )
    assert survey.error("vector_add", "gfx942", torch.float32).worst > WORST[torch.float32]


def test_the_stored_table_is_whole():
    stored = survey.stored()
    assert {(e.case, e.arch, e.dtype) for e in stored.errors} == {
        (name, arch, str(dtype)[6:]) for arch in survey.ARCHS for dtype in survey.DTYPES for name in survey.names(arch)
    }
    assert {s.case for s in stored.speeds} == set(survey.FOR_SPEED)
    assert re.search(r"\| `matmul` ", survey.table(stored))
