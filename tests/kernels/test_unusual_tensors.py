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
