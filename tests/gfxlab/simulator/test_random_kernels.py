"""Random small kernels: the interpreter and the simulated machine code must agree in every bit."""

import importlib.util
from pathlib import Path

import pytest
import random_kernels

from gfxlab.engine import dual_mode
from gfxlab.simulator import simulate

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")
PROGRAMS = 3


def make_kernel(seed: int, folder: Path):
    """Write the kernel's file and import it; also its constexprs and options."""
    source, options = random_kernels.text(seed)
    path = folder / f"random_kernel_{seed}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.random_kernel, options, source


def compare(seed: int, folder: Path, arch: str) -> None:
    kernel, options, source = make_kernel(seed, folder)
    interpreted = random_kernels.arguments(seed, options, PROGRAMS)
    was_interpreting = dual_mode.is_interpreting()
    dual_mode.enable()
    try:
        kernel[(PROGRAMS,)](*interpreted, **options)
    finally:
        if not was_interpreting:
            dual_mode.disable()
    simulated = random_kernels.arguments(seed, options, PROGRAMS)
    simulate(kernel, (PROGRAMS,), simulated, arch=arch, profile=False, **options)
    for name, ours, theirs in zip(("out", "count"), simulated[2:4], interpreted[2:4]):
        different = (ours != theirs).nonzero()
        assert not len(different), f"seed {seed}, {arch}: {len(different)} of {name} differ, {options}\n{source}"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_random_kernels(seed, arch, tmp_path):
    compare(seed, tmp_path, arch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 106))
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_many_random_kernels(seed, arch, tmp_path):
    compare(seed, tmp_path, arch)
