"""Wrong answers to the exercises of lesson 03, each with the diagnosis that it must get."""

from course_lab.authoring.exercise import Mutant

_WIDEN = ".to(tl.float32)"
_STORE_MASK = ".element_ty), mask=mask)"

MUTANTS = {
    "3.1": (
        Mutant(
            "exp(x) above and below", (("x / (1.0 + tl.exp(-x))", "x * tl.exp(x) / (1.0 + tl.exp(x))"),), "exp-overflow"
        ),
        Mutant("minus forgotten", (("tl.exp(-x)", "tl.exp(x)"),), "exponent-sign"),
        Mutant("sigmoid only", (("x / (1.0", "1.0 / (1.0"),), "sigmoid-only"),
        Mutant("16-bit numbers not widened", ((_WIDEN, ""),), "exception"),
        Mutant("load without a mask", ((", mask=mask, other=0.0", ""),), "missing-load-mask"),
        Mutant("store without a mask", ((_STORE_MASK, ".element_ty))"),), "missing-store-mask"),
        Mutant("every program takes the first block", (("tl.program_id(0) * BLOCK + ", ""),), "program-id-unused"),
        Mutant("grid rounds down", (("triton.cdiv(n, 256)", "n // 256"),), "grid-floor-division"),
        Mutant("in place", (("y = torch.empty_like(x)", "y = x"),), "input-modified"),
    ),
    "3.2": (
        Mutant(
            "halves swapped",
            (("gate / (1.0 + tl.exp(-gate)) * up", "up / (1.0 + tl.exp(-up)) * gate"),),
            "swapped-halves",
        ),
        Mutant(
            "gate and factor as neighbours",
            (
                ("gate_ptr = x_ptr + row * stride_xm + cols", "gate_ptr = x_ptr + row * stride_xm + 2 * cols"),
                ("gate_ptr + d", "gate_ptr + 1"),
            ),
            "neighbours-not-halves",
        ),
        Mutant("halves added", (("tl.exp(-gate)) * up", "tl.exp(-gate)) + up"),), "halves-added"),
        Mutant(
            "exp(gate) above and below",
            (("gate / (1.0 + tl.exp(-gate))", "gate * tl.exp(gate) / (1.0 + tl.exp(gate))"),),
            "exp-overflow",
        ),
        Mutant("factor in the middle of a wider row", (("gate_ptr + d", "gate_ptr + stride_xm // 2"),), "between-rows"),
        Mutant("no masks on the loads", ((", mask=mask, other=0.0", ""),), "missing-load-mask"),
        Mutant("no mask on the store", ((_STORE_MASK, ".element_ty))"),), "missing-store-mask"),
        Mutant("mask of the whole row", (("cols < d", "cols < 2 * d"),), "mask-too-wide"),
        Mutant("one block a row", (("(triton.cdiv(d, 512), M)", "(1, M)"),), "partly-written"),
        Mutant(
            "activation by PyTorch",
            (("    return y", "    return torch.nn.functional.silu(x[:, :d].float()).mul(x[:, d:]).to(x.dtype)"),),
            "torch-result",
        ),
    ),
    "3.3": (
        Mutant(
            "tanh by exp(2 u)",
            (("x * tl.sigmoid(2.0 * u)", "0.5 * x * (1.0 + (tl.exp(2.0 * u) - 1.0) / (tl.exp(2.0 * u) + 1.0))"),),
            "exp-overflow",
        ),
        Mutant(
            "silu by exp(x)",
            (("return x * tl.sigmoid(x)", "return x * tl.exp(x) / (1.0 + tl.exp(x))"),),
            "exp-overflow",
        ),
        Mutant(
            "gelu means the tanh form",
            (
                ('KIND == "gelu":', 'KIND == "no gelu":'),
                ('KIND == "gelu_tanh":', 'KIND == "gelu_tanh" or KIND == "gelu":'),
            ),
            "gelu-forms-mixed-up",
        ),
        Mutant(
            "gelu_tanh means the exact form",
            (('KIND == "gelu":', 'KIND == "gelu" or KIND == "gelu_tanh":'),),
            "gelu-forms-mixed-up",
        ),
        Mutant("last branch returns x", (("return tl.maximum(x, 0.0)", "return x"),), "unknown-means-identity"),
        Mutant("no cube", (("(x + 0.044715 * x * x * x)", "x"),), "missing-cube"),
        Mutant("sigmoid of u", (("tl.sigmoid(2.0 * u)", "tl.sigmoid(u)"),), "sigmoid-argument"),
        Mutant("erf of x", (("tl.erf(x / 1.4142135623730951)", "tl.erf(x)"),), "erf-argument"),
        Mutant("half forgotten", (("0.5 * x * (1.0 + tl.erf", "x * (1.0 + tl.erf"),), "constant-factor"),
    ),
    "3.4": (
        Mutant(
            "a sum for the floor",
            (("tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10)", "tl.max(tl.abs(x), axis=0) + 1e-10"),),
            "other-floor",
        ),
        Mutant(
            "as given, both bugs",
            (("tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10)", "(tl.max(x, axis=0))"),),
            "signed-maximum",
        ),
        Mutant("no magnitudes", (("tl.abs(x)", "x"),), "signed-maximum"),
        Mutant(
            "no floor", (("tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10)", "tl.max(tl.abs(x), axis=0)"),), "zero-scale"
        ),
        Mutant(
            "scale upside down",
            (("tl.store(scale_ptr + row, scale)", "tl.store(scale_ptr + row, 1.0 / scale)"),),
            "scale-inverted",
        ),
        Mutant("load without other=", (("mask=mask, other=0.0", "mask=mask"),), "missing-other"),
        Mutant("maximum of the other flavour", (("FP8_MAX=448.0", "FP8_MAX=240.0"),), "wrong-fp8-maximum"),
        Mutant("store without a mask", ((_STORE_MASK, ".element_ty))"),), "missing-store-mask"),
        Mutant("a scale for row 0 only", (("scale_ptr + row", "scale_ptr"),), "overlapping-programs"),
    ),
    "3.5": (
        Mutant("above p, not at least", ((">= p", "> p"),), "boundary-dropped"),
        Mutant(
            "numbers by the place in the block",
            (("tl.rand(seed, offs)", "tl.rand(seed, tl.arange(0, BLOCK))"),),
            "same-pattern-in-every-block",
        ),
        Mutant(
            "backwards by the place in the block",
            (("tl.where(tl.rand(seed, offs)", "tl.where(tl.rand(seed, tl.arange(0, BLOCK))"),),
            "same-pattern-in-every-block",
        ),
        Mutant("drops what it should keep", ((">= p", "< p"),), "mask-inverted"),
        Mutant(
            "new numbers backwards",
            (("tl.where(tl.rand(seed, offs)", "tl.where(tl.rand(seed + 1, offs)"),),
            "another-mask-backwards",
        ),
        Mutant(
            "backwards without a mask",
            (("tl.where(tl.rand(seed, offs) >= p, dy / (1.0 - p), 0.0)", "dy / (1.0 - p)"),),
            "nothing-dropped-backwards",
        ),
        Mutant("not scaled up", ((" / (1.0 - p)", ""),), "not-scaled-up"),
        Mutant(
            "product with the mask",
            (
                ("tl.where(keep, x / (1.0 - p), 0.0)", "x / (1.0 - p) * keep.to(tl.float32)"),
                (
                    "tl.where(tl.rand(seed, offs) >= p, dy / (1.0 - p), 0.0)",
                    "dy / (1.0 - p) * (tl.rand(seed, offs) >= p).to(tl.float32)",
                ),
            ),
            "product-with-the-mask",
        ),
        Mutant(
            "residual dropped as well",
            (("residual + tl.where(keep, x / (1.0 - p), 0.0)", "tl.where(keep, (residual + x) / (1.0 - p), 0.0)"),),
            "residual-dropped",
        ),
        Mutant("gradient into the wrong tensor", (("dx_ptr + offs", "dy_ptr + offs"),), "input-modified"),
    ),
    "3.6": (
        Mutant("no magnitudes", (("tl.abs(y)", "y"),), "signed-maximum"),
        Mutant(
            "no floor", (("tl.maximum(tl.max(tl.abs(y), axis=0), 1e-10)", "tl.max(tl.abs(y), axis=0)"),), "zero-scale"
        ),
        Mutant("halves swapped", (("gate * tl.sigmoid(gate) * up", "up * tl.sigmoid(up) * gate"),), "swapped-halves"),
        Mutant("no activation", (("gate * tl.sigmoid(gate) * up", "gate * up"),), "no-activation"),
        Mutant("scale upside down", (("+ group, scale)", "+ group, 1.0 / scale)"),), "scale-inverted"),
        Mutant("product not divided", (("tl.clamp(y / scale", "tl.clamp(y"),), "not-scaled"),
        Mutant("one scale a row", (("row * tl.num_programs(0) + group", "row"),), "overlapping-programs"),
        Mutant("idle lanes without a value", ((", other=0.0", ""),), "missing-other"),
        Mutant("mask of the group only", (("cols < d", "cols < (group + 1) * GROUP"),), "mask-too-wide"),
        Mutant(
            "only whole groups",
            (("silu_mul_quant_kernel[(groups, M)]", "silu_mul_quant_kernel[(d // group, M)]"),),
            "grid-floor-division",
        ),
    ),
}
