"""Wrong answers to the exercises of lesson 05, each with the diagnosis that it must get."""

from course_lab.authoring.exercise import Mutant

_IEEE = ', input_precision="ieee"'
_MASK_A, _MASK_B = "mask=(offs_m < M) & (k_a < K)", "mask=(k_b < K) & (offs_n < N)"
_NO_IEEE = Mutant("float32 without ieee", ((_IEEE, ""),), "simulator-differs")

MUTANTS = {
    "5.1": (
        _NO_IEEE,
        Mutant("a without other=", (("(cols < K), other=0.0", "(cols < K)"),), "missing-other"),
        Mutant("a without a mask", ((", mask=(rows < M) & (cols < K), other=0.0", ""),), "missing-load-mask"),
        Mutant("operands exchanged", (("tl.dot(a, b", "tl.dot(b, a"),), "operands-exchanged"),
        Mutant("store without a mask", ((", mask=(rows < M) & (cols < N))\n\n", ")\n\n"),), "missing-store-mask"),
        Mutant("rounds to the dtype of a", (("cols, c, mask", "cols, c.to(a.dtype), mask"),), "half-accumulation"),
        Mutant("multiplies element by element", ((f"tl.dot(a, b{_IEEE})", "a * b"),), "elementwise-product"),
        Mutant(
            "masks of a and c exchanged", (("(rows < M) & (cols < K)", "(rows < M) & (cols < N)"),), "mask-too-wide"
        ),
    ),
    "5.2": (
        _NO_IEEE,
        Mutant("one step only", (("range(0, K, BLOCK_K)", "range(0, BLOCK_K, BLOCK_K)"),), "only-first-block"),
        Mutant("sum replaced", ((f"tl.dot(a, b, acc{_IEEE})", f"tl.dot(a, b{_IEEE})"),), "only-last-block"),
        Mutant(
            "whole blocks only",
            (("range(0, K, BLOCK_K)", "range(0, K - BLOCK_K + 1, BLOCK_K)"),),
            "last-block-left-out",
        ),
        Mutant(
            "accumulates in the dtype of a",
            ((f"tl.dot(a, b, acc{_IEEE})", f"tl.dot(a, b, acc{_IEEE}).to(a.dtype).to(tl.float32)"),),
            "half-accumulation",
        ),
        Mutant("no mask along K", ((_MASK_A, "mask=(offs_m < M)"), (_MASK_B, "mask=(offs_n < N)")), "mask-too-wide"),
        Mutant("loads without other=", ((", other=0.0", ""),), "missing-other"),
        Mutant("a contiguous", (("offs_m * stride_am", "offs_m * K"),), "between-rows"),
        Mutant("b contiguous", (("k_b * stride_bk + offs_n * stride_bn", "k_b * N + offs_n"),), "between-rows"),
        Mutant("grid rounds down", (("triton.cdiv(N, 32)", "N // 32"),), "grid-floor-division"),
        Mutant(
            "grid axes exchanged",
            (("(triton.cdiv(M, 32), triton.cdiv(N, 32))", "(triton.cdiv(N, 32), triton.cdiv(M, 32))"),),
            "partly-written",
        ),
        Mutant("store without a mask", ((", mask=(offs_m < M) & (offs_n < N))\n\n", ")\n\n"),), "missing-store-mask"),
    ),
    "5.3": (
        Mutant("another activation", (("tl.sigmoid(total)", "tl.sigmoid(1.702 * total)"),), "other-activation"),
        Mutant("no bias", (("acc + bias", "acc"),), "missing-bias"),
        Mutant("no activation", (("y = total * tl.sigmoid(total)", "y = total"),), "missing-activation"),
        Mutant("sigmoid instead of SiLU", (("total * tl.sigmoid(total)", "tl.sigmoid(total)"),), "wrong-activation"),
        Mutant(
            "bias after the activation",
            (("acc + bias", "acc"), ("total * tl.sigmoid(total)", "total * tl.sigmoid(total) + bias")),
            "bias-after-activation",
        ),
        Mutant(
            "bias in every step",
            (
                (
                    'input_precision="ieee")',
                    'input_precision="ieee") + tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)',
                ),
                ("acc + bias", "acc"),
            ),
            "bias-in-every-step",
        ),
        Mutant(
            "activation in the loop",
            (
                (
                    f"acc = tl.dot(x, w, acc{_IEEE})",
                    f"acc = tl.dot(x, w, acc{_IEEE})\n        acc = acc * tl.sigmoid(acc)",
                ),
                ("y = total * tl.sigmoid(total)", "y = total"),
            ),
            "activation-in-the-loop",
        ),
        Mutant("weight read as (K, N)", (("offs_n * K + k_w", "k_w * N + offs_n"),), "weight-not-transposed"),
        Mutant(
            "bias by row",
            (("bias_ptr + offs_n, mask=offs_n < N", "bias_ptr + offs_m, mask=offs_m < M"),),
            "mask-too-wide",
        ),
        Mutant(
            "bias without a mask",
            (("bias_ptr + offs_n, mask=offs_n < N, other=0.0", "bias_ptr + offs_n"),),
            "missing-load-mask",
        ),
        Mutant(
            "activation in PyTorch",
            (
                ("y = total * tl.sigmoid(total)", "y = total"),
                ("    return y", "    return torch.nn.functional.silu(y)"),
            ),
            "torch-result",
        ),
    ),
    "5.4": (
        Mutant(
            "as given, both bugs",
            (
                (" + tl.minimum(xcd, programs % XCDS)", " + 0"),  # differs from the stub
                ("tl.minimum(tiles_m - band * GROUP_M, GROUP_M)", "GROUP_M"),
            ),
            "remap-without-remainder",
        ),
        Mutant("remap left", ((" + tl.minimum(xcd, programs % XCDS)", ""),), "remap-without-remainder"),
        Mutant("band left", (("tl.minimum(tiles_m - band * GROUP_M, GROUP_M)", "GROUP_M"),), "last-band-too-high"),
        Mutant(
            "dies rounded up",
            (("xcd * (programs // XCDS) + tl.minimum(xcd, programs % XCDS)", "xcd * tl.cdiv(programs, XCDS)"),),
            "partly-written",
        ),
        Mutant(
            "remainder added to every die",
            (("tl.minimum(xcd, programs % XCDS)", "programs % XCDS"),),
            "program-id-unused",
        ),
        Mutant(
            "all bands as low as the last",
            (("tl.minimum(tiles_m - band * GROUP_M, GROUP_M)", "(tiles_m - 1) % GROUP_M + 1"),),
            "partly-written",
        ),
    ),
    "5.5": (
        _NO_IEEE,
        Mutant("SiLU of up", (("gate * tl.sigmoid(gate) * up", "up * tl.sigmoid(up) * gate"),), "gate-and-up-swapped"),
        Mutant("no SiLU", (("gate * tl.sigmoid(gate) * up", "gate * up"),), "missing-activation"),
        Mutant("loads the gate twice", (("(N + offs_n) * K", "offs_n * K"),), "gate-twice"),
        Mutant("up left out", (("tl.sigmoid(gate) * up", "tl.sigmoid(gate)"),), "only-the-gate"),
        Mutant(
            "neighbouring rows",
            (("offs_n * K + k_w, mask", "2 * offs_n * K + k_w, mask"), ("(N + offs_n) * K", "(2 * offs_n + 1) * K")),
            "interleaved",
        ),
        Mutant(
            "sums replaced",
            ((f"w_gate, gate{_IEEE}", f"w_gate{_IEEE}"), (f"w_up, up{_IEEE}", f"w_up{_IEEE}")),
            "only-last-block",
        ),
        Mutant(
            "one accumulator for both",
            ((f"up = tl.dot(x, w_up, up{_IEEE})", f"up = tl.dot(x, w_up, gate{_IEEE})"),),
            "shared-accumulator",
        ),
        Mutant("weight without a mask", (("mask=mask_w, other=0.0", "mask=k_w < K, other=0.0"),), "mask-too-wide"),
    ),
    "5.6": (
        _NO_IEEE,
        Mutant("left and right border not tested", ((" & (w >= 0) & (w < W)", ""),), "wraps-around"),
        Mutant("upper and lower border not tested", (("(h >= 0) & (h < H) & (w >= 0)", "(w >= 0)"),), "out-of-bounds"),
        Mutant(
            "window turned",
            (("offs_m // W + r - 1", "offs_m // W + 1 - r"), ("offs_m % W + s - 1", "offs_m % W + 1 - s")),
            "flipped-window",
        ),
        Mutant(
            "r and s exchanged",
            (("offs_m // W + r - 1", "offs_m // W + s - 1"), ("offs_m % W + s - 1", "offs_m % W + r - 1")),
            "rows-and-columns-swapped",
        ),
        Mutant("window off centre", (("+ r - 1", "+ r"), ("+ s - 1", "+ s")), "window-off-centre"),
        Mutant("sum replaced", ((f"tl.dot(x, weight, acc{_IEEE})", f"tl.dot(x, weight{_IEEE})"),), "only-last-block"),
        Mutant(
            "divides by the height", (("offs_m // W", "offs_m // H"), ("offs_m % W", "offs_m % H")), "divides-by-height"
        ),
        Mutant("channels without a mask", (("inside & (c_x < C)", "inside"),), "mask-too-wide"),
    ),
}
