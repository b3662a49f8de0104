"""Code written for a GPU, unmodified, on a GPU that is pretended; and how Triton's tests are drawn and judged."""

import copy
import json
import math
import pickle
import re
import sys
import threading
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from torch.utils.checkpoint import checkpoint
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from gfxlab.conformance import outcomes, plugin, survey
from gfxlab.engine import dual_mode
from gfxlab.pretended import CannotPretend, Hazard, benchmarks, pretend
from gfxlab.simulator import IllegalAccess

REAL = bool(torch.version.cuda or torch.version.hip)
pytestmark = [
    pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile"),
    pytest.mark.skipif(REAL, reason="this PyTorch is built for a real GPU"),
]

if not REAL:  # autograd counts the devices once in a process, at its first gradient: this file is collected before that
    with pretend("gfx942"):
        torch.ones(1, device="cuda", requires_grad=True).sum().backward()


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
    assert not torch.cuda.is_available() and x.is_cuda and x.cpu().device.type == "cpu"  # what was made lives on


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_a_softmax_of_16_bits_into_32(function):
    """On a device it is one operation, for which the CPU has no code."""
    values, weights = torch.randn(3, 33, generator=torch.manual_seed(0)).half(), torch.randn(3, 33)
    with pretend("gfx942"):
        x = values.cuda().requires_grad_()
        y = function(x, -1, dtype=torch.float32)
        (y * weights.cuda()).sum().backward()
        expected = values.float().requires_grad_()
        wide = function(expected, -1)
        (wide * weights).sum().backward()
        torch.testing.assert_close(y.cpu(), wide)
        torch.testing.assert_close(x.grad.cpu(), expected.grad.half(), rtol=1e-3, atol=1e-4)


def test_what_only_a_gpu_build_of_pytorch_has():
    with pretend("gfx942"):
        x = torch.ones(3, device="cuda")
        assert x.type(torch.cuda.HalfTensor).dtype == x.type("torch.cuda.HalfTensor").dtype == torch.float16
        assert x.cpu().type(torch.cuda.FloatTensor).is_cuda and x.type() == "torch.cuda.FloatTensor"
        assert (
            torch.cuda.cudart().cudaMemGetInfo(0) == torch.cuda.mem_get_info() and torch.cuda.get_sync_debug_mode() == 0
        )
        torch.cuda.profiler.start()
        with pytest.raises(CannotPretend, match="set_sync_debug_mode"):
            torch.cuda.set_sync_debug_mode("error")
        with pytest.raises(CannotPretend, match="a sparse tensor cannot be pretended"):
            torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (2,), device="cuda")
        given = (torch.tensor([[1, 2]]).cuda(), torch.tensor([5]), torch.tensor([2]))
        assert torch.nn.functional.ctc_loss(torch.randn(5, 1, 4).log_softmax(-1).cuda(), *given).is_cuda
        curvature = torch.func.hessian(lambda t: (t**3).sum())(x)
        assert curvature.is_cuda and torch.equal(curvature.cpu(), 6 * torch.eye(3))
        assert triton.testing.get_dram_gbps() == pytest.approx(5300, rel=0.01)  # AMD's data sheet of the MI300X


def test_a_generator_s_state_is_a_seed_and_an_offset():
    """Libraries of kernels read it and draw on from there (Philox: by fours)."""
    with pretend("gfx942"):
        torch.cuda.manual_seed(5)
        drawn = torch.rand(8, device="cuda")
        seed, offset = torch.cuda.default_generators[0].get_state().view(torch.int64).tolist()
        assert seed == 5 and offset > 0 and offset % 4 == 0
        state = torch.cuda.get_rng_state()
        after = torch.rand(8, device="cuda")
        assert not torch.equal(drawn, after)
        torch.cuda.set_rng_state(state)
        assert torch.equal(after, torch.rand(8, device="cuda"))
        with pytest.raises(RuntimeError, match="wrong size"):
            torch.cuda.set_rng_state(torch.random.get_rng_state())


def _complex_work(x, y):
    """Conjugates are bits of a tensor, which an operation obeys or resolves; so are signs of imaginary parts."""
    product = x.conj() * y
    product.abs().sum().backward()
    left, _, right = torch.linalg.svd(x.detach().mH @ y.detach())
    written = torch.zeros_like(x)
    written.conj().copy_(x.detach())
    whole = [product, x.grad, y.grad, x.mH @ y, torch.vdot(x[0], y[0]), written, x.conj()[1:].clone()]
    parts = [x.conj().imag, x.conj().imag.exp(), torch.view_as_real(x.conj().resolve_conj()), left.abs(), right.abs()]
    return [value.detach().cpu().resolve_conj().resolve_neg() for value in (*whole, *parts)]


def test_a_conjugate_is_one_on_the_device_too(gpu):
    x, y = torch.randn(2, 3, 4, dtype=torch.complex128, generator=torch.manual_seed(0))
    here = _complex_work(x.clone().requires_grad_(), y.clone().requires_grad_())
    there = _complex_work(x.cuda().requires_grad_(), y.cuda().requires_grad_())
    for ours, expected in zip(there, here, strict=True):
        torch.testing.assert_close(ours, expected)


def test_a_generator_may_be_given_by_its_place(gpu):
    """torch.poisson's is no keyword in PyTorch's schema."""
    generator = torch.Generator("cuda")
    drawn = [torch.poisson(torch.full((50,), 3.0, device="cuda"), generator.manual_seed(1)) for _ in range(2)]
    assert torch.equal(*drawn) and drawn[0].std() > 0


@pytest.mark.parametrize("masked", [torch.float32, torch.bool, None])
def test_attention_obeys_its_mask(masked):
    q, k, v = torch.randn(3, 2, 4, 16, 8, generator=torch.manual_seed(0))
    seen = torch.rand(2, 1, 16, 16) < 0.5
    seen[0, 0, 3] = False  # a query that sees nothing gets zeros
    mask = seen if masked == torch.bool else torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)
    given = [q, k, v, mask]
    given, causal = (given[:3], True) if masked is None else (given, False)
    expected = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=causal)
    with pretend("gfx942"):
        found = torch.nn.functional.scaled_dot_product_attention(*(x.cuda() for x in given), is_causal=causal).cpu()
    torch.testing.assert_close(found, expected)


def test_gloo_on_tensors_of_the_device(tmp_path):
    with pretend("gfx942"):
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        try:
            x, gathered = torch.full((3,), 2.0, device="cuda"), [torch.zeros(3, device="cuda")]
            torch.distributed.all_reduce(x, async_op=True).wait()
            torch.distributed.all_gather(gathered, x)
            assert x.is_cuda and gathered[0].is_cuda and gathered[0].tolist() == [2.0] * 3
        finally:
            torch.distributed.destroy_process_group()


def test_a_compiled_kernel_that_is_given_too_little_says_what_it_takes():
    with pretend("gfx942"):
        kernel = double_kernel.fn.warmup(torch.float32, torch.float32, 64, BLOCK=64, grid=(1,))
        with pytest.raises(TypeError, match="double_kernel takes x_ptr, y_ptr, n, BLOCK: 4 arguments, not 2"):
            kernel[(1, 1, 1)](torch.ones(64, device="cuda"), 64)


def test_who_is_told_of_a_launch_is_who_pretends_now():
    told = ([], [])
    for runs in told:
        with pretend("gfx942", runs.append):
            x = torch.zeros(64, device="cuda")
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
        x, y = torch.arange(4.0, device="cuda"), torch.zeros(3, device="cuda")
        by_address_kernel[(3,)](Pointer(x), y)
    assert y.tolist() == [1, 2, 3]


@triton.jit
def clash_kernel(out_ptr):
    tl.store(out_ptr, tl.program_id(0))


def test_what_a_launch_does_wrong_is_a_warning_and_what_it_must_not_an_error():
    with pretend("gfx942"):
        out = torch.zeros(1, dtype=torch.int32, device="cuda")
        with pytest.warns(Hazard, match="programs 0 and 1 store different values to element 0 of out_ptr"):
            clash_kernel[(2,)](out)
        with pytest.raises(IllegalAccess, match="element 1 of x_ptr"):
            by_address_kernel[(2,)](out, torch.zeros(4, dtype=torch.int32, device="cuda"))


def test_a_kernel_reaches_the_rest_of_a_storage_and_is_told_of():
    with pretend("gfx942"):
        rows, out = torch.arange(12.0, device="cuda").view(3, 4), torch.zeros(12, device="cuda")
        with pytest.warns(Hazard, match="element 4 of x_ptr, past the end of its 4 elements, in the same storage"):
            by_address_kernel[(12,)](rows[0], out)
        assert torch.equal(out.view(3, 4), rows)
        with pytest.raises(IllegalAccess, match="past the end of its 12 elements"):
            by_address_kernel[(13,)](rows[0], torch.zeros(13, device="cuda"))


def test_triton_compiles_as_before_once_the_pretence_ends():
    before = triton.runtime.driver.__dict__.copy()
    with pretend("gfx950"), pytest.raises(RuntimeError, match="unknown"), pretend("gfx942"):
        raise RuntimeError("unknown")
    assert triton.runtime.driver.__dict__ == before


# ---- the device ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu():
    with pretend("gfx942") as target:
        yield target


def test_a_tensor_lives_where_it_was_made_and_views_and_results_with_it(gpu):
    x, here = torch.arange(6.0, device="cuda").view(2, 3), torch.zeros(3)
    x[1, ::2] += 1
    assert not here.is_cuda and x.is_cuda and x.t()[1:].is_cuda and (x @ x.t()).device == torch.device("cuda:0")
    assert x.t().untyped_storage().data_ptr() == x.data_ptr() and x.tolist() == [[0, 1, 2], [4, 4, 6]]
    assert x.cpu().device.type == "cpu" and x.sum().item() == 17 and "device='cuda:0'" in repr(x)
    back = torch.empty(2, 3)
    back.copy_(x)
    assert torch.equal(back, x.cpu()) and torch.equal(x, back.cuda())
    assert torch.nn.Linear(3, 2).cuda()(x).is_cuda and torch.empty_like(x, device="cpu").device.type == "cpu"


@pytest.mark.parametrize(
    ("mix", "error", "says"),
    [
        (lambda x: x + torch.ones(4), RuntimeError, "at least two devices, cuda:0 and cpu"),
        (lambda x: torch.cat([torch.ones(4), x]), RuntimeError, "at least two devices"),
        (lambda x: x.numpy(), TypeError, "can't convert cuda:0"),
        (lambda x: torch.zeros(1, device="cuda:1"), RuntimeError, "invalid device ordinal"),
        (lambda x: by_address_kernel[(1,)](x, torch.ones(1)), ValueError, "cpu tensor.*y_ptr is on cpu"),
        (lambda x: torch.randn(2, device="cuda", generator=torch.Generator()), RuntimeError, "'cuda' device type"),
        (lambda x: torch.cuda.CUDAGraph(), CannotPretend, "torch.cuda.CUDAGraph needs a real GPU"),
    ],
)
def test_what_a_card_refuses_is_refused(gpu, mix, error, says):
    with pytest.raises(error, match=says):
        mix(torch.ones(4, device="cuda"))


def test_a_number_and_indices_of_the_cpu_may_stand_beside_the_device(gpu):
    x = torch.arange(4.0, device="cuda")
    assert (x + torch.tensor(1.0)).is_cuda and x[torch.tensor([3, 0])].tolist() == [3, 0]


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        (lambda: torch.cuda.get_device_name(1), RuntimeError, "one GPU, cuda:0"),
        (lambda: torch.cuda.Stream(1), RuntimeError, "one GPU, cuda:0"),
        (lambda: torch.Generator("cuda:1"), RuntimeError, "one GPU, cuda:0"),
        (lambda: torch.empty(1 << 45, device="cuda"), torch.cuda.OutOfMemoryError, "Tried to allocate 128 TiB: .* 192"),
        (lambda: torch.eye(3, device="cuda").to_sparse(), CannotPretend, "layout torch.sparse_coo"),
        (lambda: torch._C._cuda_memorySnapshot(None), CannotPretend, "_cuda_memorySnapshot needs a real GPU"),
        (lambda: torch._fused_dropout(torch.ones(3, device="cuda"), 0.5), CannotPretend, "_fused_dropout has no code"),
        (lambda: torch.cuda.temperature(), CannotPretend, "torch.cuda.temperature needs a real GPU"),
    ],
)
def test_what_there_is_not_is_said_in_a_sentence(gpu, asked, error, says):
    with pytest.raises(error, match=says):
        asked()
    assert not hasattr(torch._C, "_cuda_no_such_name")


def test_a_hip_extension_is_refused_and_one_for_the_host_is_not(gpu):
    from torch.utils import cpp_extension

    with pytest.raises(CannotPretend, match="load_inline builds a HIP extension"):
        cpp_extension.load_inline("x", cpp_sources="", cuda_sources="__global__ void f() {}", functions=[])
    assert torch.utils.cpp_extension.CppExtension("x", ["x.cpp"]).name == "x"


def test_pinned_memory_is_known_and_a_kernel_may_have_it(gpu):
    kinds = (torch.empty(5, pin_memory=True), torch.zeros(5, pin_memory=True), torch.zeros(5).pin_memory())
    assert all(kind.is_pinned() for kind in kinds) and not torch.zeros(5).is_pinned()
    out = torch.zeros(3, pin_memory=True)
    by_address_kernel[(3,)](torch.arange(3.0, device="cuda"), out)
    assert out.tolist() == [0, 1, 2]


def test_the_most_memory_that_was_in_use_is_known_after_it_is_free(gpu):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device="cuda")
    del x
    assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() == before + (4 << 20)
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == before + (4 << 20)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_a_cell_in_one_operation_computes_what_the_cpu_does(gpu, kind):
    torch.manual_seed(0)
    here, x = kind(4, 5, batch_first=True), torch.randn(2, 3, 4)
    there = copy.deepcopy(here).cuda()
    for module, given in ((here, x), (there, x.cuda())):
        module(given)[0].square().sum().backward()
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        assert other.grad.is_cuda
        torch.testing.assert_close(other.grad.cpu(), one.grad)


def test_a_product_of_8_bit_floats_is_scaled(gpu):
    a, b = (torch.randn(16, 32, device="cuda").to(torch.float8_e4m3fnuz) for _ in range(2))
    two = torch.tensor(2.0, device="cuda")
    product = torch._scaled_mm(a, b.t(), scale_a=two, scale_b=two, out_dtype=torch.float32)
    torch.testing.assert_close(product, 4 * a.float() @ b.float().t())


def test_a_library_may_put_its_own_operations_in_place_of_the_devices(gpu):
    mine = torch.library.Library("aten", "IMPL")
    mine.impl("abs", lambda x: torch.full_like(x, 7.0), "CUDA")
    x = -torch.ones(2, device="cuda")
    assert x.abs().tolist() == [7, 7] and x.cpu().abs().tolist() == [1, 1]
    mine._destroy()
    assert x.abs().tolist() == [1, 1]


def test_products_are_made_into_a_wider_dtype(gpu):
    a, b, c = (torch.randn(2, 4, 4, device="cuda").half() for _ in range(3))
    wide = a.float() @ b.float()
    torch.testing.assert_close(torch.bmm(a, b, out_dtype=torch.float32), wide)
    torch.testing.assert_close(torch.mm(a[0], b[0], out_dtype=torch.float32), wide[0])
    out = torch.empty(4, 4, device="cuda")
    torch.addmm(c[0], a[0], b[0], out_dtype=torch.float32, beta=2, out=out)
    torch.testing.assert_close(out, 2 * c[0].float() + wide[0])


def test_proton_keeps_scopes_and_counts_and_has_no_time(gpu, tmp_path):
    import triton.profiler as proton

    x = torch.ones(64, device="cuda")
    proton.start(str(tmp_path / "found"), hook="triton")
    with proton.scope("twice", {"flops": 64.0}):
        for _ in range(2):
            double_kernel.fn[(1,)](x, torch.empty_like(x), 64, BLOCK=64)
    proton.finalize()
    root, devices = json.loads((tmp_path / "found.hatchet").read_text())
    (scope,) = root["children"]
    kernel = scope["children"][0]["children"][0]
    assert scope["frame"]["name"] == "twice" and scope["metrics"]["flops"] == 64 and "HIP" in devices
    assert kernel["frame"]["name"] == "double_kernel" and kernel["metrics"]["count"] == 2
    assert math.isnan(kernel["metrics"]["time (ns)"]) and kernel["metrics"]["wave_instructions"] > 0


def test_a_generator_of_the_cpu_is_not_taken_for_one_of_the_device_that_lay_at_its_address(gpu):
    addresses = {torch.Generator("cuda")._cdata for _ in range(20)}  # each is gone before the next one comes
    of_cpu = [torch.Generator() for _ in range(20)]
    assert addresses & {one._cdata for one in of_cpu}
    for generator in of_cpu:
        with pytest.raises(RuntimeError, match="'cuda' device type"):
            torch.randn(2, device="cuda", generator=generator)


def test_classes_of_before_dtypes_are_on_the_device(gpu):
    assert torch.cuda.FloatTensor([1, 2]).is_cuda and torch.cuda.LongTensor(3).shape == (3,)
    assert isinstance(torch.ones(1, device="cuda"), torch.cuda.FloatTensor)
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    try:
        assert torch.ones(1).is_cuda and torch.ones(1).dtype == torch.float16
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _doubled(x)

    @staticmethod
    def backward(ctx, gradient):
        assert gradient.is_cuda and torch.zeros(1, device="cuda").is_cuda
        return _doubled(gradient.contiguous())


def _doubled(x):
    y = torch.empty_like(x)
    double_kernel.fn[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y


def test_backward_runs_on_the_device_in_the_thread_that_pytorch_gives_it(gpu):
    x = torch.randn(100, device="cuda", requires_grad=True)
    (Double.apply(x).sin() * 3).sum().backward()
    torch.testing.assert_close(x.grad, 6 * torch.cos(2 * x.detach()))


def test_another_thread_sees_the_same_device(gpu):
    found = []
    thread = threading.Thread(target=lambda: found.append(_doubled(torch.ones(5, device="cuda"))))
    thread.start()
    thread.join()
    assert found[0].is_cuda and found[0].tolist() == [2] * 5


def test_random_numbers_of_the_device_are_a_stream_of_their_own(gpu):
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        torch.randn(7)
        draws.append((torch.randn(3, device="cuda").tolist(), torch.randn(3).tolist()))
    assert draws[0] == draws[1] and draws[0][0] != draws[0][1]
    made = torch.Generator(device="cuda").manual_seed(9)
    first = torch.rand(2, device="cuda", generator=made)
    assert made.device == torch.device("cuda:0") and isinstance(made, torch.Generator)
    assert torch.equal(first, torch.rand(2, device="cuda", generator=made.manual_seed(9)))


def test_what_was_saved_on_the_device_is_loaded_on_it(gpu, tmp_path):
    torch.save({"x": torch.ones(3, device="cuda")}, tmp_path / "x")
    assert torch.load(tmp_path / "x")["x"].is_cuda
    assert not torch.load(tmp_path / "x", map_location="cpu")["x"].is_cuda


def test_a_copy_and_a_default_device_keep_to_the_device(gpu, tmp_path):
    x = torch.arange(6.0, device="cuda").view(2, 3).t()
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert again.is_cuda and torch.equal(again, x) and again.data_ptr() != x.data_ptr()
    torch.set_default_device("cuda")
    try:
        y = torch.ones(70)
        assert y.is_cuda and _doubled(y).tolist() == [2] * 70
        torch.save(y, tmp_path / "y")
        assert torch.load(tmp_path / "y").is_cuda
        double_kernel[(2,)](y, torch.empty_like(y), 70)  # tunes
    finally:
        torch.set_default_device(None)


def test_gradients_of_a_norm_are_summed_in_32_bits_as_on_a_card(gpu):
    weight, bias = (torch.rand(64, device="cuda").half().requires_grad_() for _ in range(2))
    x, dy = (torch.randn(2000, 64, device="cuda").half() for _ in range(2))
    torch.nn.functional.layer_norm(x, (64,), weight, bias).backward(dy)
    torch.testing.assert_close(bias.grad.float(), dy.float().sum(0), rtol=1e-3, atol=0.05)
    normal = torch.nn.functional.layer_norm(x.float(), (64,))
    torch.testing.assert_close(weight.grad.float(), (dy.float() * normal).sum(0), rtol=1e-3, atol=0.05)


def test_indices_and_values_of_the_wrong_device_are_refused_as_on_a_card(gpu):
    x, here = torch.ones(3, device="cuda"), torch.ones(3)
    with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same device .*\(cpu\)"):
        here[torch.tensor([0], device="cuda")]
    with pytest.raises(RuntimeError, match="same device"):
        x[x > 0] = here
    x[torch.tensor([0, 1])] = torch.tensor(4.0)  # the CPU's indices and single numbers are moved
    assert x.tolist() == [4, 4, 1]


def test_the_profiler_tells_of_the_cpu_and_is_quiet_about_the_device(gpu, capfd):
    both = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    x = torch.ones(3, device="cuda")
    with torch.profiler.profile(activities=both) as seen, torch.autograd.profiler.emit_nvtx():
        x + 1
    assert "aten::add" in {event.name for event in seen.events()}
    assert "Failed to record" not in capfd.readouterr().err
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() > 0


SPAWNING = """
import multiprocessing, pathlib, sys, torch
def work(file):
    pathlib.Path(file).write_text(f"{torch.cuda.get_device_name()} {torch.ones(1).cuda()}")
if __name__ == "__main__":
    p = multiprocessing.get_context("spawn").Process(target=work, args=sys.argv[1:])
    p.start(), p.join()
    raise SystemExit(p.exitcode)
"""


def test_a_spawned_process_has_the_gpu_too(gfxlab, tmp_path):
    (tmp_path / "script.py").write_text(SPAWNING)
    status, _, error = gfxlab("run", "--arch", "gfx1100", str(tmp_path / "script.py"), str(tmp_path / "said"))
    assert status == 0 and (tmp_path / "said").read_text() == "RX 7900 XTX tensor([1.], device='cuda:0')", error


def test_a_kernel_finds_its_cache_by_the_number_of_the_device(gpu):
    _doubled(torch.ones(5, device="cuda"))
    assert len(double_kernel.fn.device_caches[torch.cuda.current_device()][0]) > 0


def test_nothing_is_timed_but_counted(gpu, capsys):
    x = torch.ones(64 * 100, device="cuda")
    time = triton.testing.do_bench(lambda: double_kernel.fn[(100,)](x, x, x.numel(), BLOCK=64))
    assert math.isnan(time) and time.launches == 1 and time.instructions % 100 == 0 and time.instructions > 1000
    assert f"double_kernel (grid 100) {time.instructions:,} wave-instructions" in capsys.readouterr().err
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(), end.record()
    assert math.isnan(start.elapsed_time(end))


def test_a_backward_pass_is_counted_too_and_another_thread_does_its_work(gpu):
    x, found = torch.randn(64 * 100, device="cuda", requires_grad=True), []
    y = Double.apply(x)

    def both():
        y.backward(torch.ones_like(y), retain_graph=True)
        thread = threading.Thread(target=lambda: found.append(_doubled(torch.ones(200, device="cuda"))))
        thread.start(), thread.join()

    time = triton.testing.do_bench(both)
    assert time.launches == 1 and time.instructions % 100 == 0  # backward's, as if whole
    assert found[0].tolist() == [2] * 200


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_draws_the_same_numbers_again(gpu, reentrant):
    x = torch.ones(64, device="cuda", requires_grad=True)
    y = checkpoint(lambda t: torch.nn.functional.dropout(3 * t, 0.5), x, use_reentrant=reentrant)
    y.sum().backward()
    assert 0 < (y != 0).sum() < 64 and torch.equal(x.grad, y.detach())


def test_streams_that_others_made_have_their_address(gpu):
    stream = torch.cuda.Stream()
    assert torch.cuda.ExternalStream(stream.cuda_stream, device="cuda") == stream
    least, greatest = torch.cuda.Stream.priority_range()
    assert least >= greatest and torch.cuda.memory_snapshot() == []


@pytest.fixture
def benchmark(monkeypatch):
    """Runs a function as a row of a `perf_report`: as Triton does, whose table asks for pandas."""

    def rows(mark, bench, *args, **options):
        return [mark.fn(N=size, provider=line) for size in bench.x_vals for line in bench.line_vals]

    def run(row):
        about = {"x_names": ["N"], "x_vals": [100], "line_arg": "provider", "line_vals": ["triton"]}
        report = triton.testing.Benchmark(**about, line_names=["Triton"], plot_name="", args={})
        return triton.testing.perf_report(report)(row).run(return_df=True)

    monkeypatch.setattr(triton.testing.Mark, "_run", rows)
    return run


@pytest.mark.parametrize("long_launch", [False, True])
def test_what_a_benchmark_has_no_time_for_is_counted(gpu, monkeypatch, capsys, benchmark, long_launch):
    """Its first launch ends, or is ended in the midst when it is long; the second is not executed."""
    monkeypatch.setattr("gfxlab.simulator.core.progress._SILENCE", -1.0 if long_launch else 2.0)
    x, first, second = (torch.zeros(64 * 4000, device="cuda") + value for value in (1, 0, 0))

    def row(N, provider):
        for y in (first, second):
            double_kernel.fn[(4000,)](x, y, x.numel(), BLOCK=64)
        time = triton.testing.do_bench(lambda: double_kernel.fn[(4000,)](x, y, x.numel(), BLOCK=64))
        assert time.launches == 1 and time.instructions % 4000 == 0
        return time

    with benchmarks.limited(1e-9) as names:
        (time,) = benchmark(row)
    said = capsys.readouterr().err
    assert names == ["row, N=100, provider=triton"] and said.count("(--bench-limit)") == 1
    assert "it counts double_kernel" in said and math.isnan(time)
    done = int((first.cpu() != 0).sum())
    assert 4 * 64 <= done < 64 * 4000 if long_launch else done == 64 * 4000
    assert int((second.cpu() != 0).sum()) == 4 * 64  # four programs of it


def test_a_benchmark_with_time_does_all_its_work(gpu, capsys, benchmark):
    def row(N, provider):
        x = torch.ones(N, device="cuda")
        y = torch.zeros_like(x)
        double_kernel.fn[(2,)](x, y, N, BLOCK=64)
        return y.sum().item()

    with benchmarks.limited() as names:
        assert benchmark(row) == [200.0]
    assert not names and "--bench-limit" not in capsys.readouterr().err


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 256}, num_warps=16)], key=[])
@triton.jit
def turn_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    rows = tl.load(x_ptr + i[:, None] * BLOCK + i[None, :])
    tl.store(y_ptr + i[:, None] * BLOCK + i[None, :], tl.trans(rows))


def test_tuning_prunes_what_does_not_fit_and_chooses_by_a_count(gpu, capsys):
    x = torch.ones(256, 256, device="cuda")
    turn_kernel[(1,)](x, torch.empty_like(x))
    said = capsys.readouterr().err
    assert "chosen (*) by the fewest wave-instructions" in said
    assert re.search(r"\* +BLOCK=16 num_warps=4 .* \d+$", said, re.MULTILINE)
    assert re.search(r"BLOCK=256 .*does not fit: [\d,]+ of 65,536 bytes of shared memory", said)


@pytest.mark.parametrize("cpu_tensors", [False, True])
def test_a_block_inside_leaves_the_tuning_of_the_block_around_it(gpu, capsys, cpu_tensors):
    with pretend("gfx1100", cpu_tensors=cpu_tensors):
        pass
    x = torch.ones(64, 4, device="cuda", dtype=[torch.float16, torch.bfloat16][cpu_tensors])  # tuned anew for each
    double_kernel[(4,)](x, x, 250)
    assert "double_kernel on gfx942: 2 configurations" in capsys.readouterr().err


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_what_was_compiled_is_kept_under_the_device_that_pytorch_names(arch):
    with pretend(arch):
        x = torch.zeros(64, device="cuda")
        compiled = double_kernel.fn[(1,)](x, x.clone(), 64, BLOCK=64)
        assert torch.cuda.current_device() == 0 and torch.empty(1, device=torch.cuda.current_device()).is_cuda
        kept = double_kernel.fn.device_caches[torch.cuda.current_device()][0]
        assert [kernel.metadata.target.arch for kernel in kept.values()] == [arch] * len(
            kept
        ) and compiled in kept.values()


def test_a_compiled_kernel_knows_its_registers(gpu):
    x = torch.ones(64, device="cuda")
    kernel = double_kernel.fn.warmup(x, x, 64, BLOCK=64, grid=(1,))
    kernel._init_handles()
    assert f".vgpr_count:     {kernel.n_regs}" in kernel.asm["amdgcn"] and kernel.n_regs > 0


SCRIPT = """
import sys, torch, triton, triton.language as tl
@triton.jit
def one_kernel(x_ptr):
    tl.store(x_ptr + tl.program_id(0), 1.0)
x = torch.zeros(3, device="cuda")
one_kernel[(3,)](x)
print(sys.argv[1:], x.tolist(), torch.cuda.get_device_properties(0).gcnArchName)
sys.exit(int(sys.argv[2]))
"""


def test_run_is_python_with_a_gpu(gfxlab, tmp_path):
    (tmp_path / "one.py").write_text(SCRIPT)
    status, output, error = gfxlab(
        "run", "--arch", "gfx1100", "--json", "--bench-limit", "1", str(tmp_path / "one.py"), "--n", "3"
    )
    assert status == 3 and "['--n', '3'] [1.0, 1.0, 1.0] gfx1100\n" in error
    assert "gfx1100 pretended: 1 launch of 1 kernel," in error
    told = json.loads(output)
    assert told["status"] == 3 and told["kernels"]["one_kernel"]["launches"] == 1 and told["hazards"] == []
    for wrong, says in ((("nowhere.py",), "There is no file nowhere.py"), (("-m", "nowhere_at_all"), "nowhere_at_all")):
        status, _, error = gfxlab("run", *wrong)
        assert status == (1 if "-m" in wrong else 2) and says in error and len(error.splitlines()) == 1


SUITE = """
import torch
HERE = torch.cuda.get_device_properties(0).gcnArchName  # asked while the file is imported
def test_it():
    assert HERE == "gfx1201" and torch.ones(2, device="cuda").sum().item() == 2
"""


LAUNCHING = """
import torch, triton, triton.language as tl

@triton.jit
def one_kernel(x_ptr):
    tl.store(x_ptr, 1.0)

def test_one():
    x = torch.zeros(1, device="cuda")
    one_kernel[(1,)](x)
    assert x.item() == 1
"""


def test_a_suite_runs_on_the_gpu_that_pytest_is_given(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others' plugins take seconds to load
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "test_launching.py").write_text(LAUNCHING)

    def run(*options):
        for name in ("test_suite", "test_launching"):
            sys.modules.pop(name, None)
        plugins = ["-p", "gfxlab.pytest_plugin", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
        return pytest.main([*plugins, "-q", str(tmp_path), *options]), *capfd.readouterr()

    status, said, _ = run("--gfx-arch", "gfx1201")
    assert status == 0 and "gfx1201) pretended: 1 launch of 1 kernel" in said, said
    status, said, _ = run("--gfx-arch", "gfx942")
    assert status == 1 and "1 failed, 1 passed" in said and 'assert ("gfx942' in said.replace("'", '"'), said
    status, said, _ = run("--gfx-arch", "gfx1201", "-p", "xdist", "-n", "1")  # a new process, which hands its counts on
    assert status == 0 and "gfx1201) pretended: 1 launch of 1 kernel" in said, said
    status, _, said = run("--gfx-arch", "gfx1")
    assert status == 4 and "--gfx-arch gfx1 is unknown" in said


# ---- Triton's own tests ----------------------------------------------------------------------------------------------


def test_a_sample_takes_so_many_of_each_function_and_the_same_for_the_same_seed():
    tests = ["a.py::one", *(f"a.py::many[{i}]" for i in range(100)), "b.py::few[0]", "b.py::few[1]"]
    drawn = plugin.sampled(tests, 20, seed=3)
    assert len(drawn) == 23 and {"a.py::one", "b.py::few[0]", "b.py::few[1]"} <= drawn
    assert drawn == plugin.sampled(tests[::1], 20, seed=3) != plugin.sampled(tests, 20, seed=4)
    assert plugin.sampled(tests, 0, seed=3) == set(tests)


def test_a_survey_that_is_cut_off_has_run_some_of_every_function():
    items = [SimpleNamespace(nodeid=name) for name in ("a[0]", "a[1]", "a[2]", "b", "c[x]", "c[y]")]
    assert [item.nodeid for item in plugin.in_turns(items)] == ["a[0]", "b", "c[x]", "a[1]", "c[y]", "a[2]"]


def test_a_survey_goes_on_where_pytest_itself_fails_while_it_reports_a_test(tmp_path, monkeypatch):
    """And gives up where it fails before the first one."""
    (tmp_path / survey.FOLDER).mkdir(parents=True)
    (tmp_path / survey.FOLDER / "test_core.py").touch()
    starts = []

    def run(children, folder, targets, log, **options):
        starts.append(log)
        if len(starts) == 1:
            log.write_text('{"test": "a", "outcome": "failed", "why": "TookTooLong"}\n')
        return len(starts) == 2

    monkeypatch.setattr(survey, "_run", run)
    report = survey.conformance(tmp_path, archs=["gfx942"], logs=tmp_path / "logs")
    assert len(starts) == 2 and report.counts("gfx942")["late"] == 1
    with pytest.raises(RuntimeError, match="ended before the first test"):
        survey.conformance(tmp_path, archs=["gfx942"], logs=tmp_path / "logs")


ALARM = "IllegalAccess: lane 0 of wave 0 of program 0 stores element 3 of X, past the end of its 1 elements (line 30)"


@pytest.mark.parametrize(
    "test, outcome, why, counted",
    [
        ("test_annotations.py::test_int_annotation[True-8]", "alarm", ALARM, "outside"),
        ("test_annotations.py::test_int_annotation[True-8]", "wrong", ALARM, "wrong"),
        ("test_annotations.py::test_int_annotation[True-8]", "alarm", "IllegalAccess: loads element 3 of Y", "alarm"),
        ("test_core.py::test_dot[1-2]", "alarm", ALARM, "alarm"),
        ("test_core.py::test_cat[False-int8-4]", "wrong", "Tensor-likes are not equal!", "wrong"),
        ("test_core.py::test_scan2d[cumprod-float32-a]", "wrong", "Not equal to tolerance", "wrong"),
        ("test_core.py::test_dot[1-2]", "failed", "TookTooLong: the time limit of a test", "late"),
        ("test_core.py::test_dot[1-2]", "failed", "KeyError: 3", "failed"),
        ("test_core.py::test_scaled_dot[64-e5m2-fp16-4]", "wrong", "Tensor-likes are not close!", "wrong"),  # on MI200
    ],
)
def test_only_what_fits_a_known_reason_in_every_word_is_counted_apart(test, outcome, why, counted):
    report = survey.Report("triton", 0, 20, {"gfx942": [{"test": test, "outcome": outcome, "why": why}]})
    assert [name for name, count in report.counts("gfx942").items() if count] == [counted]
    assert (counted == "outside") == ("the alarm is true" in str(report))


@pytest.mark.slow
def test_a_file_that_cannot_be_imported_does_not_end_the_survey(tmp_path):
    """test_random.py asks for SciPy, which need not be installed."""
    folder = tmp_path / survey.FOLDER
    folder.mkdir(parents=True)
    (folder / "test_random.py").write_text("import no_such_library\n\ndef test_rand():\n    pass\n")
    (folder / "test_core.py").write_text("def test_add():\n    assert 1 + 1 == 2\n")
    log = tmp_path / "logs" / "gfx942-0-20.jsonl"
    log.parent.mkdir()
    log.write_text('{"test": "test_core.py::test_add", "outcome": "started"}\n')  # a run that somebody ended
    report = survey.conformance(tmp_path, archs=["gfx942"], logs=log.parent)
    ended = {line["test"]: (line["outcome"], line["why"]) for line in report.outcomes["gfx942"]}
    assert ended["test_core.py::test_add"] == ("passed", "")
    assert ended["test_random.py"] == ("failed", "ModuleNotFoundError: No module named 'no_such_library'")


@pytest.mark.slow
def test_ctrl_c_ends_a_survey(tmp_path):
    folder = tmp_path / survey.FOLDER
    folder.mkdir(parents=True)
    (folder / "test_core.py").write_text("def test_add():\n    raise KeyboardInterrupt  # as the terminal sends it\n")
    with pytest.raises(KeyboardInterrupt):
        survey.conformance(tmp_path, archs=["gfx942"], logs=tmp_path / "logs")
    assert '"refused"' not in (tmp_path / "logs" / "gfx942-0-20.jsonl").read_text()


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


def test_what_ran_when_a_survey_was_ended_runs_again(tmp_path):
    log = tmp_path / "log"
    ends = {"a": "passed", "b": "started"}
    log.write_text("".join(json.dumps({"test": test, "outcome": end}) + "\n" for test, end in ends.items()))
    outcomes.forget_unfinished(log)
    assert [line["test"] for line in outcomes.read(log)] == ["a"]
