"""Flash attention: values, log-sum-exp and gradients; masks, groups of heads, large scores, strides, refusals."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_testing import GRADIENT_TOLERANCE, assert_close, far_apart

import course_kernels
from course_kernels import launch, reference

INF = float("inf")
# p is rounded to the dtype of v before the second product, o once more at the end
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
SEQUENCES = [(1, 1), (32, 16), (64, 128), (127, 127), (70, 33), (1, 200)]
HEADS = [(1, 1), (8, 2), (9, 3)]  # of q, and of k and v
few_examples = settings(
    max_examples=5, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def qkv(device, dtype=torch.float32, *, batch=1, heads=(1, 1), seq=(7, 7), head_dim=16, seed=0):
    """Random q, k and v."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads[i > 0], seq[i > 0], head_dim) for i in range(3)]
    return [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]


def attention(q, k, v, **kwargs):
    """(o, lse) of the Triton kernel."""
    with course_kernels.use_backend("triton"):
        return course_kernels.flash_attention(q, k, v, return_lse=True, **kwargs)


def check(q, k, v, *, tolerance=None, **kwargs):
    before = [x.clone() for x in (q, k, v)]
    o, lse = attention(q, k, v, **kwargs)
    assert o.shape == q.shape and o.dtype == q.dtype and o.is_contiguous()
    assert lse.shape == q.shape[:3] and lse.dtype == torch.float32
    want_o, want_lse = reference.flash_attention(q.double(), k.double(), v.double(), return_lse=True, **kwargs)
    assert_close(o, want_o, tolerance or TOLERANCE[q.dtype])
    assert_close(lse, want_lse, 1e-5)
    assert all(torch.equal(x, b) for x, b in zip((q, k, v), before)), "inputs were modified"


def check_gradients(q, k, v, **kwargs):
    """dq, dk and dv against autograd of the reference in float64, with a random gradient arriving at o."""
    args = [x.detach().requires_grad_() for x in (q, k, v)]
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    arriving = torch.randn(q.shape, generator=torch.Generator().manual_seed(9)).to(q.device, q.dtype)
    gradients = torch.autograd.grad(attention(*args, **kwargs)[0], args, arriving)
    wanted = torch.autograd.grad(reference.flash_attention(*doubles, **kwargs), doubles, arriving.double())
    for gradient, x, want in zip(gradients, args, wanted, strict=True):
        assert gradient.dtype == x.dtype and gradient.shape == x.shape
        assert_close(gradient, want, GRADIENT_TOLERANCE[q.dtype])


@pytest.fixture(params=[False, True], ids=["full", "causal"])
def causal(request):
    return request.param


@pytest.fixture
def small_tiles():
    """Tiles of 16 x 16: several of each kind on short sequences."""
    with launch.sizes_as(attention_tile=(16, 16, 256, 64)):
        yield


@pytest.fixture
def slices():
    """The same, and heads over 16 elements cut, as those over 64 or 128 are on Radeon."""
    with launch.sizes_as(attention_tile=(16, 16, 16, 64)):
        yield


# ---- values and gradients ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seq", SEQUENCES, ids=str)
def test_values_and_gradients(seq, causal, dtype, device):
    inputs = qkv(device, dtype, seq=seq, head_dim=64)
    check(*inputs, causal=causal)
    check_gradients(*inputs, causal=causal)


@pytest.mark.parametrize("head_dim", [1, 40, 80, 128, 256])
def test_head_dimensions(head_dim, dtype, device):
    inputs = qkv(device, dtype, seq=(9, 40), head_dim=head_dim)
    check(*inputs, causal=True)
    check_gradients(*inputs, causal=True)


@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("batch", [1, 2])
def test_groups_of_heads(batch, heads, device):
    """Every head of every sequence is computed once, also where eight heads at a time leave a rest."""
    inputs = qkv(device, torch.bfloat16, batch=batch, heads=heads, seq=(17, 20))
    check(*inputs, causal=True)
    check_gradients(*inputs, causal=True)


@pytest.mark.parametrize(
    ("heads", "head_dim"),
    [((9, 3), 64), ((32, 8), 128), ((40, 40), 128), ((48, 8), 64)],
    ids=["SmolLM2", "Llama-3-8B", "Qwen", "48 heads"],
)
def test_heads_of_models(heads, head_dim, device):
    inputs = qkv(device, torch.bfloat16, heads=heads, seq=(5, 9), head_dim=head_dim)
    check(*inputs, causal=True)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [(32, 8), (40, 40), (48, 8)], ids=str)
def test_gradients_of_many_heads(heads, dtype, device):
    check_gradients(*qkv(device, dtype, batch=2, heads=heads, seq=(17, 20), head_dim=128), causal=True)


@few_examples
@given(st.integers(1, 40), st.integers(0, 40), st.integers(1, 50), st.booleans(), st.integers(0, 2**31))
def test_any_shape_in_small_tiles(device, small_tiles, seq_q, seq_k, head_dim, causal, seed):
    inputs = qkv(device, heads=(2, 1), seq=(seq_q, seq_k), head_dim=head_dim, seed=seed)
    check(*inputs, causal=causal)
    check_gradients(*inputs, causal=causal)


def test_a_cut_head_is_the_same_head(causal, device, slices):
    """40 elements: a slice of 8 is left over."""
    inputs = qkv(device, torch.bfloat16, heads=(2, 1), seq=(20, 40), head_dim=40)
    check(*inputs, causal=causal)
    check_gradients(*inputs, causal=causal)


@few_examples
@given(st.integers(1, 20), st.integers(1, 40), st.integers(17, 33), st.booleans(), st.integers(0, 2**31))
def test_any_shape_of_cut_heads(device, slices, seq_q, seq_k, head_dim, causal, seed):
    inputs = qkv(device, seq=(seq_q, seq_k), head_dim=head_dim, seed=seed)
    check(*inputs, causal=causal)
    check_gradients(*inputs, causal=causal)


@pytest.mark.slow
@pytest.mark.parametrize("seq", [(510, 1020), (512, 512), (1020, 510)], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_long_sequences(seq, head_dim, causal, dtype, device):
    inputs = qkv(device, dtype, batch=2, heads=(6, 2), seq=seq, head_dim=head_dim)
    check(*inputs, causal=causal)
    check_gradients(*inputs, causal=causal)


@pytest.mark.parametrize("sm_scale", [0.0, 0.3, 2.0, -0.5])
def test_scale_is_the_callers(sm_scale, causal, device):
    inputs = qkv(device, seq=(20, 90))
    check(*inputs, causal=causal, sm_scale=sm_scale)
    check_gradients(*inputs, causal=causal, sm_scale=sm_scale)


def test_a_negative_scale_does_not_overflow(causal, device):
    """Its largest score is the smallest product: taken before scaling, the maximum would be the least of all."""
    q, k, v = qkv(device, seq=(70, 150), head_dim=64)
    check(q * 30, k, v, causal=causal, tolerance=1e-4, sm_scale=-0.125)


def test_float32_is_full_precision(device):
    """TF32 would be off by 1e-3."""
    q, k, v = qkv(device, seq=(64, 64), head_dim=64)
    check(q * 8, k, v, tolerance=1e-4, sm_scale=1.0)


# ---- masks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seq", [(40, 24), (70, 33), (300, 1)], ids=str)
def test_queries_before_every_key_get_zeros_and_minus_inf(seq, dtype, device):
    """-inf in the mask without a guard gives NaN here; a large finite number instead gives the mean of v."""
    q, k, v = (x.requires_grad_() for x in qkv(device, dtype, seq=seq))
    o, lse = attention(q, k, v, causal=True)
    blind = seq[0] - seq[1]
    assert not o[:, :, :blind].any() and (lse[:, :, :blind] == -INF).all()
    assert lse[:, :, blind:].isfinite().all()
    check_gradients(q, k, v, causal=True)
    (dq,) = torch.autograd.grad(o.sum(), q)
    assert not dq[:, :, :blind].any()


@pytest.mark.parametrize("seq", [(33, 33), (20, 50), (50, 20)], ids=str)
def test_causal_ignores_the_future(seq, device, small_tiles):
    q, k, v = qkv(device, heads=(2, 1), seq=seq)
    o, lse = attention(q, k, v, causal=True)
    seen = seq[1] - 7
    k[:, :, seen:], v[:, :, seen:] = 1e4, 1e4
    changed_o, changed_lse = attention(q, k, v, causal=True)
    rows = seen + seq[0] - seq[1]  # these see the first `seen` keys or fewer
    assert torch.equal(o[:, :, :rows], changed_o[:, :, :rows])
    assert torch.equal(lse[:, :, :rows], changed_lse[:, :, :rows])
    assert (o[:, :, rows:] != changed_o[:, :, rows:]).all()


def test_without_keys_there_are_zeros(causal, dtype, device):
    inputs = [x.requires_grad_() for x in qkv(device, dtype, seq=(3, 0))]
    o, lse = attention(*inputs, causal=causal)
    o.sum().backward()
    assert not o.any() and (lse == -INF).all()
    assert not inputs[0].grad.any() and inputs[1].grad.shape == inputs[1].shape


@pytest.mark.parametrize("empty", [{"batch": 0}, {"heads": (0, 0)}, {"seq": (0, 5)}, {"head_dim": 0}], ids=str)
def test_empty_tensors_give_empty_tensors(empty, device):
    q, k, v = qkv(device, **empty)
    assert attention(q, k, v)[0].shape == q.shape


# ---- scores --------------------------------------------------------------------------------------------------------


def test_scores_thirty_times_as_large(causal, dtype, device):
    q, k, v = qkv(device, dtype, seq=(70, 150), head_dim=64)
    exact = {torch.float32: 1e-4}.get(dtype)  # scores of 240 are rounded by 1e-5 themselves
    check(q * 30, k, v, causal=causal, tolerance=exact)


@pytest.mark.parametrize("order", [1, -1])
def test_a_maximum_that_rises_or_falls_from_block_to_block(order, device, small_tiles):
    q, k, v = qkv(device, seq=(20, 100), head_dim=16)
    k[:] = torch.linspace(-9 * order, 9 * order, 100, device=device)[:, None]
    check(q.abs(), k, v, sm_scale=1.0)


def test_scores_far_below_zero(causal, device):
    """Padding with 0 instead of -inf would outweigh them all; so would keys past the end of k in dq."""
    q, k, v = qkv(device, seq=(20, 21))
    q, k = q.abs() + 5, -k.abs() - 5
    check(q, k, v, causal=causal, sm_scale=1.0)
    check_gradients(q, k, v, causal=causal, sm_scale=1.0)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:All-NaN:RuntimeWarning")  # numpy
@pytest.mark.parametrize("value", [INF, float("nan")])
def test_inf_and_nan_stay_in_their_row(value, device):
    q, k, v = qkv(device, seq=(20, 70))
    clean, _ = attention(q, k, v)
    q[0, 0, 5, 3] = value
    o, _ = attention(q, k, v)
    others = torch.arange(20, device=device) != 5
    assert o[0, 0, 5].isnan().all() and torch.equal(o[:, :, others], clean[:, :, others])


# ---- relations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [(8, 2), (9, 3)], ids=str)
def test_grouped_heads_equal_repeated_heads(heads, dtype, device):
    q, k, v = qkv(device, dtype, heads=heads, seq=(20, 20))
    repeated = [x.repeat_interleave(heads[0] // heads[1], dim=1) for x in (k, v)]
    assert all(map(torch.equal, attention(q, k, v, causal=True), attention(q, *repeated, causal=True)))


def test_an_order_of_the_keys_changes_nothing(device, small_tiles):
    q, k, v = qkv(device, seq=(20, 100))
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0)).to(device)
    for result, shuffled in zip(attention(q, k, v), attention(q, k[:, :, order], v[:, :, order])):
        assert_close(result, shuffled, 1e-5)


def test_equal_values_come_back(causal, device):
    """The weights sum to one."""
    q, k, v = qkv(device, seq=(20, 100))
    o, _ = attention(q, k, torch.full_like(v, 3.0), causal=causal)
    assert_close(o, torch.full_like(o, 3.0), 1e-6)


def test_parts_of_the_keys_merge_by_lse(device):
    q, k, v = qkv(device, seq=(20, 100))
    whole, whole_lse = attention(q, k, v)
    (o_a, lse_a), (o_b, lse_b) = (attention(q, k[:, :, part], v[:, :, part]) for part in (slice(0, 30), slice(30, 100)))
    lse = torch.logaddexp(lse_a, lse_b)
    assert_close(lse, whole_lse, 1e-5)
    assert_close(o_a * (lse_a - lse).exp()[..., None] + o_b * (lse_b - lse).exp()[..., None], whole, 1e-5)


# ---- strides -------------------------------------------------------------------------------------------------------


def test_slices_of_one_qkv_tensor(causal, dtype, device):
    """(tokens, heads of q, k and v, D), as a projection leaves them: three strided views."""
    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(2, 21, 9 + 3 + 3, 16, generator=generator).to(device, dtype)
    q, k, v = packed.transpose(1, 2).split([9, 3, 3], dim=1)
    check(q, k, v, causal=causal)
    check_gradients(q, k, v, causal=causal)


def test_k_and_v_of_different_strides(device):
    q, k, v = qkv(device, heads=(2, 2), seq=(20, 20))
    check(
        q.expand(3, -1, -1, -1),
        k.expand(3, -1, -1, -1),
        v.repeat(3, 1, 1, 1).transpose(1, 2).contiguous().transpose(1, 2),
    )


def test_gradients_where_each_tensor_has_strides_of_its_own(device):
    """Sequences, heads in groups and tokens, with other gaps in q, in k and in v; more keys than queries."""

    def with_gaps(x, i):
        wide = torch.nn.functional.pad(x, (0, 4 * i, 0, i, 0, 1))
        return wide[:, : x.shape[1], : x.shape[2], : x.shape[3]]

    q, k, v = (with_gaps(x, i + 1) for i, x in enumerate(qkv(device, batch=2, heads=(4, 2), seq=(20, 23))))
    assert len({x.stride(dim) for x in (q, k, v) for dim in (0, 1, 2)}) == 9
    for causal in (False, True):
        check(q, k, v, causal=causal)
        check_gradients(q, k, v, causal=causal)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_rows_beyond_two_to_the_31_elements(dim, device):
    """Sequences, heads and tokens far apart."""
    q, k, v = (far_apart(x, dim) for x in qkv(device, torch.float16, batch=3, heads=(3, 3), seq=(3, 3)))
    check(q, k, v, causal=True)
    check_gradients(q, k, v, causal=True)


def test_gradient_of_a_sum_arrives_with_stride_0(device):
    inputs = [x.requires_grad_() for x in qkv(device)]
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    attention(*inputs)[0].sum().backward()
    reference.flash_attention(*doubles).sum().backward()
    for single, double in zip(inputs, doubles):
        assert_close(single.grad, double.grad, 1e-4)


# ---- autograd ------------------------------------------------------------------------------------------------------


def test_no_gradient_flows_through_lse(device):
    q, k, v = (x.requires_grad_() for x in qkv(device))
    o, lse = attention(q, k, v)
    assert o.requires_grad and not lse.requires_grad
    with course_kernels.use_backend("torch"):
        o, lse = course_kernels.flash_attention(q, k, v, return_lse=True)
    assert o.requires_grad and not lse.requires_grad


def test_gradients_are_the_same_every_time(device, small_tiles):
    inputs = [x.requires_grad_() for x in qkv(device, heads=(4, 2), seq=(40, 40))]
    first, second = (torch.autograd.grad(attention(*inputs)[0].sum(), inputs) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_only_o_unless_lse_is_asked_for(device):
    q, k, v = qkv(device)
    for backend in ("triton", "torch"):
        with course_kernels.use_backend(backend):
            assert isinstance(course_kernels.flash_attention(q, k, v), torch.Tensor)


# ---- refusals, each before any launch ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["torch", "auto"])
@pytest.mark.parametrize(
    ("error", "message", "spoil"),
    [
        (TypeError, "q must be float32", lambda q, k, v: (q.double(), k.double(), v.double())),
        (TypeError, "v must be a torch.Tensor", lambda q, k, v: (q, k, None)),
        (TypeError, "q and k must have one dtype", lambda q, k, v: (q.half(), k, v)),
        (TypeError, "k and v must have one dtype", lambda q, k, v: (q, k, v.half())),
        (ValueError, "q must have 4 dimensions", lambda q, k, v: (q[0], k, v)),
        (ValueError, "k and v must have one shape", lambda q, k, v: (q, k, v[:, :, 1:])),
        (ValueError, r"k must have shape \(2, 2, 7, 16\)", lambda q, k, v: (q, k[:1], v[:1])),
        (ValueError, r"k must have shape \(2, 2, 7, 16\)", lambda q, k, v: (q, k[..., 1:], v[..., 1:])),
        (ValueError, "4 heads must be a multiple of the 3", lambda q, k, v: (q, k[:, [0, 1, 1]], v[:, [0, 1, 1]])),
        (ValueError, "4 heads must be a multiple of the 0", lambda q, k, v: (q, k[:, :0], v[:, :0])),
        (ValueError, "at most 256, got 272", lambda q, k, v: (q.repeat(1, 1, 1, 17),) * 3),
        (ValueError, "v needs a last dimension of stride 1", lambda q, k, v: (q, k, v.mT.contiguous().mT)),
    ],
)
def test_bad_arguments_are_named(error, message, spoil, backend, device, no_launch):
    inputs = spoil(*qkv(device, batch=2, heads=(4, 2)))
    with course_kernels.use_backend(backend), pytest.raises(error, match=message):
        course_kernels.flash_attention(*inputs)


@pytest.mark.parametrize("sm_scale", [INF, float("nan")])
def test_a_scale_that_is_no_number_is_named(sm_scale, device, no_launch):
    with pytest.raises(ValueError, match="sm_scale must be finite"):
        course_kernels.flash_attention(*qkv(device), sm_scale=sm_scale)
