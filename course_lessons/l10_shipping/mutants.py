"""Wrong answers of lesson 10: thin contracts, wrong gradients, false descriptions, weak tests, flattering figures."""

from course_lab.authoring.exercise import Mutant

_VIEW = """    try:
        rows = x.view(-1, x.shape[-1])
    except RuntimeError:
        raise ValueError(f"one stride cannot walk the rows of {tuple(x.shape)} with strides {x.stride()}") from None
"""
_STRIDES = """    if x.shape[-1] > 1 and x.stride(-1) != 1 or weight.numel() > 1 and weight.stride(0) != 1:
        raise ValueError(f"contiguous columns are needed: strides {x.stride()} of x, {weight.stride()} of weight")
"""
_DTYPES = """    for name, tensor in (("x", x), ("weight", weight)):
        if tensor.dtype not in floating:
            raise TypeError(f"{name} must be float32, float16 or bfloat16, got {tensor.dtype}")
"""
_EMPTY = """    if x.numel() == 0:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
"""
_CALL = "    return kernel(rows, weight, eps).view(x.shape)"
_SHAPE = """    if weight.shape != x.shape[-1:]:
        raise ValueError(f"weight must have shape {tuple(x.shape[-1:])}, got {tuple(weight.shape)}")
"""
_DEVICE = """    if weight.device != x.device:
        raise ValueError(f"weight is on {weight.device}, and x is on {x.device}: move one of them")
"""

_DX = "        dx = rstd * (g - x_hat * (g * x_hat).mean(-1, keepdim=True))\n"
_REFERENCE_FIRST = "want = reference(x, weight, eps)\n    got = implementation(x, weight, eps)"
_SUITE_SHAPES = "((4, 64), (5, 576), (3, 1), (3, 1025), (2, 1245), (1, 5000))"
_TOLERANCE = "UNIT * (16 + 4 * math.sqrt(x.shape[-1])) + torch.finfo(x.dtype).eps"
_SWAPPED = "setattr(model.get_submodule(parent), name, ShippedNorm(layer))"

MUTANTS = {
    "10.1": (
        Mutant("reshape in place of view", ((_VIEW, "    rows = x.reshape(-1, x.shape[-1])\n"),), "silent-copy"),
        Mutant(
            "copies what it cannot walk",
            ((_STRIDES, "    x, weight = x.contiguous(), weight.contiguous()\n"),),
            "silent-copy",
        ),
        Mutant("takes any dtype", ((_DTYPES, ""),), "not-refused"),
        Mutant("takes any weight", ((_SHAPE, ""),), "not-refused"),
        Mutant(
            "looks at the weight's first length alone",
            (("weight.shape != x.shape[-1:]", "weight.shape[:1] != x.shape[-1:]"),),
            "not-refused",
        ),
        Mutant(
            "asks dimensions of length 1 for their stride",
            (
                (
                    "    try:\n",
                    "    if any(x.stride(d) != x.stride(d + 1) * x.shape[d + 1] for d in range(x.ndim - 2)):\n"
                    '        raise ValueError(f"rows must lie equally far apart, strides {x.stride()}")\n    try:\n',
                ),
            ),
            "exception",
        ),
        Mutant("takes a weight from anywhere", ((_DEVICE, ""),), "wrong-exception"),
        Mutant("launches for nothing", ((_EMPTY, ""),), "empty-launch"),
        Mutant(
            "an assertion for a refusal", ((_SHAPE, "    assert weight.shape == x.shape[-1:]\n"),), "wrong-exception"
        ),
        Mutant(
            "says only that it is wrong",
            (("must be float32, float16 or bfloat16, got {tensor.dtype}", "is bad"),),
            "nameless-refusal",
        ),
        Mutant("flattens the result", ((_CALL, "    return kernel(rows, weight, eps)"),), "wrong-shape"),
        Mutant("eps lost on the way", (("kernel(rows, weight, eps)", "kernel(rows, weight, 1e-6)"),), "row-factor"),
    ),
    "10.2": (
        Mutant("rstd as a constant", ((_DX, "        dx = rstd * g\n"),), "projection-missing"),
        Mutant("weight left out", (("dy32 * weight.float()", "dy32"),), "weight-missing-in-dx"),
        Mutant("weights summed with x", (("(dy32 * x_hat).sum(0)", "(dy32 * x32).sum(0)"),), "dweight-of-x"),
        Mutant(
            "a sum for a mean",
            (("(g * x_hat).mean(-1, keepdim=True)", "(g * x_hat).sum(-1, keepdim=True)"),),
            "sum-not-mean",
        ),
        Mutant("eps left out", ((" + ctx.eps)", ")"),), "eps-missing-in-backward"),
        Mutant(
            "keeps the normalised row",
            (
                ("ctx.save_for_backward(x, weight)", "ctx.save_for_backward(x, weight, x.float())"),
                ("x, weight = ctx.saved_tensors", "x, weight, _ = ctx.saved_tensors"),
            ),
            "saves-too-much",
        ),
        Mutant(
            "keeps tensors on ctx",
            (
                ("ctx.save_for_backward(x, weight)", "ctx.x, ctx.weight = x, weight"),
                ("ctx.saved_tensors", "ctx.x, ctx.weight"),
            ),
            "kept-on-ctx",
        ),
        Mutant(
            "keeps eps in the class",
            (("ctx.eps = eps", "Shipped.eps = eps"), ("ctx.eps)", "Shipped.eps)")),
            "kept-on-ctx",
        ),
        Mutant(
            "keeps tensors in a list on ctx",
            (
                ("ctx.save_for_backward(x, weight)", "ctx.kept = [x, weight]"),
                ("ctx.saved_tensors", "ctx.kept"),
            ),
            "kept-on-ctx",
        ),
        Mutant(
            "computes in bfloat16", (("x32, dy32 = x.float(), dy.float()", "x32, dy32 = x, dy"),), "half-accumulation"
        ),
        Mutant("no gradient for the weight", (("dweight.to(weight.dtype), None", "None, None"),), "gradient-missing"),
        Mutant(
            "plain PyTorch forwards",
            (
                (
                    "return kernel(x, weight, eps)\n",
                    "return torch.nn.functional.rms_norm(x.float(), x.shape[-1:], weight.float(), eps).to(x.dtype)\n",
                ),
            ),
            "no-kernel",
        ),
    ),
    "10.3": (
        Mutant(
            "the description keeps the strides of x",
            (("x.new_empty(x.shape)", "torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)"),),
            "wrong-description",
        ),
        Mutant(
            "the description is float32",
            (("x.new_empty(x.shape)", "x.new_empty(x.shape, dtype=torch.float32)"),),
            "wrong-description",
        ),
        Mutant(
            "the description is a row short",
            (("x.new_empty(x.shape)", "x.new_empty(x.shape[0] - 1, x.shape[1])"),),
            "wrong-description",
        ),
        Mutant("no description", (("@operator.register_fake\n", ""),), "no-description"),
        Mutant(
            "a plain function",
            (('@torch.library.custom_op("shipping::norm", mutates_args=())\n', ""), ("@operator.register_fake\n", "")),
            "no-operator",
        ),
        Mutant(
            "writes its argument",
            (("    return kernel(x, weight, eps)", "    return x.copy_(kernel(x, weight, eps)).clone()"),),
            "opcheck",
        ),
    ),
    "10.4": (
        Mutant("only the first layer", ((_SWAPPED, _SWAPPED + "\n            break"),), "layer-left"),
        Mutant(
            "a copy of the parameter",
            (("self.weight = theirs.weight", "self.weight = torch.nn.Parameter(theirs.weight.detach().clone())"),),
            "parameters-copied",
        ),
        Mutant("another name", (("self.weight", "self.scale"),), "names-changed"),
        Mutant("one eps for all", (("self.eps = theirs.variance_epsilon", "self.eps = 1e-5"),), "settings-lost"),
        Mutant(
            "no parameter", (("self.weight = theirs.weight", "self.weight = theirs.weight.detach()"),), "names-changed"
        ),
        Mutant(
            "weights forgotten",
            (("self.weight, self.eps)", "torch.ones_like(self.weight), self.eps)"),),
            "other-numbers",
        ),
        Mutant(
            "Llama's own forward",
            (
                (
                    "return kernel(x.view(-1, x.shape[-1]), self.weight, self.eps).view(x.shape)",
                    "return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)",
                ),
            ),
            "no-kernel",
        ),
    ),
    "10.5": (
        Mutant(
            "only powers of two",
            ((_SUITE_SHAPES, "((4, 64), (2, 256))"), ("100", "128"), ("113", "128"), ("576", "512")),
            "mutant-survives",
        ),
        Mutant("a tolerance of a hundredth", ((_TOLERANCE, "1e-2"),), "mutant-survives"),
        Mutant("a tolerance of nothing", ((_TOLERANCE, "0.0"),), "rejects-a-right-kernel"),
        Mutant(
            "one dtype",
            (("    agrees(implementation, rows(3, 576, torch.float16, scale=300.0), weights(576))\n", ""),),
            "mutant-survives",
        ),
        Mutant("contiguous rows only", (("rows(4, 113)[:, :100]", "rows(4, 100)"),), "mutant-survives"),
        Mutant("one eps", (("for eps in (1e-5, 0.5)", "for eps in (1e-5,)"),), "mutant-survives"),
        Mutant("eps untested", (("def test_eps", "def eps_of_another_day"),), "mutant-survives"),
        Mutant("narrow rows only", (("(3, 1025), (2, 1245), (1, 5000)", "(3, 33)"),), "mutant-survives"),
        Mutant("the result's dtype unseen", ((" and got.dtype == x.dtype", ""),), "mutant-survives"),
        Mutant(
            "the arguments unseen",
            (
                ("    assert torch.equal(x, before[0]) and torch.equal(weight, before[1])\n", ""),
                ("got, want = implementation(x, weight, eps), reference(x, weight, eps)", _REFERENCE_FIRST),
            ),
            "mutant-survives",
        ),
        Mutant(
            "compares with itself",
            (("), reference(x, weight, eps)\n    assert", "), implementation(x, weight, eps).double()\n    assert"),),
            "mutant-survives",
        ),
        Mutant(
            "prints in place of failing",
            (
                (
                    "    torch.testing.assert_close(got.double(), want, rtol=rtol, atol=1e-30)",
                    "    print(torch.allclose(got.double(), want, rtol=rtol))",
                ),
            ),
            "mutant-survives",
        ),
        Mutant(
            "two mutants",
            (
                ('    ("rows N apart", "row * stride_xm", "row * N"),\n', ""),
                ('    ("weights forgotten", " * w\\n", "\\n"),\n', ""),
            ),
            "too-few-mutants",
        ),
        Mutant(
            "a mutant that is none",
            (('"row * stride_xm", "row * N"', '"row * stride_xm", "stride_xm * row"'),),
            "equivalent-mutant",
        ),
        Mutant(
            "a mutant of another kernel",
            (('"row * stride_xm", "row * N"', '"gate * up", "gate + up"'),),
            "mutant-not-applicable",
        ),
    ),
    "10.6": (
        Mutant(
            "no synchronisation after",
            (("            gpu.kernel(size)\n            gpu.synchronize()\n", "            gpu.kernel(size)\n"),),
            "not-synchronised",
        ),
        Mutant("a warm cache", (("            gpu.flush_cache()\n", ""),), "warm-cache"),
        Mutant(
            "the flush between the clocks",
            (
                (
                    "            gpu.flush_cache()\n            gpu.synchronize()\n            start = gpu.clock()\n",
                    "            gpu.synchronize()\n            start = gpu.clock()\n            gpu.flush_cache()\n",
                ),
            ),
            "flush-counted",
        ),
        Mutant(
            "no wait for the flush",
            (("            gpu.flush_cache()\n            gpu.synchronize()\n", "            gpu.flush_cache()\n"),),
            "flush-counted",
        ),
        Mutant(
            "compilation counted",
            (
                ("        gpu.kernel(size)  # compiles\n", ""),
                ("sorted(times)[len(times) // 2]", "sum(times) / len(times)"),
            ),
            "compilation-counted",
        ),
        Mutant("the mean", (("sorted(times)[len(times) // 2]", "sum(times) / len(times)"),), "mean-not-median"),
        Mutant("one size", (("for size in sizes:", "for size in sizes[-1:]:"),), "one-size"),
    ),
}
