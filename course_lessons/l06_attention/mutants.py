"""Wrong answers to the exercises of lesson 06, each with the diagnosis that it must get."""

from course_lab.authoring.exercise import Mutant

_MASKED = 'scores = tl.where(mask_n, scores, -float("inf"))'
_RESCALED = "acc * rescale[:, None]"
_UNSEEN = 'tl.where(seen, scores, -float("inf"))'
_CENTRE = 'tl.where(new_max == -float("inf"), 0.0, new_max)'
_SAFE_SUM = "tl.where(row_sum == 0.0, 1.0, row_sum)"

MUTANTS = {
    "6.1": (
        Mutant("pads with -100", (('other=-float("inf")', "other=-100.0"),), "finite-padding"),
        Mutant("pads with zeros", (('other=-float("inf")', "other=0.0"),), "zero-padding"),
        Mutant("subtracts no maximum", (("x - tl.max(x, axis=0)", "x"),), "no-maximum"),
        Mutant("does not divide", ((" / tl.sum(numerator, axis=0)", ""),), "not-normalised"),
        Mutant("load without other=", ((', other=-float("inf")', ""),), "missing-other"),
        Mutant("load without a mask", ((', mask=mask, other=-float("inf")', ""),), "missing-load-mask"),
        Mutant("store without a mask", ((".element_ty), mask=mask)", ".element_ty))"),), "missing-store-mask"),
        Mutant("rows N apart", (("row * stride_xm", "row * N"),), "between-rows"),
        Mutant(
            "takes the logarithm",
            (("numerator / tl.sum(numerator, axis=0)", "x - tl.max(x, axis=0) - tl.log(tl.sum(numerator, axis=0))"),),
            "log-softmax",
        ),
    ),
    "6.2": (
        Mutant(
            "the last block's maximum",
            (("tl.maximum(row_max, tl.max(x, axis=0))", "tl.max(x, axis=0)"),),
            "maximum-of-the-last-block",
        ),
        Mutant(
            "no guard",
            (('tl.where(new_max == -float("inf"), 0.0, new_max)', "new_max"),),
            "nothing-seen-yet",
        ),
        Mutant("does not rescale", (("row_sum * tl.exp(row_max - centre)", "row_sum"),), "not-rescaled"),
        Mutant("keeps the stand-in", (("row_max = new_max", "row_max = centre"),), "centre-kept"),
        Mutant("pads with zeros", (('other=-float("inf")', "other=0.0"),), "zero-padding"),
        Mutant("forgets to keep the maximum", (("        row_max = new_max\n", ""),), "maximum-not-kept"),
        Mutant("logarithm to base 2", (("tl.log(row_sum)", "tl.log2(row_sum)"),), "base-2-logarithm"),
        Mutant("relative to the old maximum", (("tl.exp(x - centre)", "tl.exp(x - row_max)"),), "old-maximum"),
        Mutant("forgets earlier blocks", (("row_sum * tl.exp(row_max - centre) + ", ""),), "only-last-block"),
        Mutant("forgets the logarithm", (("row_max + tl.log(row_sum)", "row_max + row_sum"),), "missing-logarithm"),
        Mutant("forgets the maximum", (("row_max + tl.log(row_sum)", "tl.log(row_sum)"),), "missing-maximum"),
        Mutant("load without other=", ((', other=-float("inf")', ""),), "missing-other"),
    ),
    "6.3": (
        Mutant("masks no keys", (('tl.where(mask_n, scores, -float("inf"))', "scores"),), "keys-past-the-end"),
        Mutant("no scale", (('"ieee") * scale', '"ieee")'),), "missing-scale"),
        Mutant("exp2 without log2 e", (("tl.exp(", "tl.exp2("),), "base-mixed"),
        Mutant("does not rescale acc", ((_RESCALED, "acc"),), "acc-not-rescaled"),
        Mutant("does not rescale the sum", (("row_sum * rescale", "row_sum"),), "sum-not-rescaled"),
        Mutant("rescales nothing", (("row_sum * rescale", "row_sum"), (_RESCALED, "acc")), "not-rescaled"),
        Mutant("does not divide", (("acc / row_sum[:, None]", "acc"),), "not-divided"),
        Mutant(
            "queries stored without a mask", ((".element_ty), mask=mask_m)", ".element_ty))"),), "missing-store-mask"
        ),
        Mutant(
            "keys without a mask",
            (("offs_n[:, None] * D + offs_d, mask=mask_n[:, None], other=0.0", "offs_n[:, None] * D + offs_d"),),
            "missing-load-mask",
        ),
        Mutant(
            "always the first keys",
            (
                ("k_ptr + offs_n[:, None]", "k_ptr + (offs_n - start)[:, None]"),
                ("v_ptr + offs_n[:, None]", "v_ptr + (offs_n - start)[:, None]"),
            ),
            "key-block-not-advanced",
        ),
        Mutant("fewer bits of float32", ((', input_precision="ieee"', ""),), "simulator-differs"),
    ),
    "6.4": (
        Mutant("mask from the top", (("offs_m + 1 + Sk - S", "offs_m + 1"),), "mask-from-the-top"),
        Mutant("no mask", (("offs_m + 1 + Sk - S", "offs_m * 0 + Sk"),), "no-causal-mask"),
        Mutant("sees the next key", (("offs_m + 1 + Sk - S", "offs_m + 2 + Sk - S"),), "sees-the-next-key"),
        Mutant("shares heads by remainder", (("head // GROUP", "head % (H // GROUP)"),), "heads-shared-the-wrong-way"),
        Mutant("first key head for all", ((" + head // GROUP * stride_kh", ""),), "first-key-head-for-all"),
        Mutant("no scale", (("D**-0.5 * math.log2(math.e)", "math.log2(math.e)"),), "missing-scale"),
        Mutant("exp2 without log2 e", ((" * math.log2(math.e)", ""),), "base-mixed"),
        Mutant(
            "stops too early",
            (("tl.max(keys_seen, axis=0)", "tl.min(keys_seen, axis=0)"),),
            "stops-before-the-diagonal",
        ),
        Mutant("queries D apart", (("stride_qm + offs_d", "D + offs_d"),), "between-rows"),
        Mutant(
            "tiles of 64, all of them",
            (
                ("range(0, end, BLOCK_N)", "range(0, Sk, BLOCK_N)"),
                ("triton.cdiv(S, 16)", "triton.cdiv(S, 64)"),
                ('"BLOCK_M": 16, "BLOCK_N": 16', '"BLOCK_M": 64, "BLOCK_N": 64'),
            ),
            "demand-not-met",
        ),
        Mutant(
            "PyTorch repeats the keys",
            (
                ("strides = *q", "k, v = (x.repeat_interleave(H // KH, dim=1) for x in (k, v))\n    strides = *q"),
                ("H // KH,", "1,"),
            ),
            "demand-not-met",
        ),
        Mutant("keys D apart", (("stride_kn + offs_d", "D + offs_d"),), "between-rows"),
        Mutant(
            "copies first",
            (
                ("strides = *q", "q, k, v = (triton_copy(x) for x in (q, k, v))\n    strides = *q"),
                (
                    "def prefill_attention",
                    "@triton.jit\ndef copy_kernel(x_ptr):\n    pass\n\n\n"
                    "def triton_copy(x):\n    x = x.contiguous()\n    copy_kernel[(1,)](x)\n    return x\n\n\n"
                    "def prefill_attention",
                ),
            ),
            "too-many-launches",
        ),
    ),
    "6.5": (
        Mutant(
            "as given, both bugs",
            (
                ("(offs_n >= keys_seen[:, None] - window)", "((offs_n > keys_seen[:, None] - window))"),
                (_UNSEEN, "tl.where(seen, scores, -1e4)"),
                (_SAFE_SUM, "row_sum"),
            ),
            "window-one-short",
        ),
        Mutant("window left one short", (("offs_n >= keys_seen", "offs_n > keys_seen"),), "window-one-short"),
        Mutant("window one too long", (("[:, None] - window", "[:, None] - 1 - window"),), "window-one-long"),
        Mutant("stand-in left", ((_UNSEEN, "tl.where(seen, scores, -1e4)"), (_SAFE_SUM, "row_sum")), "finite-stand-in"),
        Mutant("stand-in with a safe division", ((_UNSEEN, "tl.where(seen, scores, -1e4)"),), "finite-stand-in"),
        Mutant("no guard at all", ((_CENTRE, "new_max"), (_SAFE_SUM, "row_sum")), "nothing-seen-yet"),
        Mutant("guards the division only", ((_CENTRE, "new_max"),), "nothing-seen-yet"),
        Mutant("guards the maximum only", ((_SAFE_SUM, "row_sum"),), "zero-by-zero"),
        Mutant("keeps the centre", (("row_max = new_max", "row_max = centre"),), "centre-kept"),
    ),
    "6.6": (
        Mutant("no delta", (("(dp - delta[:, None])", "dp"),), "delta-left-out"),
        Mutant("no scale", (("(dq * scale)", "dq"),), "missing-scale"),
        Mutant("exp2 without log2 e", (("tl.exp(", "tl.exp2("),), "base-mixed"),
        Mutant("keys for values", (("tl.dot(do, v.T", "tl.dot(do, k.T"),), "keys-for-values"),
        Mutant(
            "masks no keys",
            (('scores = tl.where(mask_n, scores, -float("inf"))\n', "scores = scores\n"),),
            "keys-past-the-end",
        ),
        Mutant("keeps only the last block", (("ds.to(k.dtype), k, dq", "ds.to(k.dtype), k"),), "only-last-block"),
        Mutant(
            "LSE without a mask",
            (("lse_ptr + offs_m, mask=offs_m < Sq, other=0.0", "lse_ptr + offs_m"),),
            "missing-load-mask",
        ),
        Mutant("store without a mask", ((".element_ty), mask=mask_m)", ".element_ty))"),), "missing-store-mask"),
        Mutant("delta of the gradient alone", (("tl.sum(o * do", "tl.sum(do * do"),), "wrong-delta"),
    ),
}
