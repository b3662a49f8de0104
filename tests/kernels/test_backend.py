"""Who runs a call: the choice, its validation, and what importing the package does to a process."""

import subprocess
import sys

import pytest
import torch

import course_kernels
from course_kernels import backend
from gfxlab.engine import dual_mode


@pytest.fixture
def not_interpreting(monkeypatch):
    if dual_mode.env_interpret():
        pytest.skip("this process was started with TRITON_INTERPRET=1")
    was_enabled = dual_mode.is_interpreting()
    dual_mode.disable()
    yield
    if was_enabled:
        dual_mode.enable()


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints; no variable of ours or of Triton's is set unless given."""
    inherited = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}
    result = subprocess.run([sys.executable, "-c", code], env=inherited | environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


# ---- the choice ----------------------------------------------------------------------------------------------------


def test_the_choice_is_validated():
    for choose in (course_kernels.set_backend, lambda name: course_kernels.use_backend(name).__enter__()):
        with pytest.raises(ValueError, match=r"one of auto, triton, torch; got 'cuda'"):
            choose("cuda")
    assert course_kernels.info()["choice"] == "auto"


def test_a_with_block_puts_the_choice_back_even_after_an_error():
    with pytest.raises(KeyError), course_kernels.use_backend("torch"):
        assert course_kernels.current_backend() == "torch"
        with course_kernels.use_backend("triton"):
            assert course_kernels.current_backend() == "triton"
        raise KeyError
    assert course_kernels.info()["choice"] == "auto"


def test_set_backend_lasts():
    course_kernels.set_backend("torch")
    try:
        assert course_kernels.info()["choice"] == "torch" == course_kernels.current_backend()
    finally:
        course_kernels.set_backend("auto")


def test_the_torch_choice_launches_nothing(device, no_launch):
    with course_kernels.use_backend("torch"):
        course_kernels.vector_add(torch.ones(3, device=device), torch.ones(3, device=device))


def test_auto_takes_triton_where_it_can_run(device):
    assert course_kernels.current_backend() == "triton"
    assert backend.uses_triton(torch.ones(1, device=device))


def test_auto_takes_the_reference_for_cpu_tensors_that_nobody_interprets(not_interpreting, no_launch):
    x = torch.ones(3)
    assert not backend.uses_triton(x)
    assert torch.equal(course_kernels.vector_add(x, x), 2 * x)
    assert course_kernels.current_backend() == ("triton" if torch.cuda.is_available() else "torch")


def test_triton_where_it_cannot_run_is_an_error(not_interpreting):
    x = torch.ones(3)
    with course_kernels.use_backend("triton"), pytest.raises(RuntimeError, match="x is on cpu"):
        course_kernels.vector_add(x, x)


def test_info_names_what_runs(device):
    info = course_kernels.info()
    assert info["backend"] == "triton" and info["torch"] == torch.__version__
    assert (info["gpu"] is not None) == (device == "cuda")


# ---- a fresh process -----------------------------------------------------------------------------------------------


def test_the_variable_is_read_and_none_is_set():
    code = (
        "import os, torch, triton\nbefore = dict(os.environ)\n"
        "import course_kernels\nprint(course_kernels.info()['choice'], dict(os.environ) == before)"
    )
    assert python(code, COURSE_KERNELS_BACKEND="torch") == "torch True"


def test_the_variable_is_validated():
    code = "try:\n    import course_kernels\nexcept ValueError as error:\n    print(error)"
    assert python(code, COURSE_KERNELS_BACKEND="rocm") == (
        "COURSE_KERNELS_BACKEND must be one of auto, triton, torch; got 'rocm'"
    )


def test_the_users_interpreter_rounds_bfloat16_as_the_hardware_does():
    code = (
        "import torch, course_kernels; x = torch.full((1,), 0.01, dtype=torch.bfloat16);"
        "print(course_kernels.current_backend(), course_kernels.vector_add(x, x * 0.004).item())"
    )
    x = torch.full((1,), 0.01, dtype=torch.bfloat16)
    assert python(code, TRITON_INTERPRET="1") == f"triton {(x + x * 0.004).item()}"


HIDE_TRITON = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] == "triton" else find(name, *rest)
"""


def test_without_triton_everything_runs_on_the_reference():
    code = HIDE_TRITON + (
        "import torch, course_kernels as ck\n"
        "x, w = torch.randn(2, 6, requires_grad=True), torch.ones(6)\n"
        "y, r = ck.add_layer_norm(x, ck.vector_add(x, x), w, w)\n"
        "ck.rms_norm(y, w).sum().backward()\n"
        "print(ck.current_backend(), ck.info()['triton'], tuple(x.grad.shape))\n"
        "print(any(name.startswith('triton') for name in sys.modules))\n"
        "try:\n    ck.set_backend('triton'), ck.vector_add(x, x)\nexcept RuntimeError as error:\n    print(error)"
    )
    ran, stand_in_left_behind, refusal = python(code).splitlines()
    assert ran == "torch None (2, 6)"
    assert stand_in_left_behind == "False"
    assert "triton is not installed" in refusal
