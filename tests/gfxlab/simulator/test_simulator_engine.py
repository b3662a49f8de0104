"""The simulator as the engine of every launch in a block."""

import pytest
import torch

import course_kernels
from course_kernels import launch, reference
from gfxlab.engine import dual_mode
from gfxlab.simulator import using

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_kernels_of_the_course_run_on_it(arch):
    x, weight = torch.randn(3, 576).bfloat16(), torch.randn(576).bfloat16()
    with using(arch) as runs:
        y = course_kernels.rms_norm(x, weight)
    assert [run.program.arch for run in runs] == [arch]
    torch.testing.assert_close(y, reference.rms_norm(x, weight, 1e-6), atol=5e-3, rtol=5e-3)


def test_launches_are_those_of_the_simulated_gpu():
    before = launch.gpu_of(torch.empty(0))
    with using("gfx1100"):
        assert launch.gpu_of(torch.empty(0)).wave == 32
    assert launch.gpu_of(torch.empty(0)) == before


def test_afterwards_kernels_are_interpreted_again(monkeypatch):
    x = torch.randn(4)
    with using("gfx942") as runs:
        course_kernels.vector_add(x, x)
    course_kernels.vector_add(x, x)
    assert len(runs) == 1
    with pytest.raises(ValueError, match="gfx000"), using("gfx000"):
        pass
