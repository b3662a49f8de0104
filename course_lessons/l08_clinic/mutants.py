"""Wrong answers to the patients of lesson 08: findings that show nothing, causes that are none, repairs that hide."""

from course_lab.authoring.exercise import Mutant


def _finding(name: str, old: str, new: str, diagnosis: str) -> Mutant:
    return Mutant(name, ((old, new),), diagnosis)


def _cause(right: str, wrong: str, diagnosis: str = "another-cause") -> Mutant:
    return Mutant(f"cause {wrong or 'left out'}", ((f'cause = "{right}"', f'cause = "{wrong}"'),), diagnosis)


_VARIANCE = "(torch.randn(4, 500) + 10.0,)"
_CENTRED = "tl.where(mask, x - mean, 0.0)"
_LSE_X = "x[0, :64] = -float"
_LAUNCH = "variance_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))"
_TOTAL = "total = total * tl.exp(top - centre) + tl.sum(tl.exp(x - centre), axis=0)"
_CENTRE = 'centre = tl.where(new_top == -float("inf"), 0.0, new_top)'
_APPEND = "torch.randn(3, 8), torch.zeros(4, 8), torch.tensor([2, -1, 0])"
_STORE = "mask=mask & (slot >= 0)"
_ROTATE = "torch.randn(2, 128), angle.cos(), angle.sin()"
_LOADS = "    a = tl.load(x_ptr + row * D + i)\n    b = tl.load(x_ptr + row * D + D // 2 + i)\n"
_WARPS = "16 if block >= 8192"
_SCALE_LAUNCH = "BLOCK=min(triton.next_power_of_2(N), 8192), num_warps=8"
_AMAX8 = "tl.maximum(tl.max(tl.abs(x), axis=0), 1e-10)"
_Q = "q = tl.clamp(x / scale, -FP8_MAX, FP8_MAX, propagate_nan=tl.PropagateNan.ALL)"
_INDEX = "(first_row + row).to(tl.int64) * N + best"
_TILE = '{"BLOCK": 128, "BLOCK_K": 64, "num_stages": 2}'
_TERM = ".to(tl.float32)\n"

MUTANTS = {
    "8.1": (
        _finding("the author's own input", _VARIANCE, "(torch.randn(8, 500),)", "breaks-nothing"),
        _finding("a centre, whole blocks", _VARIANCE, "(torch.randn(4, 512) + 10.0,)", "breaks-nothing"),
        _finding("NaN", _VARIANCE, '(torch.full((4, 500), float("nan")),)', "finding-refused"),
        _finding("more than float32 holds", _VARIANCE, "(torch.randn(4, 500) * 1e30,)", "breaks-every-kernel"),
        _finding("a vector", _VARIANCE, "(torch.randn(500) + 10.0,)", "finding-refused"),
        _finding("two arguments", _VARIANCE, "(torch.randn(4, 500), 500)", "finding-refused"),
        _finding("no tensor", _VARIANCE, "(None,)", "finding-refused"),
        _finding("raises", _VARIANCE, "(undefined,)", "finding-failed"),
        _cause("padded-lanes", "missing-other"),
        _cause("padded-lanes", "a bug", "unknown-cause"),
        _cause("padded-lanes", "", "unfinished"),
        Mutant(
            "the bug left, written otherwise", ((_CENTRED, "tl.where(cols >= 0, x - mean, 0.0)"),), "padding-counted"
        ),
        Mutant(
            "mean of the squares minus square of the mean",
            ((_CENTRED, "x"), ("centred * centred, axis=0) / N)", "centred * centred, axis=0) / N - mean * mean)")),
            "not-cured",
        ),
        Mutant(
            "PyTorch computes it",
            (("    return out", "    return x.var(dim=1, unbiased=False)"),),
            "torch-result",
        ),
        Mutant("launched four times", ((_LAUNCH, f"for _ in range(4):\n        {_LAUNCH}"),), "too-expensive"),
    ),
    "8.2": (
        _finding("padding on the right", _LSE_X, "x[0, 64:] = -float", "breaks-nothing"),
        _finding("one column too few", _LSE_X, "x[0, :63] = -float", "breaks-nothing"),
        _finding("the second block", _LSE_X, "x[0, 64:128] = -float", "breaks-nothing"),
        _finding("plus infinity", _LSE_X, "x[0, :64] = float", "breaks-every-kernel"),
        _cause("inf-minus-inf", "log-of-zero"),
        _cause("inf-minus-inf", "exp-overflow"),
        Mutant(
            "no guard",
            ((_CENTRE, "centre = new_top"), ("axis=0)\n        top", "axis=0) + 0.0\n        top")),
            "still-nan",
        ),
        Mutant(
            "NaN covered at the end",
            (
                (_CENTRE, "centre = new_top"),
                ("top + tl.log(total))", 'tl.where(total == total, top + tl.log(total), -float("inf")))'),
            ),
            "nan-covered",
        ),
        Mutant("a stand-in for -inf", ((_CENTRE, "centre = tl.maximum(new_top, -1e6)"),), "not-cured"),
    ),
    "8.3": (
        _finding(
            "no padding", _APPEND, "torch.randn(3, 8), torch.zeros(4, 8), torch.tensor([2, 1, 0])", "breaks-nothing"
        ),
        _finding(
            "past the end", _APPEND, "torch.randn(3, 8), torch.zeros(4, 8), torch.tensor([2, 4, 0])", "finding-refused"
        ),
        _finding(
            "below -1", _APPEND, "torch.randn(3, 8), torch.zeros(4, 8), torch.tensor([2, -9, 0])", "finding-refused"
        ),
        _finding(
            "a slot twice", _APPEND, "torch.randn(3, 8), torch.zeros(4, 8), torch.tensor([2, 2, 0])", "finding-refused"
        ),
        _finding("int32", _APPEND, "torch.randn(1, 8), torch.zeros(4, 8), torch.tensor([-1]).int()", "finding-refused"),
        _cause("padding-as-address", "missing-store-mask"),
        Mutant(
            "padding into row 0",
            ((_STORE, "mask=mask"), ("cache_ptr + slot * WIDTH", "cache_ptr + tl.maximum(slot, 0) * WIDTH")),
            "padding-in-row-zero",
        ),
        Mutant("slot 0 taken for padding", ((_STORE, "mask=mask & (slot > 0)"),), "slot-zero-left-out"),
        Mutant("only -1 as the first token", ((_STORE, "mask=mask & ((slot >= 0) | (token > 0))"),), "padding-slot"),
    ),
    "8.4": (
        _finding(
            "a head of 64", _ROTATE, "torch.randn(2, 64), angle[:, :32].cos(), angle[:, :32].sin()", "breaks-nothing"
        ),
        _finding(
            "an angle of 0", _ROTATE, "torch.randn(2, 128), torch.ones(2, 64), torch.zeros(2, 64)", "breaks-nothing"
        ),
        _finding(
            "a head of 100", _ROTATE, "torch.randn(2, 100), torch.rand(2, 50), torch.rand(2, 50)", "finding-refused"
        ),
        _cause("partner-of-another-wave", "stored-before-loaded"),
        _cause("partner-of-another-wave", "programs-share-a-row"),
        Mutant(
            "the partner loaded first",
            (
                ("    i = tl.arange(0, D // 2)\n", "    i = tl.arange(0, D // 2)\n    d = tl.arange(0, D)\n"),
                (_LOADS, "    o = tl.load(x_ptr + row * D + (d + D // 2) % D)\n    a = tl.load(x_ptr + row * D + d)\n"),
                ("    tl.store(x_ptr + row * D + i, a * cos - b * sin)\n", ""),
                ("+ row * (D // 2) + i)", "+ row * (D // 2) + d % (D // 2))"),
                (
                    "tl.store(x_ptr + row * D + D // 2 + i, b * cos + a * sin)",
                    "tl.store(x_ptr + row * D + d, a * cos + tl.where(d < D // 2, -1.0, 1.0) * o * sin)",
                ),
            ),
            "wave-race",
        ),
        Mutant(
            "first half stored before the second is read",
            (
                (
                    _LOADS,
                    f"{_LOADS}    a = a * cos - b * sin\n",
                ),
                ("i, a * cos - b * sin)", "i, a)"),
            ),
            "turned-with-new-half",
        ),
    ),
    "8.5": (
        _finding("a card with waves of 32", '"gfx942", 40_000', '"gfx1100", 40_000', "breaks-nothing"),
        _finding("short rows", '"gfx942", 40_000', '"gfx942", 10_000', "breaks-nothing"),
        _finding("an unknown card", '"gfx942", 40_000', '"MI300X", 40_000', "finding-refused"),
        _finding("no size", '"gfx942", 40_000', '"gfx942", None', "finding-refused"),
        _finding("too long", '"gfx942", 40_000', '"gfx942", 1_000_000', "finding-refused"),
        _cause("too-many-threads", "too-much-lds"),
        Mutant(
            "the block cut", (("triton.next_power_of_2(N)", "min(triton.next_power_of_2(N), 16384)"),), "row-cut-short"
        ),
        Mutant("a longer limit", ((_WARPS, "32 if block >= 65536 else 16 if block >= 8192"),), "still-bad-on-target"),
    ),
    "8.6": (
        _finding("a card with room", '"gfx1100", 20_000', '"gfx942", 20_000', "breaks-nothing"),
        _finding("short rows", '"gfx1100", 20_000', '"gfx1100", 4_000', "breaks-nothing"),
        _finding("the wrong way round", '"gfx1100", 20_000', '20_000, "gfx1100"', "finding-refused"),
        _cause("block-too-large", "row-read-twice"),
        Mutant(
            "a block that is still too large",
            ((_SCALE_LAUNCH, "BLOCK=triton.next_power_of_2(N), num_warps=4"),),
            "still-bad-on-target",
        ),
        Mutant("scaled block by block", (("        squares += x * x\n", "        squares = x * x\n"),), "row-factor"),
        Mutant("a block of 64", ((_SCALE_LAUNCH, "BLOCK=64, num_warps=8"),), "too-expensive"),
    ),
    "8.7": (
        _finding("zeros in a row", "x[1] = 0.0", "x[1, 1:] = 0.0", "breaks-nothing"),
        _finding("infinity", "x[1] = 0.0", 'x[1, 0] = float("inf")', "breaks-nothing"),
        _cause("zero-by-zero", "not-clamped"),
        Mutant(
            "NaN covered",
            ((_AMAX8, "tl.max(tl.abs(x), axis=0)"), (_Q, f"{_Q}\n    q = tl.where(q == q, q, 0.0)")),
            "nan-covered",
        ),
        Mutant("a floor of 1", ((_AMAX8, "tl.maximum(tl.max(tl.abs(x), axis=0), 1.0)"),), "not-cured"),
        Mutant("a floor that rounds to 0", ((_AMAX8, "tl.max(tl.abs(x), axis=0) + 0.0"),), "without-choice"),
    ),
    "8.8": (
        _finding(
            "16 heads",
            "torch.randn(2, 40, 16), torch.randn(40)",
            "torch.randn(2, 16, 16), torch.randn(16)",
            "breaks-nothing",
        ),
        _finding("too few gains", "torch.randn(40)", "torch.randn(16)", "finding-refused"),
        _cause("heads-not-masked", "wrong-stride"),
        Mutant(
            "only the loads masked",
            (("x * gain[:, None], mask=mask[:, None])", "x * gain[:, None])"),),
            "missing-store-mask",
        ),
        Mutant("only the store masked", (("mask=mask[:, None], other=0.0)", ")"),), "missing-load-mask"),
    ),
    "8.9": (
        _finding(
            "the last row that works",
            "torch.randn(2, 4096), 600_000",
            "torch.randn(2, 4096), 400_000",
            "breaks-nothing",
        ),
        _finding(
            "a row that does not exist",
            "torch.randn(2, 4096), 600_000",
            "torch.randn(2, 64), 90_000_000",
            "finding-refused",
        ),
        _finding("a tensor for a number", "600_000\n", "torch.tensor(600_000)\n", "finding-refused"),
        _cause("int32-product", "float-index"),
        Mutant("wide after the product", ((_INDEX, "((first_row + row) * N).to(tl.int64) + best"),), "still-wrapped"),
        Mutant("unsigned", ((_INDEX, "((first_row + row) * N).to(tl.uint32).to(tl.int64) + best"),), "still-wrapped"),
        Mutant("wide after the sum", ((_INDEX, "((first_row + row) * N + best).to(tl.int64)"),), "still-wrapped"),
        Mutant(
            "a method of what may be the constant 1",
            ((_INDEX, "(first_row.to(tl.int64) + row) * N + best"),),
            "compiler-refuses",
        ),
        Mutant(
            "the last of equal numbers",
            (("tl.argmax(x, axis=0)", "tl.max(tl.where(x == tl.max(x, axis=0), cols, -1), axis=0)"),),
            "last-of-equals",
        ),
    ),
    "8.10": (
        _finding("a card with room", '"gfx942", 256', '"gfx950", 256', "breaks-nothing"),
        _finding("the small tile", '"gfx942", 256', '"gfx942", 64', "breaks-nothing"),
        _cause("too-much-lds", "too-many-registers"),
        Mutant(
            "cured for the complaint's size alone",
            ((_TILE, '{"BLOCK": 128, "BLOCK_K": 64, "num_stages": 2 if N <= 256 else 4}'),),
            "still-bad-on-target",
        ),
        Mutant("the small tile for all", ((_TILE, '{"BLOCK": 32, "BLOCK_K": 32}'),), "too-expensive"),
        Mutant(
            "one stage less, not enough",
            ((_TILE, '{"BLOCK": 128, "BLOCK_K": 128, "num_stages": 3}'),),
            "still-bad-on-target",
        ),
        Mutant(
            "the last columns of k left out",
            (("range(0, N, BLOCK_K)", "range(0, N - BLOCK_K + 1, BLOCK_K)"),),
            "partly-read",
        ),
    ),
    "8.11": (
        _finding("ten thousand", "1_000_000", "10_000", "breaks-nothing"),
        _finding("zeros", "torch.ones(1, 1_000_000", "torch.zeros(1, 1_000_000", "breaks-nothing"),
        _finding("float32", ", dtype=torch.bfloat16),)", "),)", "finding-refused"),
        _cause("narrow-accumulator", "narrow-input"),
        Mutant(
            "the accumulator alone in float16",
            (
                ("tl.zeros((BLOCK,), tl.float32)", "tl.zeros((BLOCK,), tl.float16)"),
                (_TERM, ".to(tl.float16)\n"),
                ("tl.sum(total, axis=0)", "tl.sum(total.to(tl.float32), axis=0)"),
            ),
            "not-cured",
        ),
        Mutant(
            "a longer block",
            (
                ("tl.zeros((BLOCK,), tl.float32)", "tl.zeros((BLOCK,), x_ptr.dtype.element_ty)"),
                (_TERM, "\n"),
                ("BLOCK=2048", "BLOCK=4096"),
                ("tl.sum(total, axis=0)", "tl.sum(total.to(tl.float32), axis=0)"),
            ),
            "not-cured",
        ),
    ),
    "8.12": (
        _finding("the author's own scale", "100.0 * torch", "5.0 * torch", "breaks-nothing"),
        _finding("infinity", "100.0 * torch.randn(2, 30)", 'torch.full((2, 30), float("inf"))', "finding-refused"),
        _cause("no-maximum", "narrow-accumulator"),
        Mutant("scores clamped", (("tl.exp(x - tl.max(x, axis=0))", "tl.exp(tl.minimum(x, 80.0))"),), "not-cured"),
        Mutant(
            "the maximum of a neighbour",
            (("tl.max(x, axis=0)", "tl.min(tl.where(mask, x, 0.0), axis=0)"),),
            "not-cured",
        ),
        Mutant("a fixed number subtracted", (("tl.max(x, axis=0)", "100.0"),), "not-cured"),
    ),
}
