"""Wrong answers to the exercises of lesson 01, each with the diagnosis that it must get."""

from course_lab.authoring.exercise import Mutant

_WIDE = ".to(tl.float32)"
_X = "tl.load(x_ptr + offs, mask=mask, other=0.0)"
_Y = "tl.load(y_ptr + offs, mask=mask, other=0.0)"
_ROUND_UP = "triton.cdiv(n, 1024)"
_GRID_2D = "(triton.cdiv(M, 16), triton.cdiv(N, 64))"
_GRID_TN = "(triton.cdiv(T, 8), triton.cdiv(N, 128))"

MUTANTS = {
    "1.1": (
        Mutant("scales the sum", (("alpha * x + y", "alpha * (x + y)"),), "scales-both"),
        Mutant("scales the other one", (("alpha * x + y", "x + alpha * y"),), "scales-other"),
        Mutant("forgets alpha", (("alpha * x + y", "x + y"),), "missing-factor"),
        Mutant("computes in the dtype of x", ((_WIDE, ""),), "half-accumulation"),
        Mutant("store without a mask", ((".element_ty), mask=mask)", ".element_ty))"),), "missing-store-mask"),
        Mutant("load without a mask", ((_X, "tl.load(x_ptr + offs)"),), "missing-load-mask"),
        Mutant("stores over x", (("tl.store(z_ptr", "tl.store(x_ptr"),), "input-modified"),
        Mutant(
            "forgets the store",
            (("tl.store(z_ptr + offs, z.to(z_ptr.dtype.element_ty), mask=mask)", "pass"),),
            "output-untouched",
        ),
        Mutant(
            "output of a fixed dtype",
            (("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float32)"),),
            "wrong-dtype",
        ),
    ),
    "1.2": (
        Mutant("store without a mask", ((".element_ty), mask=mask)", ".element_ty))"),), "missing-store-mask"),
        Mutant("load without a mask", ((_Y, "tl.load(y_ptr + offs)"),), "missing-load-mask"),
        Mutant("mask one too long", (("offs < n", "offs <= n"),), "mask-too-wide"),
        Mutant("mask one too short", (("offs < n", "offs < n - 1"),), "partly-written"),
        Mutant("grid rounded down", ((_ROUND_UP, "n // 1024"),), "grid-floor-division"),
        Mutant("program id not used", (("tl.program_id(0) * BLOCK + ", ""),), "program-id-unused"),
        Mutant("blocks one element apart", (("tl.program_id(0) * BLOCK", "tl.program_id(0)"),), "overlapping-programs"),
        Mutant("loads x twice", (("tl.load(y_ptr", "tl.load(x_ptr"),), "one-input-twice"),
        Mutant("subtracts", (("x + y)", "x - y)"),), "wrong-operation"),
        Mutant("writes into x", (("tl.store(z_ptr", "tl.store(x_ptr"),), "input-modified"),
        Mutant("size of the model", (("offs < n", "offs < 21312"),), "hard-coded-size"),
        Mutant("another block in the grid", ((_ROUND_UP, "triton.cdiv(n, 2048)"),), "partly-written"),
        Mutant("leaves it to PyTorch", (("z = torch.empty_like(x)", "return x + y"),), "not-launched"),
        Mutant("length not a power of two", (("BLOCK=1024", "BLOCK=576"),), "exception"),
        Mutant(
            "PyTorch adds, the kernel copies", (("(x + y).to", "x.to"), (",)](x, y", ",)](x + y, y")), "torch-before"
        ),
    ),
    "1.3": (
        Mutant(
            "strides swapped",
            (("[:, None] * stride_xm", "[:, None] * stride_xn"), ("[None, :] * stride_xn", "[None, :] * stride_xm")),
            "swapped-strides",
        ),
        Mutant("takes x for contiguous", (("* stride_xm", "* N"), (" * stride_xn", "")), "taken-for-contiguous"),
        Mutant("takes columns for adjacent", ((" * stride_xn", ""),), "column-stride-unused"),
        Mutant(
            "row stride of x in y",
            (("y_ptr + offs_m[:, None] * N", "y_ptr + offs_m[:, None] * stride_xm"),),
            "wrong-stride",
        ),
        Mutant("mask on the rows only", ((" & (offs_n[None, :] < N)", ""),), "mask-too-wide"),
        Mutant("mask on the columns only", (("(offs_m[:, None] < M) & ", ""),), "mask-too-wide"),
        Mutant("no mask", (("mask=mask, other=0.0", ""), (", x, mask=mask", ", x")), "missing-store-mask"),
        Mutant("grid rounded down", ((_GRID_2D, "(M // 16, N // 64)"),), "grid-floor-division"),
        Mutant("grid axes swapped", ((_GRID_2D, "(triton.cdiv(N, 64), triton.cdiv(M, 16))"),), "partly-written"),
        Mutant("one grid axis", ((_GRID_2D, "(triton.cdiv(M, 16),)"),), "partly-written"),
    ),
    "1.4": (
        Mutant("index not used", (("row * stride_xm", "i * stride_xm"),), "index-not-used"),
        Mutant(
            "scatters",
            (("row * stride_xm", "i * stride_xm"), ("i * N", "row * N")),
            "out-of-bounds",
        ),
        Mutant("one index for all", (("tl.load(index_ptr + i)", "tl.load(index_ptr)"),), "one-index-for-all"),
        Mutant("rows N apart", (("row * stride_xm", "row * N"),), "between-rows"),
        Mutant("stride of x in y", (("i * N", "i * stride_xm"),), "wrong-stride"),
        Mutant("store without a mask", (("cols, x, mask=mask)", "cols, x)"),), "missing-store-mask"),
        Mutant("load without a mask", (("cols, mask=mask, other=0.0)", "cols)"),), "missing-load-mask"),
        Mutant("index used as an offset", (("row * stride_xm", "row"),), "index-not-scaled"),
        Mutant("mask of the rows", (("cols < N", "cols < row"),), "partly-written"),
        Mutant("all programs write row 0", (("i * N + cols", "cols"),), "program-id-unused"),
    ),
    "1.5": (
        Mutant("as it was found", (("offs < n", "offs <= n"), (_ROUND_UP, "n // 1024")), "grid-floor-division"),
        Mutant("only the grid repaired", (("offs < n", "offs <= n"),), "mask-too-wide"),
        Mutant("only the mask repaired", ((_ROUND_UP, "n // 1024"),), "grid-floor-division"),
        Mutant("one program more, always", ((_ROUND_UP, "n // 1024 + 1"), ("offs < n", "offs <= n")), "mask-too-wide"),
        Mutant("mask too short", (("offs < n", "offs < n - 1"),), "partly-written"),
        Mutant("no mask at all", (("mask = offs < n", "mask = offs >= 0"),), "mask-too-wide"),
        Mutant("one program at least", ((_ROUND_UP, "max(n // 1024, 1)"),), "grid-floor-division"),
        Mutant("a block for each row", ((_ROUND_UP, "len(x)"),), "partly-written"),
        Mutant("the size of the model", (("residual, y, n,", "residual, y, 21312,"),), "hard-coded-size"),
    ),
    "1.6": (
        Mutant("one stride for both", (("* stride_rm", "* stride_xm"),), "wrong-stride"),
        Mutant("rows N apart", (("* stride_xm", "* N"),), "between-rows"),
        Mutant("bias without a mask", (("mask=offs_n < N, other=0.0", ""),), "missing-load-mask"),
        Mutant(
            "bias by rows",
            (("bias_ptr + offs_n, mask=offs_n < N", "bias_ptr + offs_m, mask=offs_m < N"),),
            "bias-by-rows",
        ),
        Mutant("adds in bfloat16", ((_WIDE, ""),), "half-accumulation"),
        Mutant("forgets the bias", (("x + bias + residual", "x + residual"),), "missing-bias"),
        Mutant("forgets the residual", (("x + bias + residual", "x + bias"),), "missing-residual"),
        Mutant(
            "mask on the columns only",
            (("(offs_m < T) & (offs_n < N)", "(offs_m < T * BLOCK_M) & (offs_n < N)"),),
            "mask-too-wide",
        ),
        Mutant("grid rounded down", ((_GRID_TN, "(T // 8, N // 128)"),), "grid-floor-division"),
        Mutant(
            "one wide block for each row",
            ((_GRID_TN, "(T, 1)"), ("BLOCK_M=8, BLOCK_N=128", "BLOCK_M=1, BLOCK_N=2048")),
            "partly-written",
        ),
        Mutant(
            "two launches",
            (("    bias_residual_add_kernel[grid]", "    for _ in range(2): bias_residual_add_kernel[grid]"),),
            "too-many-launches",
        ),
        Mutant("program id of one axis", (("tl.program_id(1)", "0"),), "program-id-unused"),
    ),
}
