"""Lesson 10 on the kernels that may be shipped: right answers written in other ways, weak test suites, false picks."""

from __future__ import annotations

import pytest

from course_lab.authoring import lessons
from course_lab.check import grade, judged
from course_lab.check.grading import make_job, make_runs
from course_lessons.l10_shipping.drivers import PretendedGpu
from course_lessons.l10_shipping.drivers import tests_of as marked_tests

GATED_CONTRACT = """\
kernel = my_kernel("3.2")

def ship(x):
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"x is {x.dtype}")
    if x.dim() == 0 or x.shape[-1] % 2:
        raise ValueError(f"an even number of columns is needed, got {tuple(x.shape)}")
    shape = (*x.shape[:-1], x.shape[-1] // 2)
    if 0 in x.shape:
        return x.new_empty(shape)
    long = [(length, stride) for length, stride in zip(x.shape[:-1], x.stride()) if length > 1]
    for (_, outer), (length, inner) in zip(long, long[1:]):
        if outer != inner * length:
            raise ValueError(f"strides {x.stride()}")
    if x.stride(-1) != 1:
        raise ValueError(f"strides {x.stride()}")
    rows = math.prod(x.shape[:-1])
    flat = x.as_strided((rows, x.shape[-1]), (long[-1][1] if long else x.shape[-1], 1))
    return kernel(flat).view(shape)
"""
GATED_BACKWARD = """\
kernel = my_kernel("3.2")

class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return kernel(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        gate, up = x.float().chunk(2, dim=-1)
        s = torch.sigmoid(gate)
        dgate = dy.float() * up * s * (1 + gate * (1 - s))
        return torch.cat([dgate, dy.float() * gate * s], dim=-1).to(x.dtype)

def differentiable(x):
    return Gate.apply(x)
"""
GATED_OPERATOR = """\
kernel = my_kernel("3.2")

@torch.library.custom_op("mine::gate", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    return kernel(x)

operator.register_fake(lambda x: x.new_empty(x.shape[0], x.shape[1] // 2))
"""
GATED_LAYER = """\
kernel = my_kernel("3.2")

class Mlp(torch.nn.Module):
    def __init__(self, old):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = old.gate_proj, old.up_proj, old.down_proj

    def forward(self, x):
        both = torch.cat([self.gate_proj(x), self.up_proj(x)], dim=-1)
        return self.down_proj(kernel(both.flatten(0, -2)).view(*x.shape[:-1], -1))

def swap(model):
    for layer in model.model.layers:
        layer.mlp = Mlp(layer.mlp)
"""
GATED_SUITE = """\
import pytest

kernel = my_kernel("3.2")

def right(x):
    gate, up = x.double().chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up

@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows, d", [(4, 64), pytest.param(3, 1), (2, 601), (3, 1100)])
def test_values(implementation, rows, d, dtype):
    x = torch.randn(rows, 2 * d, generator=torch.Generator().manual_seed(d)).to(dtype)
    y = implementation(x)
    assert y.dtype == dtype and y.shape == (rows, d)
    torch.testing.assert_close(y.double(), right(x), rtol=1e-5 + torch.finfo(dtype).eps, atol=1e-6)

def test_rows_apart(implementation):
    x = torch.randn(4, 133)[:, :100]
    torch.testing.assert_close(implementation(x).double(), right(x), rtol=1e-5, atol=1e-6)

def test_large(implementation):
    x = torch.tensor([[200.0, -200.0, 1.0, 1.0]])
    torch.testing.assert_close(implementation(x).double(), right(x))

MUTANTS = [("+", "* up, y", "+ up, y"), ("stride", "row * stride_xm", "row * d"), ("half", "gate_ptr + d", "gate_ptr")]
MUTANTS[0] = ("sum", "tl.exp(-gate)) * up", "tl.exp(-gate)) + up")
"""
HYPOTHESIS_SUITE = """\
import pytest

from hypothesis import given, settings, strategies as st
kernel = my_kernel("2.2")

def right(x, w, eps):
    x = x.double()
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w.double()

def close(implementation, x, w, eps):
    before = x.clone()
    y = implementation(x, w, eps)
    assert torch.equal(x, before) and y.dtype == x.dtype
    torch.testing.assert_close(y.double(), right(before, w, eps), rtol=1e-5 + torch.finfo(x.dtype).eps, atol=1e-7)

def test_values(implementation):
    @settings(max_examples=8)
    @given(n=st.integers(1, 700), eps=st.sampled_from([1e-5, 0.3]), scale=st.sampled_from([1e-3, 1.0]))
    def holds(n, eps, scale):
        torch.manual_seed(n)
        close(implementation, (scale * torch.randn(3, n + 5))[:, :n], 1 + torch.rand(n), eps)
    holds()

@pytest.mark.parametrize("n", [1025, 3000])
def test_long(implementation, n):
    close(implementation, torch.randn(2, n), torch.rand(n), 1e-5)

class TestNothing:
    pass

def test_half(implementation):
    close(implementation, (300 * torch.randn(2, 400)).half(), torch.rand(400), 1e-5)

MUTANTS = (("n", "/ N", "/ (N + 1)"), ("w", " * w\\n", " + w\\n"), ("s", "row * stride_xm", "row"))
"""
EVENTS = """\
def benchmark(gpu, sizes):
    def once(size):
        gpu.flush_cache()
        gpu.synchronize()
        before = gpu.clock()
        gpu.kernel(size)
        gpu.synchronize()
        return gpu.clock() - before
    for size in sizes:
        gpu.kernel(size)
    runs = {size: [] for size in sizes}
    for _ in range(30):
        for size in sizes:
            runs[size].append(once(size))
    return {size: torch.tensor(times).median().item() for size, times in runs.items()}
"""
SOFTMAX_CONTRACT = """\
kernel = my_kernel("6.1")

def ship(x):
    if x.dtype not in {torch.float32, torch.float16, torch.bfloat16}:
        raise TypeError(f"softmax: no kernel for {x.dtype}")
    if not x.ndim:
        raise ValueError(f"softmax needs a dimension, got {x.shape}")
    if not x.numel():
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    try:
        rows = x.view(math.prod(x.shape[:-1]), x.shape[-1])
    except RuntimeError as error:
        raise ValueError(f"strides {x.stride()}: {error}") from error
    if rows.shape[1] > 1 and rows.stride(1) != 1:
        raise ValueError(f"stride of the columns is {rows.stride(1)}")
    return kernel(rows).view(x.shape)
"""
SOFTMAX_BACKWARD = """\
kernel = my_kernel("6.1")

class Soft(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, torch.logsumexp(x.float(), dim=-1, keepdim=True))
        return kernel(x)

    @staticmethod
    def backward(ctx, dy):
        x, lse = ctx.saved_tensors
        y = (x.float() - lse).exp()
        inner = (dy.float() * y).sum(dim=-1, keepdim=True)
        return (y * (dy.float() - inner)).to(dy.dtype)

differentiable = Soft.apply
"""
SOFTMAX_OPERATOR = """\
kernel = my_kernel("6.1")

@torch.library.custom_op("mine::soft", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    return kernel(x)

@operator.register_fake
def described(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)
"""
SOFTMAX_SUITE = """\
kernel = my_kernel("6.1")

def close(got, x):
    assert got.dtype == x.dtype
    rtol = 1e-5 + torch.finfo(x.dtype).eps
    torch.testing.assert_close(got.double(), x.double().softmax(-1), rtol=rtol, atol=1e-7)

def inputs():
    torch.manual_seed(0)
    for m, n in ((4, 64), (1, 1), (3, 100), (2, 1500)):
        yield torch.randn(m, n)
        yield 200 * torch.randn(m, n)
        yield torch.randn(m, n) - 300
        yield torch.randn(m, n + 7)[:, :n]
        yield torch.randn(m, n).bfloat16()

def test_values(implementation):
    for x in inputs():
        before = x.clone()
        close(implementation(x), before)
        assert torch.equal(x, before)

MUTANTS = [("max", "x - tl.max(x, axis=0)", "x"), ("other", '-float("inf")', "0.0"), ("exp", "tl.exp(", "tl.exp2(")]
"""
SUM_CONTRACT = """\
kernel = my_kernel("1.2")
DTYPES = torch.float32, torch.float16, torch.bfloat16

def ship(x, y):
    if x.dtype != y.dtype or x.dtype not in DTYPES:
        raise TypeError(f"dtypes {x.dtype} and {y.dtype}; one of {DTYPES} for both")
    if x.shape != y.shape:
        raise ValueError(f"shapes {tuple(x.shape)} and {tuple(y.shape)} differ")
    if x.device != y.device:
        raise ValueError(f"devices {x.device} and {y.device} differ")
    if x.numel() == 0:
        return torch.empty_like(x)
    if not (x.is_contiguous() and y.is_contiguous()):
        raise ValueError(f"contiguous tensors are needed, strides are {x.stride()} and {y.stride()}")
    return kernel(x, y)
"""
SUM_BACKWARD = """\
kernel = my_kernel("1.2")

class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return kernel(x, y)

    @staticmethod
    def backward(ctx, dz):
        return dz, dz

def differentiable(x, y):
    return Sum.apply(x, y)
"""
SUM_OPERATOR = """\
kernel = my_kernel("1.2")

@torch.library.custom_op("mine::plus", mutates_args=())
def operator(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return kernel(x, y)

operator.register_fake(lambda x, y: torch.empty_like(x))
"""
SUM_SUITE = """\
import pytest

kernel = my_kernel("1.2")

@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 64), (3000,), (1,), (7, 1024)])
@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_values(implementation, shape, dtype, scale):
    torch.manual_seed(1)
    x, y = (scale * torch.randn(2, *shape)).to(dtype).unbind()
    before = x.clone(), y.clone()
    z = implementation(x, y)
    assert z.dtype is dtype and torch.equal(x, before[0]) and torch.equal(y, before[1])
    wanted = x.double() + y.double()
    assert (z.double() - wanted).abs().max() <= torch.finfo(dtype).eps * wanted.abs().max()

MUTANTS = [("-", "x + y", "x - y"), ("n", "offs < n", "offs < n - 1"), ("grid", "triton.cdiv(n, 1024)", "n // 1024")]
"""
RIGHT = {
    "10.1, the gate": ("10.1", GATED_CONTRACT),
    "10.2, the gate": ("10.2", GATED_BACKWARD),
    "10.3, the gate": ("10.3", GATED_OPERATOR),
    "10.4, the gate": ("10.4", GATED_LAYER),
    "10.5, the gate": ("10.5", GATED_SUITE),
    "10.1, the softmax": ("10.1", SOFTMAX_CONTRACT),
    "10.2, the softmax": ("10.2", SOFTMAX_BACKWARD),
    "10.3, the softmax": ("10.3", SOFTMAX_OPERATOR),
    "10.5, the softmax": ("10.5", SOFTMAX_SUITE),
    "10.1, the sum": ("10.1", SUM_CONTRACT),
    "10.2, the sum": ("10.2", SUM_BACKWARD),
    "10.3, the sum": ("10.3", SUM_OPERATOR),
    "10.5, the sum": ("10.5", SUM_SUITE),
    "10.5, hypothesis": ("10.5", HYPOTHESIS_SUITE),
    "10.6, sizes in turn": ("10.6", EVENTS),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number, code", RIGHT.values(), ids=RIGHT)
def test_a_right_answer_on_the_other_kernel_or_written_in_another_way_passes(number, code):
    report = grade(number, code)
    assert report.passed, report


_KEEPS = "ctx.save_for_backward(x, torch.logsumexp(x.float(), dim=-1, keepdim=True))\n        return kernel(x)"
_TAKES = "x, lse = ctx.saved_tensors\n        y = (x.float() - lse).exp()"
WHOLE_RESULT = SOFTMAX_BACKWARD.replace(
    _KEEPS, "y = kernel(x)\n        ctx.save_for_backward(y)\n        return y"
).replace(_TAKES, "y = ctx.saved_tensors[0].float()")
LAST_CALL = SOFTMAX_BACKWARD.replace(
    "        return kernel(x)", "        Soft.x = x\n        return kernel(x)"
).replace("x, lse = ctx.saved_tensors", "x, lse = Soft.x, ctx.saved_tensors[1]")
WRONG_BACKWARDS = {
    "the whole result is kept": (WHOLE_RESULT, "saves-too-much"),
    "what the last call kept": (LAST_CALL, "kept-on-ctx"),
    "computed in bfloat16": (GATED_BACKWARD.replace(".float()", ""), "half-accumulation"),
}


@pytest.mark.parametrize("answer, code", WRONG_BACKWARDS.values(), ids=WRONG_BACKWARDS)
def test_a_backward_pass_keeps_little_of_each_call_and_computes_in_float32(answer, code):
    report = grade("10.2", answer)
    assert report.diagnosis and report.diagnosis.code == code, report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("rtol=1e-5 + torch.finfo(x.dtype).eps, atol=1e-7", "rtol=1e-2, atol=1e-2"), "mutant-survives"),
        (("close(implementation, (300 *", "close(implementation, (1 *"), "mutant-survives"),
        (("def test_long", "def untested"), "mutant-survives"),
        (("    holds()\n", ""), "mutant-survives"),
        (("1 + torch.rand(n)", "torch.ones(n)"), "mutant-survives"),
        (("rtol=1e-5 + torch.finfo(x.dtype).eps, atol=1e-7", "rtol=0, atol=0"), "rejects-a-right-kernel"),
        (("def test_half(implementation):", "def test_half(implementation, missing):"), "rejects-a-right-kernel"),
        (('"/ (N + 1)"', '"/ N  "'), "equivalent-mutant"),
    ],
)
def test_a_weak_suite_is_told_what_it_lets_through(change, code):
    old, new = change
    assert old in HYPOTHESIS_SUITE
    if old == "1 + torch.rand(n)":  # weights of one everywhere
        suite = HYPOTHESIS_SUITE.replace("1 + torch.rand(n)", new).replace("torch.rand(n)", new)
        suite = suite.replace("torch.rand(400)", "torch.ones(400)")
    else:
        suite = HYPOTHESIS_SUITE.replace(old, new)
    report = grade("10.5", suite)
    assert report.diagnosis.code == code, report


@pytest.mark.parametrize("line", ['kernel = my_kernel("1.1")', "kernel = my_kernel('9.9')", "", '# my_kernel("2.2")'])
def test_a_kernel_that_is_not_offered_is_refused_by_name(line):
    report = grade("10.1", lessons.solution("10.1").replace('kernel = my_kernel("2.2")', line))
    assert report.diagnosis.code == "unknown-pick" and '"2.2"' in report.diagnosis.sentence


def test_a_softmax_is_no_layer():
    report = grade("10.4", lessons.solution("10.4").replace('my_kernel("2.2")', 'my_kernel("6.1")'))
    assert report.diagnosis.code == "unknown-pick" and '"3.2"' in report.diagnosis.sentence


def test_the_learners_own_answer_is_what_is_shipped(course_home):
    from course_lab.journal import record

    code = lessons.solution("2.2").replace("* tl.rsqrt(mean_square + eps)", "* 2 * tl.rsqrt(mean_square + eps)")
    record("2.2", "attempt", status="passed", answer="mine", code=code, entry="rms_norm")
    report = grade("10.1", lessons.solution("10.1"), search=False)
    assert report.diagnosis.code == "constant-factor", report


# ---- answers that lie ----------------------------------------------------------------------------------------------

LIES = {
    "every test passes": ("d._tried = lambda *_: d.FINE", "mutant-survives"),
    "every test fails": ("d.failure = lambda *_: ('test_values', 'no')", "rejects-a-right-kernel"),
}


@pytest.mark.parametrize("lie, told", LIES.values(), ids=LIES)
def test_tests_that_lie_about_themselves_are_found_out_outside(lie, told):
    """Which implementation is right is known outside alone: one word for all of them is wrong for some."""
    code = f"{lessons.solution('10.5')}\nimport sys\nd = sys.modules['exercise_driver']\n{lie}\n"
    report = grade("10.5", code, search=False)
    assert not report.passed and report.diagnosis.code == told, report


@pytest.mark.parametrize("number", ["10.1", "10.5"])
def test_what_is_wanted_of_a_case_is_not_sent_to_the_answer(number):
    exercise = lessons.exercise(number)
    runs = make_runs(exercise, "s")
    sent = str(make_job(exercise, lessons.solution(number), runs).cases)
    assert not [word for word in ("accepts", "rejects", "refuses", "mutants", "gives", "which is") if word in sent]
    assert all(run.expects for run in runs)
    order = judged.in_any_order(exercise, runs, "s")
    assert order != runs and sorted(map(id, order)) == sorted(map(id, runs))
    assert order == judged.in_any_order(exercise, runs, "s") != judged.in_any_order(exercise, runs, "t")


# ---- the drivers themselves ----------------------------------------------------------------------------------------


def test_the_pretended_gpu_runs_behind_the_clock():
    gpu, size = PretendedGpu(0), 1 << 24
    gpu.kernel(size)
    gpu.synchronize()
    start = gpu.clock()
    gpu.kernel(size)
    assert gpu.clock() - start == pytest.approx(gpu.LAUNCH)
    gpu.synchronize()
    assert gpu.clock() - start == pytest.approx(gpu.LAUNCH + gpu.cold(size) * gpu.WARM, rel=gpu.SPREAD)


def test_each_test_runs_with_every_value_of_its_marks():
    def test_one(implementation, a, b):
        pass

    test_one = pytest.mark.parametrize("a", [1, 2])(pytest.mark.parametrize(("b",), [(3,), pytest.param(4)])(test_one))
    found = [values for _, _, values in marked_tests({"test_one": test_one, "other": print, "test_text": "no"})]
    assert found == [{"b": 3, "a": 1}, {"b": 3, "a": 2}, {"b": 4, "a": 1}, {"b": 4, "a": 2}]


@pytest.mark.parametrize(
    ("names", "sets", "expected"),
    [
        ("a", [(3,), 4], [{"a": (3,)}, {"a": 4}]),
        ("a", [pytest.param((3,)), pytest.param(4, id="four")], [{"a": (3,)}, {"a": 4}]),
        ("a,", [(3,)], [{"a": 3}]),
        ("a, b", [(1, (2,)), [3, 4]], [{"a": 1, "b": (2,)}, {"a": 3, "b": 4}]),
        (["a", "b"], [pytest.param(1, 2)], [{"a": 1, "b": 2}]),
    ],
)
def test_marks_mean_what_they_mean_to_pytest(names, sets, expected):
    def test_one(implementation, **values):
        pass

    for mark in (pytest.mark.parametrize(names, sets), pytest.mark.parametrize(argnames=names, argvalues=sets)):
        test_one.pytestmark = [mark.mark]
        assert [values for _, _, values in marked_tests({"test_one": test_one})] == expected
