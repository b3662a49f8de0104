"""Who runs a call: the choice, its validation, and what importing the package does to a process."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from kernel_testing import WITHOUT_GPU

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
    inherited = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path)), **WITHOUT_GPU}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:  # a kernel's source is read from its file
        file.write(code)
        file.flush()
        command = [sys.executable, file.name]
        result = subprocess.run(command, env=inherited | environment, capture_output=True, text=True)
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


def test_whoever_calls_is_warned_that_no_kernel_runs(not_interpreting, monkeypatch):
    """Where gfxlab is missing; in the line that called the package."""
    monkeypatch.setattr(backend, "dual_mode", None)
    with pytest.warns(UserWarning, match="PyTorch reference") as seen:
        course_kernels.vector_add(torch.ones(3), torch.ones(3))
    assert [one.filename for one in seen] == [__file__]


def test_triton_where_it_cannot_run_is_an_error(not_interpreting):
    x = torch.ones(3)
    with course_kernels.use_backend("triton"), pytest.raises(RuntimeError, match="x is on cpu"):
        course_kernels.vector_add(x, x)


@pytest.mark.parametrize("gfxlab", ["there", "missing"])
def test_an_error_says_why_triton_cannot_run(gfxlab, not_interpreting, monkeypatch):
    if gfxlab == "missing":
        monkeypatch.setattr(backend, "dual_mode", None)
        monkeypatch.setattr(backend, "_missing", "gfxlab is not installed")
    on_cpu = {"there": "interpreted, and x is on cpu", "missing": "x is on cpu and gfxlab is not installed"}
    for place, why in (("meta", "interpreted, and x is on meta"), ("cpu", on_cpu[gfxlab])):
        with course_kernels.use_backend("triton"), pytest.raises(RuntimeError, match=why):
            backend.uses_triton(torch.ones(3, device=place))


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


USERS_KERNEL = """
import torch, triton, triton.language as tl
@triton.jit
def row_sum(x_ptr, y_ptr, n, wanted, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = (offs < n) & (wanted > 0)
    total = tl.sum(tl.load(x_ptr + offs, mask=mask, other=0.0))
    tl.store(y_ptr + offs, total, mask=mask)
def own():
    x, y = torch.full((20,), 0.01, dtype=torch.bfloat16), torch.zeros(20)
    row_sum[(1,)](x, y, 20, 1, BLOCK=32)
    return round(y[19].item(), 3)
"""


@pytest.mark.parametrize("imported", ["first", "last"])
def test_a_users_own_kernel_is_interpreted_rightly_beside_ours(imported):
    """A block's mask and a scalar's condition: the stock interpreter of Triton 3.9 refuses the mask that they give."""
    ours = "import torch, course_kernels as ck\nassert ck.softmax(torch.ones(3, 40)).sum().round() == 3\n"
    code = ours + USERS_KERNEL if imported == "first" else USERS_KERNEL + ours
    assert python(code + "print(own())", TRITON_INTERPRET="1") == "0.2"


def test_under_the_users_interpreter_every_launch_is_guarded():
    code = USERS_KERNEL + (
        "import course_kernels\n"
        "try:\n    row_sum[(1,)](torch.ones(20), torch.zeros(20), 21, 1, BLOCK=32)\n"
        "except IndexError as error:\n    print(error)"
    )
    assert "reads element 20 of x_ptr, past the end of its 20 elements" in python(code, TRITON_INTERPRET="1")


@pytest.mark.parametrize(
    "families",
    [("vector_add", "softmax"), pytest.param(("paged_attention",), marks=pytest.mark.slow)],
    ids=", ".join,
)
def test_a_part_of_the_kernels_tests_passes_under_the_users_interpreter(families):
    """Nobody calls `gfxlab.enable()` there. `make compat` runs all of them so, on every supported Triton."""
    if dual_mode.env_interpret():
        pytest.skip("they run so here")
    here = Path(__file__).parent
    files = [str(here / f"test_{family}.py") for family in families]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-k",
        "not fp8 and not packed",
        *files,
    ]
    environment = {**os.environ, **WITHOUT_GPU, "TRITON_INTERPRET": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=here.parents[1])
    assert result.returncode == 0, result.stdout[-3000:]


HIDE_GFXLAB = "import sys\nsys.modules['gfxlab'] = None\n"


@pytest.mark.parametrize("environment", [{}, {"TRITON_INTERPRET": "1"}], ids=["plain", "interpreting"])
def test_without_gfxlab_cpu_tensors_take_the_reference_with_one_warning(environment):
    code = HIDE_GFXLAB + (
        "import torch, warnings, course_kernels as ck\n"
        "x = torch.randn(4, 8, requires_grad=True)\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    y = ck.silu_and_mul(ck.rms_norm(x, torch.ones(8)))\n"
        "    torch.compile(ck.softmax, backend='eager', fullgraph=True)(x.detach())\n"
        "    ck.quant_fp8_per_token(x.detach(), torch.float8_e4m3fnuz)\n"
        "y.sum().backward()\n"
        "print(ck.current_backend(), ck.info()['interpreting'], tuple(x.grad.shape), len(seen))\n"
        "print(seen[0].category.__name__, seen[0].filename == __file__, seen[0].message)\n"
        "try:\n    ck.set_backend('triton'), ck.silu_and_mul(x)\nexcept RuntimeError as error:\n    print(error)\n"
    )
    ran, warning, refusal = python(code, **environment).splitlines()
    assert ran == "torch False (4, 8) 1"
    assert warning.startswith("UserWarning True tensors on the CPU") and "gfxlab is not installed" in warning
    assert "PyTorch reference" in warning and "pip install" in warning
    assert "gfxlab is not installed" in refusal and "move x to a GPU" in refusal


def test_without_gfxlab_and_without_triton_nobody_is_warned():
    code = (
        HIDE_TRITON
        + HIDE_GFXLAB
        + (
            "import torch, warnings\nwarnings.simplefilter('error')\n"
            "import course_kernels as ck\nprint(ck.softmax(torch.zeros(1, 2)).tolist())"
        )
    )
    assert python(code) == "[[0.5, 0.5]]"


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
