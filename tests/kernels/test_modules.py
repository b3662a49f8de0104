"""The layers: state dicts and numbers of those they replace, forward and backward; what they refuse."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from kernel_testing import GRADIENT_TOLERANCE, TOLERANCE, assert_close
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRMSNorm,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

import course_kernels
from course_kernels import modules, reference, rope_scaling


def config(**changes):
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3, "max_position_embeddings": 16}
    return LlamaConfig(**sizes | changes)


def randn(shape, dtype=torch.float32, device="cpu", seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def scrambled(module):
    """The module with numbers in all parameters that would show a mistake."""
    for i, parameter in enumerate(module.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(100 + i))
    return module


# What is replaced, by what, and the shape of x.
PAIRS = {
    "nn.RMSNorm": (lambda: nn.RMSNorm(24), lambda: modules.RMSNorm(24), (2, 5, 24)),
    "nn.RMSNorm, eps, a tuple": (lambda: nn.RMSNorm((24,), 0.5), lambda: modules.RMSNorm((24,), 0.5), (5, 24)),
    "nn.RMSNorm without weight": (
        lambda: nn.RMSNorm(24, 1e-6, elementwise_affine=False),
        lambda: modules.RMSNorm(24, 1e-6, elementwise_affine=False),
        (5, 24),
    ),
    "LlamaRMSNorm": (lambda: LlamaRMSNorm(576, 1e-5), lambda: modules.RMSNorm(576, 1e-5), (3, 576)),
    "nn.LayerNorm": (lambda: nn.LayerNorm(24), lambda: modules.LayerNorm(24), (2, 5, 24)),
    "nn.LayerNorm without bias": (
        lambda: nn.LayerNorm([24], 1e-3, bias=False),
        lambda: modules.LayerNorm([24], 1e-3, bias=False),
        (5, 24),
    ),
    "nn.LayerNorm without either": (
        lambda: nn.LayerNorm(24, elementwise_affine=False),
        lambda: modules.LayerNorm(24, elementwise_affine=False),
        (5, 24),
    ),
    "LlamaMLP": (lambda: LlamaMLP(config()), lambda: modules.SwiGLU(24, 40), (2, 5, 24)),
    "LlamaMLP with biases": (
        lambda: LlamaMLP(config(mlp_bias=True)),
        lambda: modules.SwiGLU.from_config(config(mlp_bias=True)),
        (5, 24),
    ),
}
pairs = pytest.mark.parametrize(("theirs", "ours", "shape"), PAIRS.values(), ids=PAIRS)


@pairs
def test_state_dicts_go_both_ways(theirs, ours, shape):
    original = scrambled(theirs())
    replacement, back = ours(), theirs()
    replacement.load_state_dict(original.state_dict())
    saved = replacement.state_dict()
    assert saved.keys() == original.state_dict().keys()
    back.load_state_dict(saved)
    for a, b in zip(original.parameters(), back.parameters(), strict=True):
        assert torch.equal(a, b)


@pairs
def test_a_fresh_module_has_their_parameters(theirs, ours, shape):
    for name, parameter in ours().state_dict().items():
        want = theirs().state_dict()[name]
        assert parameter.shape == want.shape and parameter.dtype == want.dtype
        if parameter.ndim == 1 and "proj" not in name:
            assert torch.equal(parameter, want)


@pairs
def test_numbers_and_gradients(theirs, ours, shape, dtype, device):
    """Against theirs in float64: what they round in between is not ours to repeat."""
    original = scrambled(theirs()).to(dtype)
    replacement = ours().to(device, dtype)
    replacement.load_state_dict(original.state_dict())
    x, arriving = randn(shape, dtype, device).requires_grad_(), randn(shape, dtype, device, seed=1)
    with course_kernels.use_backend("triton"):
        y = replacement(x)
        y.backward(arriving)

    original, x_64 = doubled(original), x.detach().cpu().double().requires_grad_()
    want = original(x_64)
    want.backward(arriving.cpu().double())
    # Projections are PyTorch's: what is rounded before the next adds up there.
    looser = 10 if isinstance(replacement, modules.SwiGLU) else 1
    assert y.dtype == dtype and x.grad.dtype == dtype
    assert_relative(y, want, TOLERANCE[dtype] * looser)
    assert_relative(x.grad, x_64.grad, GRADIENT_TOLERANCE[dtype] * looser)
    gradients = gradients_by_name(replacement)
    for name, parameter in original.named_parameters():
        assert_relative(gradients[name], parameter.grad, GRADIENT_TOLERANCE[dtype] * looser)


def doubled(module):
    """In float64; Llama's RMSNorm goes through float32 whatever its input is, so the formula takes its place."""
    if isinstance(module, LlamaRMSNorm):
        twin = nn.RMSNorm(len(module.weight), module.variance_epsilon)
        twin.load_state_dict(module.state_dict())
        module = twin
    return copy.deepcopy(module).double()


def assert_relative(actual, expected, tolerance):
    """Close, where the largest number is 1 or less."""
    largest = max(expected.abs().max().item(), 1.0)
    assert_close(actual.cpu() / largest, expected / largest, tolerance)


def gradients_by_name(module):
    """Under the names of the state dict."""
    twin = copy.deepcopy(module)
    for mine, parameter in zip(twin.parameters(), module.parameters()):
        mine.data.copy_(parameter.grad)
    return twin.state_dict()


@pairs
@pytest.mark.parametrize("backend", ["triton", "torch"])
def test_compiled_in_one_graph(theirs, ours, shape, backend, device):
    module = scrambled(ours()).to(device)
    torch.compiler.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    with course_kernels.use_backend(backend):
        results = []
        for run in (module, compiled):
            x = randn(shape, device=device).requires_grad_()
            y = run(x)
            y.backward(randn(shape, device=device, seed=1))
            results.append((y, x.grad))
    for got, want in zip(results[1], results[0], strict=True):
        assert_close(got, want, 1e-6)


def test_a_whole_model_loads_with_layers_replaced(device):
    """Names with a prefix, in a module inside another; and `assign`, which keeps the dtype of what is loaded."""
    block = nn.ModuleDict({"norm": modules.RMSNorm(24, 1e-6), "mlp": modules.SwiGLU(24, 40)})
    llama = nn.ModuleDict({"norm": LlamaRMSNorm(24), "mlp": LlamaMLP(config())}).bfloat16()
    block.load_state_dict(llama.state_dict(), assign=True)
    assert block.state_dict().keys() == llama.state_dict().keys()
    assert all(parameter.dtype == torch.bfloat16 for parameter in block.parameters())
    twin = copy.deepcopy(block)
    twin["mlp"].down_proj.weight.data.zero_()
    assert block.state_dict()["mlp.down_proj.weight"].count_nonzero() > 0


def test_a_missing_matrix_is_named():
    state = LlamaMLP(config()).state_dict()
    del state["up_proj.weight"]
    with pytest.raises(RuntimeError, match="gate_proj.weight"):
        modules.SwiGLU(24, 40).load_state_dict(state)


# ---- rotary embedding ----------------------------------------------------------------------------------------------


def theirs_turned(x, positions, settings):
    """x (B, S, heads, D) as Llama turns it."""
    cos, sin = LlamaRotaryEmbedding(settings)(x, positions)
    return apply_rotary_pos_emb(x, x, cos, sin, unsqueeze_dim=2)[0]


@pytest.mark.parametrize("given", [False, True], ids=["counted", "given"])
def test_heads_turn_as_in_llama(given, dtype, device):
    settings = config(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    positions = torch.tensor([[3, 0, 7], [15, 15, 1]]) if given else torch.arange(3)[None].expand(2, 3)
    x, arriving = randn((2, 3, 5, 8), dtype).requires_grad_(), randn((2, 3, 5, 8), dtype, seed=1)
    want = theirs_turned(x.float(), positions, settings)
    (d_want,) = torch.autograd.grad(want, x, arriving)

    module = modules.RotaryEmbedding.from_config(settings).to(device, dtype)
    assert not module.state_dict()
    x_here = x.detach().to(device).requires_grad_()
    y = module(x_here, positions.to(device) if given else None)
    (dx,) = torch.autograd.grad(y, x_here, arriving.to(device))
    assert_close(y.cpu(), want, TOLERANCE[dtype])
    assert_close(dx.cpu(), d_want, GRADIENT_TOLERANCE[dtype])


def test_tables_stay_in_float32_and_grow(device):
    module = modules.RotaryEmbedding(8, 4, 100.0, device=device).bfloat16()
    tables = course_kernels.rope_tables(64, 8, 100.0, device=device)
    for x, positions, length, rows in [
        (randn((1, 3, 1, 8), device=device), None, None, 4),
        (randn((1, 5, 1, 8), device=device), None, None, 8),
        (randn((1, 2, 1, 8), device=device), torch.tensor([7, 0], device=device), None, 8),
        (randn((1, 2, 1, 8), device=device), torch.tensor([8, 0], device=device), None, 16),
        (randn((1, 2, 1, 8), device=device), torch.tensor([0, 9], device=device), 40, 40),
        (randn((1, 0, 1, 8), device=device), torch.empty(1, 0, dtype=torch.long, device=device), None, 40),
        (randn((0, 5, 1, 8), device=device), torch.empty(0, 5, dtype=torch.long, device=device), None, 40),
    ]:
        y = module(x, positions, length=length)
        assert len(module.cos) == len(module.sin) == rows and module.cos.dtype == torch.float32
        assert_close(y, reference.rope(x.double(), *tables, layout="bshd", positions=positions), 1e-5)
    assert "positions=40" in repr(module)


def test_length_spares_the_look_at_the_positions(device, monkeypatch):
    module = modules.RotaryEmbedding(8, 4, device=device)
    monkeypatch.setattr(torch.Tensor, "max", None)
    module(randn((1, 2, 1, 8), device=device), torch.tensor([0, 3], device=device), length=4)


@pytest.mark.parametrize("layout", ["sbhd", "thd"])
def test_other_layouts_count_their_own_tokens(layout, device):
    module = modules.RotaryEmbedding(6, 2, device=device, style="gptj")
    x = randn({"sbhd": (5, 1, 3, 8), "thd": (5, 3, 8)}[layout], device=device)
    options = {"layout": layout, "style": "gptj", "rotary_dim": 6}
    want = reference.rope(x.double(), *course_kernels.rope_tables(5, 6, device=device), **options)
    assert_close(module(x, layout=layout), want, 1e-5)


def test_tables_after_meta(device):
    with torch.device("meta"):
        module = modules.RotaryEmbedding(8, 4)
    module.to_empty(device=device).reset_parameters()
    assert torch.equal(module.cos, course_kernels.rope_tables(4, 8, device=device)[0])


def test_rotary_embedding_compiled_in_one_graph(device):
    """Without positions the tables grow; with them they must be long enough, and a token past them is NaN."""
    module = modules.RotaryEmbedding(8, 4, device=device)
    torch.compiler.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    x = randn((1, 6, 2, 8), device=device)
    want = reference.rope(x.double(), *course_kernels.rope_tables(6, 8, device=device), layout="bshd")
    assert_close(compiled(x), want, 1e-5)
    assert len(module.cos) == 8
    y = compiled(x[:, :2], torch.tensor([0, 8], device=device))
    assert torch.equal(y[:, 0], x[:, 0]) and y[:, 1].isnan().all()


# ---- frequencies as configurations scale them -----------------------------------------------------------------------

TRAINED = {"original_max_position_embeddings": 32}
SCALED = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, **TRAINED},
    "yarn with bounds": {"factor": 8.0, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False, **TRAINED},
    "yarn of DeepSeek": {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7, **TRAINED},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **TRAINED},
    "longrope": {
        "factor": 4.0,
        "short_factor": [1.0, 1.1, 1.2, 1.4] * 4,
        "long_factor": [1.0, 2.0, 4.0, 8.0] * 4,
        **TRAINED,
    },
}


def scaled(name, **changes):
    told = {"rope_type": name.split()[0], "rope_theta": 10000.0, **SCALED.get(name, {})}
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 48}
    return config(**{**sizes, "head_dim": 32, "rope_parameters": told, **changes})


@pytest.mark.parametrize("name", ["default", *SCALED])
def test_cosines_and_sines_are_those_of_transformers(name, device):
    """One sequence after the other: within the trained length, beyond it, longer still, shorter, short again."""
    theirs, ours = LlamaRotaryEmbedding(scaled(name)), modules.RotaryEmbedding.from_config(scaled(name), device=device)
    for first, length in ((0, 8), (20, 30), (40, 60), (100, 20), (60, 20), (3, 5)):
        positions = torch.arange(first, first + length)[None]
        x = randn((1, length, 64))
        want = theirs(x, positions)
        for got in (ours(x.to(device), position_ids=positions.to(device)), ours(x.to(device), positions.to(device))):
            assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(got, want))
            for a, b in zip(got, want):
                assert_close(a.cpu(), b, 1e-4)  # their angles are products in float32
        assert ours.attention_scaling == pytest.approx(theirs.attention_scaling)
    assert all(table.dtype == torch.bfloat16 for table in ours(x.bfloat16().to(device), positions.to(device)))


ONE_BOUND = 4096 / (2 * math.pi * 10000 ** (2 * 19.995 / 64))  # turns of a pair just before the twentieth
BETWEEN = {  # neither kept nor divided: some pairs in the middle, all up to the last; nothing to divide
    "of a model": {"factor": 4.0, "original_max_position_embeddings": 4096},
    "to the last pair": {"factor": 4.0, "original_max_position_embeddings": 4096, "beta_fast": 512.0},
    "as trained": {"factor": 1.0, "original_max_position_embeddings": 4096},
    "one bound": {
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": ONE_BOUND,
        "beta_slow": ONE_BOUND,
        "truncate": False,
    },
}


@pytest.mark.parametrize("name", BETWEEN)
def test_yarn_between_its_bounds_is_that_of_transformers(name):
    dim, base = (8, 10.0) if name == "to the last pair" else (64, 10000.0)
    told = {"rope_type": "yarn", "rope_theta": base, **BETWEEN[name]}
    sizes = {"hidden_size": dim, "num_attention_heads": 1, "head_dim": dim}
    asked = config(**sizes, max_position_embeddings=int(4096 * told["factor"]), rope_parameters=told)
    theirs, (radians, scaling) = LlamaRotaryEmbedding(asked), rope_scaling.frequencies(rope_scaling.settings(asked))
    torch.testing.assert_close(radians.float(), theirs.inv_freq, rtol=1e-4, atol=0)
    assert scaling == pytest.approx(theirs.attention_scaling)


def test_a_factor_that_is_not_given_follows_from_the_lengths():
    told = {"rope_type": "yarn", "original_max_position_embeddings": 2048}
    asked = SimpleNamespace(head_dim=8, max_position_embeddings=8192, rope_parameters=told)
    assert rope_scaling.settings(asked)["factor"] == 4
    assert rope_scaling.settings(asked)["rope_theta"] == 10000


def test_a_context_that_is_not_stretched_sharpens_no_scores():
    told = rope_scaling.settings(scaled("longrope"))
    assert rope_scaling.frequencies(told | {"factor": 1.0})[1] == 1 < rope_scaling.frequencies(told)[1]


def test_two_configurations_of_one_width_have_frequencies_of_their_own():
    for name in ("llama3", "yarn"):
        told = rope_scaling.settings(scaled(name))
        slow = [rope_scaling.frequencies(told | {"factor": factor})[0][-1] for factor in (2.0, 8.0)]
        assert slow[0] == 4 * slow[1]


def test_heads_turn_by_the_scaled_angles(device):
    x, positions = randn((1, 6, 2, 32), device=device), torch.arange(30, 36, device=device)[None]
    cos, sin = LlamaRotaryEmbedding(scaled("llama3"))(x.cpu(), positions.cpu())
    want = apply_rotary_pos_emb(x.cpu(), x.cpu(), cos, sin, unsqueeze_dim=2)[0]
    assert_close(modules.RotaryEmbedding.from_config(scaled("llama3"), device=device)(x, positions).cpu(), want, 1e-4)


def test_configurations_of_older_versions_and_partial_rotation(device):
    """`rope_scaling` with `type`, `rope_theta` beside it; only a part of the head turns."""
    old = SimpleNamespace(
        hidden_size=64, num_attention_heads=2, max_position_embeddings=48, rope_theta=500.0, partial_rotary_factor=0.5,
        rope_scaling={"type": "linear", "factor": 2.0},
    )  # fmt: skip
    module = modules.RotaryEmbedding.from_config(old, device=device)
    assert module.dim == 16
    angle = torch.arange(48, dtype=torch.float64)[:, None] * 500.0 ** (-torch.arange(8, dtype=torch.float64) / 8) / 2
    assert_close(module.cos.cpu(), angle.cos(), 1e-6)


# ---- whole models --------------------------------------------------------------------------------------------------


def tiny_models():
    """Random models of two layers, each with what is peculiar to it."""
    from transformers import DeepseekV3Config, LlamaConfig, Qwen3Config

    sizes = {
        "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    llama3 = {"rope_type": "llama3", "rope_theta": 10000.0, **SCALED["llama3"]}
    latent = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
    experts = {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 16,
    }
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, **SCALED["yarn of DeepSeek"]}
    return {
        "Llama": LlamaConfig(**sizes, mlp_bias=True, rope_parameters=llama3),
        "Qwen3": Qwen3Config(**sizes, head_dim=16),
        "DeepSeek": DeepseekV3Config(
            **{**sizes, "num_key_value_heads": 4}, **latent, **experts, first_k_dense_replace=1, rope_parameters=yarn
        ),
    }


def swapped(model):
    """The model with every norm, gated layer and rotary embedding replaced by ours, and how many there were."""
    model, counts = copy.deepcopy(model), {"norm": 0, "mlp": 0, "rope": 0}
    for path, layer in list(model.named_modules()):
        kind = type(layer).__name__
        if kind.endswith("RMSNorm"):
            ours, what = modules.RMSNorm(layer.weight.shape, layer.variance_epsilon), "norm"
        elif kind.endswith("MLP"):
            bias = layer.gate_proj.bias is not None
            ours, what = modules.SwiGLU(layer.hidden_size, layer.intermediate_size, bias), "mlp"
        elif kind.endswith("RotaryEmbedding"):
            ours, what = modules.RotaryEmbedding.from_config(model.config), "rope"
        else:
            continue
        ours.load_state_dict(layer.state_dict())
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, ours)
        counts[what] += 1
    return model, counts


@pytest.mark.parametrize(("name", "norms", "mlps"), [("Llama", 5, 2), ("Qwen3", 9, 2), ("DeepSeek", 9, 2)])
def test_a_model_of_transformers_works_on_our_layers(name, norms, mlps, device):
    """The same logits, gradients and tokens; and compiled."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(tiny_models()[name]).to(device).eval()
    ours, counts = swapped(theirs)
    ours.to(device)
    assert counts == {"norm": norms, "mlp": mlps, "rope": 1}
    tokens = torch.randint(40, (2, 7), generator=torch.Generator().manual_seed(1)).to(device)

    results = []
    for model in (theirs, ours):
        loss = model(tokens, labels=tokens)
        loss.loss.backward()
        gradients = {"embedding": model.model.embed_tokens.weight.grad, "norm": model.model.norm.weight.grad}
        results.append((loss.logits, gradients))
    assert_close(results[1][0], results[0][0], 1e-5)
    for part, gradient in results[0][1].items():
        assert_close(results[1][1][part], gradient, 1e-5)

    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(theirs.generate(tokens[:1], **options), ours.generate(tokens[:1], **options))
    torch.compiler.reset()
    with torch.no_grad():
        compiled = torch.compile(ours, backend="aot_eager")(tokens, use_cache=False)
    assert_close(compiled.logits, results[0][0], 1e-5)


# ---- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: modules.RMSNorm((2, 3)), r"normalized_shape must have one dimension, the last of x; got \(2, 3\)"),
        (lambda: modules.LayerNorm(()), "normalized_shape must have one dimension"),
        (lambda: modules.RMSNorm(4)(torch.ones(2, 5)), r"weight must have shape \(5,\)"),
        (lambda: modules.LayerNorm(4, elementwise_affine=False)(torch.ones(2, 5)), r"must have shape \(5,\)"),
        (lambda: modules.RMSNorm(4)(torch.ones(4, 2).t()), "call .contiguous"),
        (lambda: modules.SwiGLU.from_config(config(hidden_act="gelu")), "asks for 'gelu'"),
        (lambda: modules.RotaryEmbedding(7), "rotary_dim must be even"),
        (lambda: modules.RotaryEmbedding(8, -1), "max_positions must not be negative"),
        (lambda: modules.RotaryEmbedding(8, style="llama"), "style must be one of neox, gptj; got 'llama'"),
        (lambda: modules.RotaryEmbedding(8)(torch.ones(1, 2, 3, 4)), "rotary_dim must be"),
        (lambda: modules.RotaryEmbedding(8)(torch.ones(1, 2, 3, 8), layout="bhsd"), "layout must be one of"),
        (
            lambda: modules.RotaryEmbedding.from_config(
                SimpleNamespace(hidden_size=8, num_attention_heads=1, rope_scaling={"type": "spiral"})
            ),
            "knows rope_type 'default', 'linear', .*got 'spiral'",
        ),
    ],
)
def test_what_is_refused(call, message, device):
    with pytest.raises(ValueError, match=message):
        call()


def test_float64_is_refused(device):
    with pytest.raises(TypeError, match="x must be float32"):
        modules.RMSNorm(4)(torch.ones(2, 4, dtype=torch.float64))
