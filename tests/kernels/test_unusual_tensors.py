"""Tensors whose memory is missing or holds other numbers, and calls inside PyTorch's transformations of functions."""

import pytest
import torch
from kernel_testing import randn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import course_kernels as ck


def ones(*shape, dtype=torch.float32, device="cpu"):
    """Tensors for calls of which only shapes matter."""
    return torch.ones(shape, dtype=dtype, device=device)


def of_rows(device):
    """Calls of a matrix, its weight and an index: each gives tensors of which the first has the shape that follows."""
    x, gated, weight = ones(4, 8, device=device), ones(4, 16, device=device), ones(8, device=device)
    return {
        "vector_add": (lambda: ck.vector_add(x, x), (4, 8)),
        "rms_norm": (lambda: ck.rms_norm(x, weight), (4, 8)),
        "add_rms_norm": (lambda: ck.add_rms_norm(x, x, weight), (4, 8)),
        "layer_norm": (lambda: ck.layer_norm(x, weight, weight, return_statistics=True), (4, 8)),
        "add_layer_norm": (lambda: ck.add_layer_norm(x, x, weight, weight), (4, 8)),
        "softmax": (lambda: ck.softmax(x), (4, 8)),
        "activation": (lambda: ck.activation(x, "gelu"), (4, 8)),
        "act_and_mul": (lambda: ck.act_and_mul(gated, "silu", out=x), (4, 8)),
        "silu_and_mul": (lambda: ck.silu_and_mul(gated), (4, 8)),
        "dropout_add": (lambda: ck.dropout_add(x, x, 0.5, 1), (4, 8)),
        "quant_fp8_per_token": (lambda: ck.quant_fp8_per_token(x), (4, 8)),
        "quant_fp8_per_group": (lambda: ck.quant_fp8_per_group(x, 4), (4, 8)),
        "act_mul_fp8_quant": (lambda: ck.act_mul_fp8_quant(gated, "silu"), (4, 8)),
        "topk": (lambda: ck.topk(x, 3), (4, 3)),
        "matmul": (lambda: ck.matmul(x, x.t()), (4, 4)),
        "linear": (lambda: ck.linear(x[:1], x), (1, 4)),
        "conv2d": (lambda: ck.conv2d(x[None, None], x[None, None, :2, :2]), (1, 1, 3, 7)),
    }


def of_heads(device):
    """The same of heads, tables, positions and caches."""
    index = {"dtype": torch.int64, "device": device}
    heads, tables, places = ones(2, 4, 8, device=device), [ones(9, 4, device=device)] * 2, ones(2, **index)
    q, k, cache = heads[:, None], heads[:, None, :2], ones(2, 9, 2, 8, device=device)
    pages, pixels = [ones(5, 16, 2, 8, device=device) for _ in range(2)], ones(1, 4, 2, 8, device=device)
    latents = [ones(*shape, device=device) for shape in ((2, 4, 6), (4, 10, 6), (2, 4, 8), (2, 1, 10), (2, 1, 8))]
    return {
        "rope": (lambda: ck.rope(heads, *tables, layout="thd", positions=places), (2, 4, 8)),
        "rope_2d": (lambda: ck.rope_2d(pixels, *([ones(2, 2, device=device)] * 4)), (1, 4, 2, 8)),
        "split_qkv_rope": (lambda: ck.split_qkv_rope(ones(2, 64, device=device), *tables, places, 4, 2, 8), (2, 4, 8)),
        "concat_qk": (lambda: ck.concat_qk(*[heads] * 4), (2, 4, 16)),
        "rope_concat_qk": (lambda: ck.rope_concat_qk(*[heads] * 4, places, *tables), (2, 4, 16)),
        "flash_attention": (lambda: ck.flash_attention(q, q, q, return_lse=True), (2, 1, 4, 8)),
        "kv_cache_update": (lambda: ck.kv_cache_update(q, k, k, cache, cache, places[:, None], *tables), (2, 1, 4, 8)),
        "paged_kv_cache_update": (
            lambda: ck.paged_kv_cache_update(heads, heads[:, :2], heads[:, :2], *pages, places, places, *tables),
            (2, 4, 8),
        ),
        "paged_decode_attention": (
            lambda: ck.paged_decode_attention(heads, *pages, ones(2, 3, **index), places),
            (2, 4, 8),
        ),
        "mla_bmm_rope_cache": (
            lambda: ck.mla_bmm_rope_cache(*latents, ones(9, 1, 18, device=device), places, places, *tables),
            (2, 4, 18),
        ),
    }


NAMES = (*of_rows("meta"), *of_heads("meta"))


@pytest.mark.parametrize("name", NAMES)
def test_shapes_without_memory(name, device):
    call, shape = (of_rows("meta") | of_heads("meta"))[name]
    result = call()
    first = result[0] if isinstance(result, tuple) else result
    assert first.shape == shape and first.is_meta
    with FakeTensorMode():
        call, shape = (of_rows(device) | of_heads(device))[name]
        result = call()
    first = result[0] if isinstance(result, tuple) else result
    assert first.shape == shape and first.device.type == device


def test_every_public_function_is_here():
    functions = {name for name in ck.__all__ if callable(getattr(ck, name))}
    assert functions - {*NAMES} == {
        "current_backend", "fp8_dtype", "gelu_tanh_and_mul", "info", "rope_tables", "set_backend", "use_backend",
    }  # fmt: skip


def without_rows(device):
    """Calls that have nothing to compute, though a row, or what it is multiplied by, is as long as ever."""
    x, gated, weight = ones(0, 8, device=device), ones(0, 16, device=device), ones(8, device=device)
    rows, heads = ones(4, 8, device=device), ones(2, 3, 4, 8, device=device)
    return {
        "vector_add": lambda: ck.vector_add(x, x),
        "rms_norm": lambda: ck.rms_norm(x, weight),
        "add_rms_norm": lambda: ck.add_rms_norm(x, x, weight)[1],
        "layer_norm": lambda: ck.layer_norm(x, weight, weight),
        "layer_norm with statistics": lambda: ck.layer_norm(x, weight, weight, return_statistics=True)[0],
        "add_layer_norm": lambda: ck.add_layer_norm(x, x, weight, weight)[1],
        "softmax": lambda: ck.softmax(x),
        "activation": lambda: ck.activation(x, "gelu"),
        "act_and_mul": lambda: ck.act_and_mul(gated, "silu"),
        "act_and_mul into out": lambda: ck.act_and_mul(gated, "silu", out=x),
        "silu_and_mul": lambda: ck.silu_and_mul(gated),
        "gelu_tanh_and_mul": lambda: ck.gelu_tanh_and_mul(gated),
        "dropout_add": lambda: ck.dropout_add(x, x, 0.5, 1),
        "quant_fp8_per_token": lambda: ck.quant_fp8_per_token(x)[0],
        "quant_fp8_per_group": lambda: ck.quant_fp8_per_group(x, 4)[0],
        "act_mul_fp8_quant": lambda: ck.act_mul_fp8_quant(gated, "silu")[0],
        "topk": lambda: ck.topk(x, 3)[0],
        "matmul": lambda: ck.matmul(x, rows.t()),
        "matmul by no columns": lambda: ck.matmul(rows, x.t()),
        "linear": lambda: ck.linear(rows[:1], x),
        "conv2d": lambda: ck.conv2d(x[:, None, None], ones(1, 1, 1, 1, device=device)),
        "flash_attention": lambda: ck.flash_attention(heads[:, :, :0], heads, heads),
        "rope_2d": lambda: ck.rope_2d(ones(0, 4, 2, 8, device=device), *([ones(2, 2, device=device)] * 4)),
    }


@pytest.mark.parametrize("name", without_rows("meta"))
def test_where_there_are_no_rows_nothing_is_launched(name, device, no_launch):
    assert without_rows(device)[name]().numel() == 0


def test_a_view_that_negates_its_memory_is_refused_by_name(device):
    x, weight = randn((4, 8), device=device), torch.ones(8, device=device)
    negated = torch._neg_view(x)
    for name, call in (
        ("x", lambda: ck.rms_norm(negated, weight)),
        ("weight", lambda: ck.rms_norm(x, torch._neg_view(weight))),
        ("b", lambda: ck.matmul(x, negated.t())),
        ("out", lambda: ck.act_and_mul(x.repeat(1, 2), "silu", out=negated)),
    ):
        with pytest.raises(ValueError, match=rf"^{name} is a view that negates its memory; call .resolve_neg\(\)"):
            call()
    assert torch.equal(ck.vector_add(negated.resolve_neg(), x), torch.zeros_like(x))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("backend", ("auto", "torch"))
def test_sparse_and_nested_tensors_are_refused_by_name(backend, device):
    x = torch.eye(4, device=device)
    with ck.use_backend(backend):
        for other in (x.to_sparse(), x.to_sparse_csr(), torch.nested.nested_tensor([x, x[:2]])):
            for call in (ck.softmax, lambda t: ck.vector_add(t, t), lambda t: ck.rms_norm(t, x[0])):
                with pytest.raises(ValueError, match="x must be a dense tensor"):
                    call(other)


def test_a_known_layout_does_not_hide_a_view_that_negates(device):
    x, weight = randn((4, 8), device=device), torch.ones(8, device=device)
    for _ in range(6):
        ck.rms_norm(x, weight)
    with pytest.raises(ValueError, match="negates"):
        ck.rms_norm(torch._neg_view(x), weight)


def test_vmap_is_refused_where_a_kernel_would_see_one_address_for_many(device):
    x, weight = randn((3, 4, 8), device=device), torch.ones(8, device=device)
    with pytest.raises(RuntimeError, match="rms_norm_kernel cannot be launched inside torch.vmap"):
        torch.vmap(lambda rows: ck.rms_norm(rows, weight))(x)
    with ck.use_backend("torch"):
        expected = ck.rms_norm(x, weight)
        assert torch.allclose(torch.vmap(lambda rows: ck.rms_norm(rows, weight))(x), expected)


@pytest.mark.parametrize("transform", (torch.func.grad, torch.func.jacrev), ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("RMSNorm", lambda x: ck.rms_norm(x, x[0].detach())),
        ("VectorAdd", lambda x: ck.vector_add(x, x)),
        ("FlashAttention", lambda x: ck.flash_attention(*[x[None, None]] * 3)),
    ],
)
def test_transformations_of_functions_are_refused_in_our_words(name, call, transform, device):
    x = randn((4, 8), device=device)
    with pytest.raises(RuntimeError, match=f"^{name} cannot be launched inside torch.vmap or another transformation"):
        transform(lambda x: call(x).sum())(x)


def test_a_second_derivative_is_refused_also_where_another_way_leads_to_the_tensor(device):
    """PyTorch's own `once_differentiable` left its share out here, without a word: a penalty on gradients had none."""
    x, weight = randn((4, 8), device=device).requires_grad_(), torch.ones(8, device=device, requires_grad=True)
    (dx,) = torch.autograd.grad(ck.rms_norm(x, weight).pow(3).sum(), x, create_graph=True)
    penalised = dx.square().sum() + weight.sum()
    with pytest.raises(RuntimeError, match="RMSNorm has no second derivative; take the reference"):
        torch.autograd.grad(penalised, weight)
    with ck.use_backend("torch"):
        (dx,) = torch.autograd.grad(ck.rms_norm(x, weight).pow(3).sum(), x, create_graph=True)
        (share,) = torch.autograd.grad(dx.square().sum() + weight.sum(), weight)
    assert (share - 1).abs().max() > 0.01


@pytest.mark.parametrize(
    "call", (ck.softmax, lambda x: ck.topk(x, 2), lambda x: ck.linear(x, x), ck.quant_fp8_per_token)
)
def test_a_tangent_is_refused_and_not_dropped(call, device):
    x = randn((4, 8), device=device)
    with forward_ad.dual_level(), pytest.raises(ValueError, match="x has a tangent, and none flows"):
        call(forward_ad.make_dual(x, torch.ones_like(x)))


@pytest.mark.parametrize("eps", (None, "1e-6", torch.tensor(1e-6)), ids=str)
def test_eps_is_a_number(eps, device):
    x, weight = randn((4, 8), device=device), torch.ones(8, device=device)
    for call in (
        lambda: ck.rms_norm(x, weight, eps),
        lambda: ck.add_rms_norm(x, x, weight, eps),
        lambda: ck.layer_norm(x, weight, weight, eps),
        lambda: ck.add_layer_norm(x, x, weight, weight, eps),
    ):
        with pytest.raises(TypeError, match="eps must be a number"):
            call()


def test_what_is_written_shares_no_memory_with_what_is_read(device):
    x, k, places = (
        randn((4, 16), device=device),
        randn((1, 2, 1, 8), device=device),
        torch.tensor([[0, 1]], device=device),
    )
    cache = torch.zeros(1, 6, 1, 8, device=device)
    for name, other, call in (
        ("out", "x", lambda: ck.act_and_mul(x, "silu", out=x[:, 1:9])),
        ("out", "x", lambda: ck.act_and_mul(x[1:], "silu", out=x[:-1, :8])),
        ("out", "x", lambda: ck.act_and_mul(x, "silu", out=x.view(-1)[:32].view(4, 8))),
        ("k_cache", "v_cache", lambda: ck.kv_cache_update(None, k, k, cache[:, :5], cache[:, 1:], places)),
        ("k_cache", "v_cache", lambda: ck.kv_cache_update(None, k, 2 * k, cache, cache, places)),
        ("k_cache", "k", lambda: ck.kv_cache_update(None, cache[:, :2], k, cache, cache.clone(), places)),
        ("v_cache", "v", lambda: ck.paged_kv_cache_update(None, k[0], cache[0, :2], cache.clone(), cache, places[0])),
    ):
        with pytest.raises(ValueError, match=f"{name} is written, and {other} shares memory with it"):
            call()
    with pytest.raises(ValueError, match="out is written, but its strides"):
        ck.act_and_mul(x, "silu", out=torch.zeros(40, device=device).as_strided((4, 8), (7, 1)))


def test_views_of_one_allocation_are_no_shared_memory(device):
    x, k = randn((4, 16), device=device), randn((2, 1, 8), device=device)
    expected = ck.silu_and_mul(x)
    for start in (0, 8):
        both = x.clone()
        out = both[:, start : start + 8]
        assert ck.act_and_mul(both, "silu", out=out) is out and torch.equal(out, expected)
    with pytest.raises(ValueError, match="shares memory"):  # in the shape of a half, which was one before
        ck.act_and_mul(both, "silu", out=both[:, 4:12])
    side_by_side = torch.zeros(4, 24, device=device)
    side_by_side[:, :16] = x
    assert torch.equal(ck.act_and_mul(side_by_side[:, :16], "silu", out=side_by_side[:, 16:]), expected)
    for caches in (
        torch.zeros(3, 2, 4, 1, 8, device=device).unbind(1),
        torch.zeros(3, 4, 1, 16, device=device).chunk(2, -1),
        torch.zeros(3, 4, 2, 8, device=device).chunk(2, 2),
    ):
        ck.paged_kv_cache_update(None, k, 2 * k, *caches, torch.tensor([1, 9], device=device))
        for cache, rows in zip(caches, (k, 2 * k)):
            assert torch.equal(cache[0, 1], rows[0]) and torch.equal(cache[2, 1], rows[1])
            assert cache.count_nonzero() == 16


def test_pytorch_counts_what_kernels_write(device):
    x, k, places = randn((2, 16), device=device), randn((2, 1, 8), device=device), torch.tensor([0, 1], device=device)
    out, caches = x.new_empty(2, 8), torch.zeros(2, 2, 4, 1, 8, device=device).unbind()
    latents, tables = torch.zeros(4, 1, 12, device=device), ck.rope_tables(4, 4, device=device)
    parts = [torch.ones(*shape, device=device) for shape in ((2, 1, 6), (1, 8, 6), (2, 1, 4), (2, 1, 8), (2, 1, 4))]
    for tensor, call in (
        (out, lambda: ck.act_and_mul(x, "silu", out=out)),
        (caches[0], lambda: ck.paged_kv_cache_update(None, k, k, *caches, places)),
        (caches[1], lambda: ck.kv_cache_update(None, k[None], k[None], *(c[:1] for c in caches), places[None])),
        (latents, lambda: ck.mla_bmm_rope_cache(*parts, latents, places, places, *tables)),
        (k, lambda: ck.rope(k, *ck.rope_tables(2, 8, device=device), layout="thd", inplace=True)),
    ):
        before = tensor._version
        call()
        assert tensor._version > before


def test_a_gradient_that_needs_what_was_overwritten_is_refused(device):
    x, w = randn((2, 16), device=device), torch.ones(8, device=device, requires_grad=True)
    factor = randn((2, 8), device=device)
    product = (w * factor).sum()  # keeps `factor` for the gradient of w
    ck.act_and_mul(x, "silu", out=factor)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_numbers_of_numpy_are_whole_numbers_and_others_are_refused_by_name(device):
    numpy = pytest.importorskip("numpy")
    two, x = numpy.int64(2), randn((2, 8), device=device)
    assert ck.topk(x, two)[0].shape == (2, 2)
    assert ck.quant_fp8_per_group(x, two)[1].shape == (2, 4)
    assert torch.equal(ck.dropout_add(x, x, 0.5, two), ck.dropout_add(x, x, 0.5, 2))
    image, tables = x[None, None, :, :2], ck.rope_tables(2, 4, device=device)
    assert ck.conv2d(image, image, padding=(two, 1)).shape == (1, 1, 5, 3)
    places = torch.tensor([0, 1], device=device)
    assert ck.split_qkv_rope(randn((2, 16), device=device), *tables, places, two, 1, 4)[0].shape == (2, 2, 4)
    for name, call in (
        ("k", lambda bad: ck.topk(x, bad)),
        ("group_size", lambda bad: ck.quant_fp8_per_group(x, bad)),
        ("seed", lambda bad: ck.dropout_add(x, x, 0.5, bad)),
        ("stride", lambda bad: ck.conv2d(image, image, stride=bad)),
        ("head_dim", lambda bad: ck.split_qkv_rope(x, *tables, places, 2, 1, bad)),
    ):
        for bad in (2.0, "2", None, True):
            with pytest.raises(TypeError, match=f"^{name} must be an int"):
                call(bad)
    with pytest.raises(TypeError, match="rotary_dim must be an int"):
        ck.rope(x[:, None], *tables, layout="thd", rotary_dim="4")
    for bad in ("1", [1.0], 1j):
        with pytest.raises(TypeError, match="sm_scale must be a number"):
            ck.flash_attention(*[x[None, None]] * 3, sm_scale=bad)
