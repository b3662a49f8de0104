"""`torch.compile` keeps every kernel as an operator of PyTorch: one graph, numbers and gradients of eager calls."""

from __future__ import annotations

import pytest
import torch
from kernel_testing import assert_close, randn
from torch.utils._python_dispatch import TorchDispatchMode

import course_kernels as ck
from gfxlab.engine import hooks

ABOUT_THE_PACKAGE = {"current_backend", "fp8_dtype", "info", "modules", "set_backend", "use_backend"}


def floats(*shape, grad=True, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_(grad)


def fixed(*shape):
    return floats(*shape, grad=False)


def integers(*values):
    return torch.tensor(values)


def rope(x, table, *index, **options):
    return ck.rope(x, *table.chunk(2), **dict(zip(("positions", "offsets", "cu_seqlens"), index)), **options)


def tables():
    return torch.cat(ck.rope_tables(16, 8))


# A public function, and a word if it has several cases: what is compiled, and its arguments.
CASES = {
    "vector_add": (ck.vector_add, lambda: (floats(5), floats(5))),
    "rms_norm": (ck.rms_norm, lambda: (floats(2, 3, 10), floats(10))),
    "rms_norm of transposed bfloat16": (
        lambda x, weight: ck.rms_norm(x.transpose(0, 1).contiguous(), weight, 0.1),
        lambda: (floats(10, 3, dtype=torch.bfloat16), floats(10)),
    ),
    "add_rms_norm": (ck.add_rms_norm, lambda: (floats(3, 10), floats(3, 10), floats(10))),
    "layer_norm": (ck.layer_norm, lambda: (floats(3, 10), floats(10), floats(10))),
    "add_layer_norm": (ck.add_layer_norm, lambda: (floats(3, 10), floats(3, 10), floats(10), floats(10))),
    "layer_norm with statistics": (
        lambda *args: ck.layer_norm(*args, return_statistics=True)[:2],
        lambda: (floats(2, 3, 10), floats(10), floats(10)),
    ),
    "softmax": (ck.softmax, lambda: (fixed(3, 10),)),
    "activation": (lambda x: ck.activation(x, "gelu"), lambda: (floats(3, 10),)),
    "act_and_mul": (lambda x: ck.act_and_mul(x, "relu"), lambda: (floats(3, 10),)),
    "act_and_mul into out": (
        lambda x, out: (ck.act_and_mul(x, "relu", out=out), out + 1),
        lambda: (fixed(3, 10), fixed(3, 5)),
    ),
    "silu_and_mul": (ck.silu_and_mul, lambda: (floats(3, 10),)),
    "gelu_tanh_and_mul": (ck.gelu_tanh_and_mul, lambda: (floats(3, 10),)),
    "dropout_add": (lambda x, residual: ck.dropout_add(x, residual, 0.3, 7), lambda: (floats(3, 10), floats(3, 10))),
    "quant_fp8_per_token": (ck.quant_fp8_per_token, lambda: (fixed(3, 10),)),
    "quant_fp8_per_group": (lambda x: ck.quant_fp8_per_group(x, 4), lambda: (fixed(3, 10),)),
    "act_mul_fp8_quant": (lambda x: ck.act_mul_fp8_quant(x, "silu", 4), lambda: (fixed(3, 10),)),
    "rope_tables": (lambda x: x[0] * ck.rope_tables(16, 8, device=x.device)[0], lambda: (tables(),)),
    "rope": (rope, lambda: (floats(4, 2, 3, 8), tables())),
    "rope at positions": (rope, lambda: (floats(4, 2, 3, 8), tables(), integers(3, 1, 2, 0), integers(1, 2))),
    "rope of sequences": (
        lambda x, table, cu_seqlens: rope(x, table, None, None, cu_seqlens, layout="thd"),
        lambda: (floats(4, 3, 8), tables(), integers(0, 1, 4)),
    ),
    "rope in place": (
        lambda x, table: (rope(x, table, inplace=True), x + 1),
        lambda: (fixed(4, 2, 3, 8), tables()),
    ),
    "rope in place, differentiated": (
        lambda x, table: rope(2 * x, table, inplace=True),
        lambda: (floats(4, 2, 3, 8), tables()),
    ),
    "rope by frequencies": (
        lambda x, inv_freq: ck.rope(x, inv_freq=inv_freq, layout="bsd"),
        lambda: (floats(2, 3, 8), fixed(4).sigmoid()),
    ),
    "rope_2d": (lambda x, table: ck.rope_2d(x, *table[:8].chunk(4)), lambda: (fixed(2, 4, 3, 16), tables())),
    "split_qkv_rope": (
        lambda qkv, table, positions: ck.split_qkv_rope(qkv, *table.chunk(2), positions, 3, 1, 8),
        lambda: (fixed(4, 40), tables(), integers(3, 0, 0, 15)),
    ),
    "concat_qk": (ck.concat_qk, lambda: (fixed(4, 3, 6), fixed(4, 3, 8), fixed(4, 1, 6), fixed(4, 1, 8))),
    "rope_concat_qk": (
        lambda q1, q2, k1, k2, positions, table: ck.rope_concat_qk(q1, q2, k1, k2, positions, *table.chunk(2)),
        lambda: (
            *(fixed(4, 3, 6), fixed(4, 3, 8), fixed(4, 1, 6), fixed(4, 1, 8)),
            *(integers(3, 0, 0, 15), tables()),
        ),
    ),
    "kv_cache_update": (
        lambda q, k, k_cache, positions, table: (
            ck.kv_cache_update(q, k, k + 1, k_cache, v_cache := k_cache + 1, positions, *table.chunk(2)),
            *(k_cache, v_cache),
        ),
        lambda: (
            fixed(2, 3, 4, 8),
            fixed(2, 3, 1, 8),
            fixed(2, 9, 1, 8),
            integers(3, 0, 8, 1, 5, 2).view(2, 3),
            tables(),
        ),
    ),
    "kv_cache_update without RoPE": (
        lambda k, k_cache, positions: (ck.kv_cache_update(None, k, k, k_cache, k_cache + 1, positions), k_cache)[1],
        lambda: (fixed(2, 3, 1, 8), fixed(2, 9, 1, 8), integers(3, 0, 8, 1, 5, 2).view(2, 3)),
    ),
    "paged_kv_cache_update": (
        lambda q, k, k_cache, slots, positions, table: (
            *ck.paged_kv_cache_update(q, k, k + 1, k_cache, v_cache := k_cache + 1, slots, positions, *table.chunk(2)),
            *(k_cache, v_cache),
        ),
        lambda: (
            *(fixed(2, 4, 8), fixed(3, 1, 8), fixed(3, 5, 1, 8)),
            *(integers(14, -1, 0), integers(3, 15), tables()),
        ),
    ),
    "paged_kv_cache_update without RoPE": (
        lambda k, k_cache, slots: (ck.paged_kv_cache_update(None, k, k, k_cache, k_cache + 1, slots), k_cache)[1],
        lambda: (fixed(3, 1, 8), fixed(3, 5, 1, 8), integers(14, -1, 0)),
    ),
    "mla_bmm_rope_cache": (
        lambda q, w, q_pe, k, k_pe, cache, slots, positions, table: (
            ck.mla_bmm_rope_cache(q, w, q_pe, k, k_pe, cache, slots, positions, *table.chunk(2)),
            cache,
        ),
        lambda: (
            *(fixed(2, 3, 4), fixed(3, 6, 4), fixed(2, 3, 8), fixed(3, 1, 6), fixed(3, 1, 8), fixed(5, 1, 14)),
            *(integers(4, -1, 0), integers(3, 15), tables()),
        ),
    ),
    "mla_bmm_rope_cache of fp8": (
        lambda q, w, q_pe, k, k_pe, cache, slots, positions, table: (
            ck.mla_bmm_rope_cache(
                q, w, q_pe, k, k_pe, low := cache.to(ck.fp8_dtype()), slots, positions, *table.chunk(2), k_scale=0.1
            ),
            low.float(),
        ),
        lambda: (
            *(fixed(2, 3, 4), fixed(3, 6, 4), fixed(2, 3, 8), fixed(3, 1, 6), fixed(3, 1, 8), fixed(5, 1, 14)),
            *(integers(4, -1, 0), integers(3, 15), tables()),
        ),
    ),
    "paged_kv_cache_update with offsets": (
        lambda q, k, k_cache, slots, positions, offsets, table: ck.paged_kv_cache_update(
            q, k, k + 1, k_cache, k_cache + 1, slots, positions, *table.chunk(2), offsets=offsets
        ),
        lambda: (
            *(fixed(2, 4, 8), fixed(3, 1, 8), fixed(3, 5, 1, 8)),
            *(integers(14, -1, 0), integers(3, 12), integers(1, 3), tables()),
        ),
    ),
    "matmul": (
        lambda a, b: ck.matmul(a, b.t(), activation="relu", out_dtype=torch.bfloat16),
        lambda: (fixed(3, 4), fixed(5, 4)),
    ),
    "linear": (ck.linear, lambda: (fixed(1, 8), fixed(5, 8))),
    "conv2d": (
        lambda x, weight, bias: ck.conv2d(x, weight, bias, padding=1, stride=(1, 2)),
        lambda: (fixed(1, 3, 4, 4).to(memory_format=torch.channels_last), fixed(2, 3, 3, 3), fixed(2)),
    ),
    "topk": (lambda x: ck.topk(x, 2), lambda: (fixed(3, 10),)),
    "topk of the smallest": (lambda x: ck.topk(x, 2, largest=False), lambda: (fixed(3, 10),)),
    "flash_attention": (
        lambda q, k, v: ck.flash_attention(q, k, v, causal=True, return_lse=True),
        lambda: (floats(1, 2, 3, 8), floats(1, 1, 5, 8), floats(1, 1, 5, 8)),
    ),
    "paged_decode_attention": (
        ck.paged_decode_attention,
        lambda: (
            fixed(2, 2, 8),
            fixed(3, 4, 1, 8),
            fixed(3, 4, 1, 8),
            integers(0, 1, 2, 0).view(2, 2),
            integers(5, 3),
        ),
    ),
    "paged_decode_attention of fp8": (
        lambda q, keys, values, table, lengths, scales: ck.paged_decode_attention(
            q,
            *(cache.to(ck.fp8_dtype()) for cache in (keys, values)),
            table,
            lengths,
            layout="packed",
            k_scale=0.5,
            v_scale=scales,
        ),
        lambda: (
            *(fixed(2, 2, 16), fixed(3, 1, 1, 4, 16), fixed(3, 1, 16, 4), integers(0, 1, 2, 0).view(2, 2)),
            *(integers(5, 3), torch.tensor([0.5])),
        ),
    ),
}
all_cases = pytest.mark.parametrize(("function", "make"), CASES.values(), ids=CASES)


def arguments(make, device):
    return tuple(t.detach().to(device).requires_grad_(t.requires_grad) for t in make())


def results(function, args):
    """What it returns, followed by the gradients of its arguments for a gradient that differs everywhere."""
    outputs = function(*args)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    differentiable = [out for out in outputs if out.requires_grad]
    arriving = [torch.linspace(-1, 2, out.numel(), device=out.device).view(out.shape).to(out) for out in differentiable]
    inputs = [t for t in args if t.requires_grad]
    return *outputs, *(torch.autograd.grad(differentiable, inputs, arriving) if inputs else ())


def check_compiled(function, make, device, compiler, dynamic=None):
    expected = results(function, arguments(make, device))
    torch.compiler.reset()
    compiled = torch.compile(function, backend=compiler, fullgraph=True, dynamic=dynamic)  # a graph break is an error
    for got, want in zip(results(compiled, arguments(make, device)), expected, strict=True):
        assert got.dtype == want.dtype and got.stride() == want.stride()
        assert_close(got, want, 1e-6)


# ---- compiled ------------------------------------------------------------------------------------------------------


def ways_of_compiling():
    """Each case with and without dynamic shapes and on the reference: one of the three in `make test`, in turn."""
    for place, (name, case) in enumerate(CASES.items()):
        for turn, way in enumerate((("triton", False), ("triton", True), ("torch", False)), start=place):
            marks = [pytest.mark.slow] * (turn % 3 > 0)
            yield pytest.param(*case, *way, id="-".join([*map(str, way), name]), marks=marks)


@pytest.mark.parametrize(("function", "make", "backend", "dynamic"), list(ways_of_compiling()))
def test_one_graph_with_the_same_numbers_and_gradients(function, make, backend, dynamic, device):
    with ck.use_backend(backend):
        check_compiled(function, make, device, "aot_eager", dynamic)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="Inductor compiles what surrounds the kernels, for a GPU")
@all_cases
def test_one_graph_in_inductor(function, make):
    check_compiled(function, make, "cuda", "inductor")


def test_a_compiled_call_launches_what_an_eager_one_does(device):
    if device != "cpu":
        pytest.skip("only interpreted launches are counted")
    function, make = CASES["add_rms_norm"]
    for compiled in (function, torch.compile(function, backend="aot_eager", fullgraph=True)):
        before = hooks.launches()
        results(compiled, arguments(make, device))
        assert hooks.launches() == before + 3  # forward, backward, and the sum of the weight's partial gradients


def test_one_graph_serves_many_shapes(device):
    graphs = []

    def compiler(graph, _):
        graphs.append(graph)
        return graph

    def function(x, residual, weight):
        return ck.topk(ck.softmax(ck.add_rms_norm(x, residual, weight)[0]), 2)

    torch.compiler.reset()
    compiled = torch.compile(function, backend=compiler, fullgraph=True, dynamic=True)
    for rows, cols in [(3, 10), (5, 10), (7, 300)]:
        args = (fixed(rows, cols).to(device), fixed(rows, cols).to(device), fixed(cols).to(device))
        for got, want in zip(compiled(*args), function(*args)):
            assert torch.equal(got, want)
    assert len(graphs) == 1


def test_values_are_not_looked_at_while_tracing(device):
    """A position past the tables, an error in an eager call on the CPU, shows as NaN in its token."""
    x, table = fixed(2, 1, 3, 8).to(device), tables().to(device)
    compiled = torch.compile(rope, backend="aot_eager", fullgraph=True)
    y = compiled(x, table, torch.tensor([0, 99], device=device))
    assert torch.equal(y[0], x[0]) and y[1].isnan().all()


# ---- the operators -------------------------------------------------------------------------------------------------


class Calls(TorchDispatchMode):
    """The calls of this package's operators inside a `with` block."""

    def __init__(self):
        super().__init__()
        self.of = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "course_kernels":
            copies = [t.clone() if isinstance(t, torch.Tensor) else t for t in args]
            self.of[operator] = (copies, kwargs or {})
        return operator(*args, **(kwargs or {}))


def operators_called(make, function, device) -> dict:
    with Calls() as calls:
        results(function, arguments(make, device))
    return calls.of


def seem_to_compile(monkeypatch):
    """Dynamo makes its table of functions once, by identity: not while one of them is another."""
    torch._dynamo.trace_rules.get_torch_obj_rule_map()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(  # PyTorch's examination cannot change a tensor of fp8
    ("function", "make"), [pytest.param(*case, id=name) for name, case in CASES.items() if "of fp8" not in name]
)
def test_operators_are_what_they_say(function, make, device, monkeypatch):
    """Schema, what is written and what not, and the description of what is returned, by PyTorch's own examination."""
    seem_to_compile(monkeypatch)
    called = operators_called(make, function, device)
    monkeypatch.undo()
    for operator, (args, kwargs) in called.items():
        torch.library.opcheck(operator, args, kwargs)


@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_every_function_has_a_case_and_every_operator_is_called(backend, device, monkeypatch):
    assert {name.split()[0] for name in CASES} == set(ck.__all__) - ABOUT_THE_PACKAGE
    seem_to_compile(monkeypatch)
    called = set()
    for function, make in CASES.values():
        with ck.use_backend(backend):
            called |= {operator.name() for operator in operators_called(make, function, device)}
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("course_kernels::")}
    of_references = {
        "course_kernels::paged_decode_reference",
        "course_kernels::paged_kv_cache_reference",
        "course_kernels::mla_reference",
    }
    assert called == (of_references if backend == "torch" else registered - of_references)


def test_eager_calls_take_no_detour(device):
    function, make = CASES["add_rms_norm"]
    assert not operators_called(make, function, device)


def test_one_tensor_given_twice_is_traced(device):
    def function(x, heads):
        return ck.vector_add(x, x) + ck.dropout_add(x, x, 0.5, 3) + ck.flash_attention(heads, heads, heads).sum()

    results = []
    for call in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
        x, heads = (randn(shape, device=device).requires_grad_() for shape in ((2, 8), (1, 2, 4, 16)))
        y = call(x, heads)
        results.append((y, *torch.autograd.grad(y.sum(), (x, heads))))
    for eager, compiled in zip(*results):
        torch.testing.assert_close(eager, compiled)
