"""Code written for a GPU, unmodified, on a GPU that is pretended; and how Triton's tests are drawn and judged."""

import json

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from gfxlab.conformance import plugin
from gfxlab.engine import dual_mode
from gfxlab.pretended import Hazard, pretend
from gfxlab.simulator import IllegalAccess

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, 2 * tl.load(x_ptr + offs, mask=offs < n, other=0.0), mask=offs < n)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_a_script_for_a_gpu_runs_as_it_is(arch):
    with pretend(arch):
        assert torch.cuda.is_available() and torch.version.hip
        assert torch.cuda.get_device_properties(0).gcnArchName == arch
        assert triton.runtime.driver.active.get_current_target().arch == arch
        torch.manual_seed(0)
        x = torch.randn(100, device="cuda")
        y = torch.empty_like(x).to("cuda")
        with torch.cuda.device(x.device):
            kernel = double_kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, 100)
        assert torch.equal(y.cpu(), 2 * x.cpu()) and x.is_cuda
        assert kernel.metadata.target.arch == arch and "s_endpgm" in kernel.asm["amdgcn"]
    assert not torch.cuda.is_available() and not x.is_cuda


def test_who_is_told_of_a_launch_is_who_pretends_now():
    x, told = torch.zeros(64), ([], [])
    for runs in told:
        with pretend("gfx942", runs.append):
            double_kernel.fn[(1,)](x, x.clone(), 64, BLOCK=64)
    assert [len(runs) for runs in told] == [1, 1]


@triton.jit
def by_address_kernel(x_ptr, y_ptr):
    tl.store(y_ptr + tl.program_id(0), tl.load(x_ptr + tl.program_id(0)))


class Pointer:
    """What some libraries pass: an address and a dtype, and no tensor."""

    def __init__(self, tensor):
        self.dtype, self.data_ptr = tensor.dtype, tensor[1:].data_ptr


def test_what_only_knows_its_address_is_the_tensor_that_lies_there():
    with pretend("gfx942"):
        x, y = torch.arange(4.0), torch.zeros(3)
        by_address_kernel[(3,)](Pointer(x), y)
    assert y.tolist() == [1, 2, 3]


@triton.jit
def clash_kernel(out_ptr):
    tl.store(out_ptr, tl.program_id(0))


def test_what_a_launch_does_wrong_is_a_warning_and_what_it_must_not_an_error():
    out = torch.zeros(1, dtype=torch.int32)
    with pretend("gfx942"):
        with pytest.warns(Hazard, match="programs 0 and 1 store different values to element 0 of out_ptr"):
            clash_kernel[(2,)](out)
        with pytest.raises(IllegalAccess, match="element 1 of x_ptr"):
            by_address_kernel[(2,)](out, torch.zeros(4, dtype=torch.int32))


def test_triton_compiles_as_before_once_the_pretence_ends():
    before = triton.runtime.driver.__dict__.copy()
    with pretend("gfx950"), pytest.raises(RuntimeError, match="unknown"), pretend("gfx942"):
        raise RuntimeError("unknown")
    assert triton.runtime.driver.__dict__ == before


# ---- Triton's own tests ----------------------------------------------------------------------------------------------


def test_a_sample_takes_so_many_of_each_function_and_the_same_for_the_same_seed():
    tests = ["a.py::one", *(f"a.py::many[{i}]" for i in range(100)), "b.py::few[0]", "b.py::few[1]"]
    drawn = plugin.sampled(tests, 20, seed=3)
    assert len(drawn) == 23 and {"a.py::one", "b.py::few[0]", "b.py::few[1]"} <= drawn
    assert drawn == plugin.sampled(tests[::1], 20, seed=3) != plugin.sampled(tests, 20, seed=4)
    assert plugin.sampled(tests, 0, seed=3) == set(tests)


def _raised(error, cause=None):
    try:
        raise error from cause
    except BaseException as found:
        return found


@pytest.mark.parametrize(
    ("error", "files", "expected"),
    [
        (AssertionError("Not equal"), ["test_core.py"], "wrong"),
        (AssertionError("not implemented"), ["test_core.py", "/x/triton/compiler/code_generator.py"], "refused"),
        (OutOfResources(1, 2, "shared memory"), ["test_core.py"], "refused"),
        (IllegalAccess("element 3"), ["test_core.py"], "alarm"),
        (ValueError("shapes"), ["test_core.py"], "failed"),
        (plugin.TookTooLong(""), ["/x/triton/compiler/compiler.py"], "failed"),
        (pytest.skip.Exception("needs a Hopper"), [], "skipped"),
    ],
)
def test_how_a_test_ended(error, files, expected):
    assert plugin.outcome_of(_raised(error), files)[0] == expected


def test_what_caused_an_error_counts_too():
    error = _raised(RuntimeError("launch failed"), CompilationError(None, None, "no such operation"))
    assert plugin.outcome_of(error, [])[0] == "refused"


def test_the_last_line_of_a_test_is_its_outcome(tmp_path):
    log = tmp_path / "log"
    log.write_text("\n".join(json.dumps({"test": "t", "outcome": o}) for o in ("started", "passed")) + "\n")
    assert plugin.read(log) == [{"test": "t", "outcome": "passed"}] and plugin.read(tmp_path / "none") == []
