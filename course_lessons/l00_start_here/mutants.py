"""Wrong answers to the exercises of lesson 00, each with the diagnosis that it must get."""

from course_lab.authoring.exercise import Mutant

_STORE = "tl.store(y_ptr + offs, 2 * x, mask=mask)"
_PID = "offs = pid * BLOCK + tl.arange(0, BLOCK)"

MUTANTS = {
    "0.1": (
        Mutant("store without a mask", (("2 * x, mask=mask", "2 * x"),), "missing-store-mask"),
        Mutant("nothing is stored", ((_STORE, "y = 2 * x"),), "output-untouched"),
        Mutant("stores into the input", (("tl.store(y_ptr", "tl.store(x_ptr"),), "input-modified"),
        Mutant("every program takes the first block", ((_PID, "offs = tl.arange(0, BLOCK)"),), "program-id-unused"),
        Mutant(
            "PyTorch computes it", (("double_kernel[grid](x, y, x.numel(), BLOCK=128)", "y = 2 * x"),), "not-launched"
        ),
    ),
    "0.2": (
        Mutant(
            "grid rounds down and is never empty", (("triton.cdiv(n, 128)", "max(n // 128, 1)"),), "grid-floor-division"
        ),
        Mutant("grid of one program", (("(triton.cdiv(n, 128),)", "(1,)"),), "partly-written"),
        Mutant("every program takes the first block", ((_PID, "offs = tl.arange(0, BLOCK)"),), "program-id-unused"),
        Mutant("store without a mask", (("x + c, mask=mask", "x + c"),), "missing-store-mask"),
        Mutant("load without a mask", (("x_ptr + offs, mask=mask", "x_ptr + offs"),), "missing-load-mask"),
        Mutant("hard-coded size", (("mask = offs < n", "mask = offs < 200"),), "hard-coded-size"),
    ),
    "0.3": (
        Mutant("no upper limit", (("tl.minimum(tl.maximum(x, lo), hi)", "tl.maximum(x, lo)"),), "only-lower-limit"),
        Mutant("no lower limit", (("tl.minimum(tl.maximum(x, lo), hi)", "tl.minimum(x, hi)"),), "only-upper-limit"),
        Mutant(
            "limits swapped",
            (("tl.minimum(tl.maximum(x, lo), hi)", "tl.maximum(tl.minimum(x, lo), hi)"),),
            "swapped-limits",
        ),
        Mutant("if on a block", (("tl.minimum(tl.maximum(x, lo), hi)", "x if x > lo else lo"),), "exception"),
        Mutant("store without a mask", (("y, mask=mask)", "y)"),), "missing-store-mask"),
    ),
    "0.4": (
        Mutant("grid rounds down", (("triton.cdiv(n, 256)", "n // 256"),), "grid-floor-division"),
        Mutant("block of the call differs from the grid's", (("BLOCK=256", "BLOCK=128"),), "partly-written"),
        Mutant("never launched", (("    distance_kernel[grid](x, y, out, n, BLOCK=256)\n", ""),), "not-launched"),
        Mutant("returns nothing", (("    return out", "    out"),), "wrong-type"),
        Mutant("writes into an input", (("(x, y, out, n, BLOCK=256)", "(x, y, x, n, BLOCK=256)"),), "input-modified"),
        Mutant("flattens the result", (("return out", "return out.flatten()"),), "wrong-shape"),
    ),
}
