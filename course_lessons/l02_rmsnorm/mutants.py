"""Wrong answers to the exercises of lesson 02, each with the diagnosis that it must get."""

from course_lab.authoring.exercise import Mutant

_LOAD_X = "tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0)"
_LOAD_W = "tl.load(w_ptr + cols, mask=mask, other=0.0)"
_RSTD = "tl.rsqrt(mean_square + eps)"

MUTANTS = {
    "2.1": (
        Mutant("divides by the block", (("/ N", "/ BLOCK"),), "divides-by-block"),
        Mutant("load without other=", ((", other=0.0", ""),), "missing-other"),
        Mutant("load without a mask", ((", mask=cols < N, other=0.0", ""),), "missing-load-mask"),
        Mutant("squares in float16", ((".to(tl.float32)", ""),), "half-accumulation"),
        Mutant("sum instead of mean", (("tl.sum(x * x, axis=0) / N", "tl.sum(x * x, axis=0)"),), "sum-not-mean"),
        Mutant("forgets the square", (("tl.sum(x * x", "tl.sum(x"),), "mean-not-squared"),
        Mutant("rows N apart", (("row * stride_xm", "row * N"),), "between-rows"),
        Mutant("every program stores element 0", (("out_ptr + row", "out_ptr"),), "program-id-unused"),
        Mutant("one row too few", (("kernel[(M,)]", "kernel[(M - 1,)]"),), "partly-written"),
    ),
    "2.2": (
        Mutant("divides by the block", (("/ N", "/ BLOCK"),), "divides-by-block"),
        Mutant("eps outside the root", ((_RSTD, "(1 / (tl.sqrt(mean_square) + eps))"),), "eps-outside-root"),
        Mutant("no eps", ((_RSTD, "tl.rsqrt(mean_square)"),), "missing-eps"),
        Mutant("no root", ((_RSTD, "(1 / (mean_square + eps))"),), "missing-root"),
        Mutant("x without other=", ((_LOAD_X, _LOAD_X.replace(", other=0.0", "")),), "missing-other"),
        Mutant("sums in the dtype of x", ((_LOAD_X + ".to(tl.float32)", _LOAD_X),), "half-accumulation"),
        Mutant("rows N apart", (("row * stride_xm", "row * N"),), "between-rows"),
        Mutant("row width hard-coded", (("row * stride_xm", "row * 576"),), "hard-coded-size"),
        Mutant("weight without a mask", ((_LOAD_W, "tl.load(w_ptr + cols)"),), "missing-load-mask"),
        Mutant("store without a mask", ((".element_ty), mask=mask)", ".element_ty))"),), "missing-store-mask"),
        Mutant("no weight", ((_RSTD + " * w", _RSTD),), "missing-weight"),
        Mutant("block for 1024 columns", (("triton.next_power_of_2(N)", "1024"),), "block-too-short"),
        Mutant("every program takes row 0", (("tl.program_id(0).to(tl.int64)", "0"),), "program-id-unused"),
    ),
    "2.3": (
        Mutant(
            "normalises the unrounded sum",
            (("total = new_residual.to(tl.float32)", "total = x + residual"),),
            "normalises-unrounded-sum",
        ),
        Mutant("divides by the block", (("/ N", "/ BLOCK"),), "divides-by-block"),
        Mutant("eps outside the root", ((_RSTD, "(1 / (tl.sqrt(mean_square) + eps))"),), "eps-outside-root"),
        Mutant("normalises x alone", (("total = new_residual.to(tl.float32)", "total = x"),), "residual-not-added"),
        Mutant(
            "keeps the old residual",
            (("cols, new_residual, mask=mask)", "cols, residual, mask=mask)"),),
            "returns-old-residual",
        ),
        Mutant("results swapped", (("return y, new_residual", "return new_residual, y"),), "swapped-results"),
        Mutant(
            "writes the sum into the residual",
            (("new_residual = torch.empty_like(y)", "new_residual = residual"),),
            "input-modified",
        ),
        Mutant(
            "one stride for both inputs",
            (("residual_ptr + row * stride_rm", "residual_ptr + row * stride_xm"),),
            "wrong-stride",
        ),
        Mutant("loads without other=", ((", other=0.0", ""),), "missing-other"),
        Mutant(
            "sum stored without a mask",
            (("cols, new_residual, mask=mask)", "cols, new_residual)"),),
            "missing-store-mask",
        ),
        Mutant(
            "never stores the sum",
            (("    tl.store(new_residual_ptr + row * stride_ym + cols, new_residual, mask=mask)\n", ""),),
            "output-untouched",
        ),
        Mutant(
            "adds with PyTorch",
            (("    return y, new_residual", "    return y, x + residual"),),
            "torch-result",
        ),
    ),
    "2.4": (
        Mutant(
            "as given, both bugs",
            (
                ("tl.where(mask, x - mean, 0.0)", "(x - mean)"),  # the brackets make it differ from the stub
                ("centred * tl.rsqrt(variance + eps)", "centred / (tl.sqrt(variance) + eps)"),
            ),
            "padded-variance",
        ),
        Mutant("padded variance left", (("tl.where(mask, x - mean, 0.0)", "x - mean"),), "padded-variance"),
        Mutant(
            "eps left outside the root",
            (("centred * tl.rsqrt(variance + eps)", "centred / (tl.sqrt(variance) + eps)"),),
            "eps-outside-root",
        ),
        Mutant("variance over N - 1", (("axis=0) / N\n    y", "axis=0) / (N - 1)\n    y"),), "unbiased-variance"),
        Mutant(
            "mean not subtracted", (("tl.where(mask, x - mean, 0.0)", "tl.where(mask, x, 0.0)"),), "mean-not-subtracted"
        ),
        Mutant("bias lost", ((" * w + b", " * w"),), "missing-bias"),
        Mutant("store without a mask", ((".element_ty), mask=mask)", ".element_ty))"),), "missing-store-mask"),
        Mutant(
            "idle lanes as NaN",
            (("x_ptr + row * stride_xm + cols, mask=mask, other=0.0", "x_ptr + row * stride_xm + cols, mask=mask"),),
            "missing-other",
        ),
    ),
    "2.5": (
        Mutant("keeps only the last block's squares", (("squares += x * x", "squares = x * x"),), "only-last-block"),
        Mutant(
            "weights of the first block everywhere",
            (("w_ptr + cols, mask=mask", "w_ptr + tl.arange(0, BLOCK), mask=mask"),),
            "weight-not-advanced",
        ),
        Mutant("divides by the block", (("/ N", "/ BLOCK"),), "divides-by-block"),
        Mutant(
            "eps outside the root",
            (("tl.rsqrt(tl.sum(squares, axis=0) / N + eps)", "1 / (tl.sqrt(tl.sum(squares, axis=0) / N) + eps)"),),
            "eps-outside-root",
        ),
        Mutant("first loop without other=", (("mask=cols < N, other=0.0", "mask=cols < N"),), "missing-other"),
        Mutant("store without a mask", ((".element_ty), mask=mask)", ".element_ty))"),), "missing-store-mask"),
        Mutant("only full blocks", (("range(0, N, BLOCK)", "range(0, N - BLOCK + 1, BLOCK)"),), "last-block-left-out"),
        Mutant(
            "every turn takes the first block",
            (("cols = start + tl.arange", "cols = 0 * start + tl.arange"),),
            "partly-written",
        ),
        Mutant(
            "a block's own statistics",
            (("(x * rstd * w)", "(x * tl.rsqrt(tl.sum(x * x, axis=0) / tl.minimum(BLOCK, N - start) + eps) * w)"),),
            "block-statistics",
        ),
    ),
    "2.6": (
        Mutant(
            "one sum for all rows",
            (
                ("tl.sum(x * x, axis=1) / N", "tl.sum(x * x) / N"),
                ("(mean_square + eps)[:, None]", "(mean_square + eps)"),
            ),
            "one-statistic-for-all-rows",
        ),
        Mutant("divides by the block", (("axis=1) / N", "axis=1) / BLOCK_N"),), "divides-by-block"),
        Mutant(
            "rows without a mask",
            (("(offs_m < M)[:, None] & mask_n[None, :]", "(offs_m >= 0)[:, None] & mask_n[None, :]"),),
            "mask-too-wide",
        ),
        Mutant(
            "columns without a mask",
            (("(offs_m < M)[:, None] & mask_n[None, :]", "(offs_m < M)[:, None] & (offs_n >= 0)[None, :]"),),
            "mask-too-wide",
        ),
        Mutant(
            "weight without a mask",
            (("w_ptr + offs_n, mask=mask_n, other=0.0", "w_ptr + offs_n"),),
            "missing-load-mask",
        ),
        Mutant("grid rounds down", (("triton.cdiv(M, 16)", "M // 16"),), "grid-floor-division"),
        Mutant(
            "eps outside the root",
            (("tl.rsqrt(mean_square + eps)", "(1 / (tl.sqrt(mean_square) + eps))"),),
            "eps-outside-root",
        ),
        Mutant(
            "squares in float16", (("other=0.0).to(tl.float32)\n    w =", "other=0.0)\n    w ="),), "half-accumulation"
        ),
        Mutant(
            "x without other=",
            (("x_ptr + x_offs, mask=mask, other=0.0", "x_ptr + x_offs, mask=mask"),),
            "missing-other",
        ),
    ),
}
