"""The exercises of lesson 03: what is asked, how it is checked, what the hints say."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from course_kernels import reference
from course_kernels.reference import philox, uniform
from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.authoring.far_rows import spread
from course_lab.authoring.tolerance import each, in_float32
from course_lessons.l03_fused_activations import reference as own
from course_lessons.makers import FAR, other_activations, widened

# exp, erf and a division lose a few units; behind them numbers of up to 40 cancel, as in 1 + erf(x) for x = -4.
_ONCE = in_float32(size=40.0)
# A scale has no sum and no cancellation, and a quotient by it is rounded to 8 bits.
_SCALED = each(in_float32(size=1.0), in_float32())

# Far below zero SiLU is nearly 0, and exp is not: its exponent is rounded, by a part of it.
_SMALL = {"atol": 0.0, "rtol": 2e-5, "why": "an exponent of 60, times log2(e) and rounded, makes a factor of 1 + 4e-6"}

_LARGEST = 448.0  # of float8_e4m3fn

Make = Callable[[Generator], tuple]


# ---- inputs --------------------------------------------------------------------------------------------------------


def _rows(m: int, n: int, generator: Generator, *, dtype=torch.float32, scale=1.0, strided=False) -> Tensor:
    """(m, n) of normally distributed values; strided: a slice of a wider matrix, so that rows lie n + 13 apart."""
    return (scale * torch.randn(m, n + 13 * strided, generator=generator)).to(dtype)[:, :n]


def _vector(n: int, **kind) -> Make:
    return lambda generator: (_rows(1, n, generator, **kind)[0].clone(),)


def _values(*values: float) -> Make:
    return lambda generator: (torch.tensor(values),)


def _halves(m: int, d: int, *rest, **kind) -> Make:
    """(m, 2 d) and further arguments."""
    return lambda generator: (_rows(m, 2 * d, generator, **kind), *rest)


def _large_gates(*rest) -> Make:
    """Gates from -1000 to 1000; their factors are ordinary."""

    def make(generator: Generator) -> tuple:
        gate = torch.linspace(-1000, 1000, 101).expand(2, 101)
        return torch.cat([gate, _rows(2, 101, generator)], dim=1), *rest

    return make


def _negative_gates(generator: Generator) -> tuple:
    return (torch.cat([torch.linspace(-60, -5, 90).expand(2, 90), 1 + torch.rand(2, 90, generator=generator)], dim=1),)


def _matrix(m: int, n: int, **kind) -> Make:
    return lambda generator: (_rows(m, n, generator, **kind),)


def _positive(m: int, n: int) -> Make:
    return lambda generator: (torch.rand(m, n, generator=generator),)


def _negative(m: int, n: int) -> Make:
    return lambda generator: (-50 * torch.rand(m, n, generator=generator),)


def _with_zero_row(m: int, n: int) -> Make:
    def make(generator: Generator) -> tuple:
        x = 100 * _rows(m, n, generator)
        x[1] = 0
        return (x,)

    return make


def _with_outlier(generator: Generator) -> tuple:
    """One number of 20000 in a row of ordinary ones."""
    x = _rows(3, 200, generator)
    x[1, 7] = -2e4
    return (x,)


def _step(m: int, n: int, p: float, seed: int, **kind) -> Make:
    return lambda generator: (*(_rows(m, n, generator, **kind) for _ in range(3)), p, seed)


def _infinite_step(generator: Generator) -> tuple:
    """Every element of x and dy is infinite, so each dropped one shows."""
    infinite = torch.full((2, 50), float("inf"))
    return infinite, _rows(2, 50, generator), infinite.clone(), 0.5, 11


def _unseen_step(generator: Generator) -> tuple:
    """Zeros in x, and numbers that vanish beside the residual: in y nobody sees what was dropped."""
    x, residual = _rows(3, 200, generator), _rows(3, 200, generator)
    x[:, ::2] = 0.0
    x[1] *= 1e-12
    return x, residual, _rows(3, 200, generator), 0.5, 13


def _far(make: Make) -> Make:
    """The same inputs, the rows of the first 2^30 elements apart."""

    def far(generator: Generator) -> tuple:
        x, *rest = make(generator)
        return spread(x, (FAR, 1)), *rest

    return far


def _near_the_floor(generator: Generator) -> tuple:
    """Rows whose largest magnitudes lie on either side of 1e-10."""
    sizes = torch.tensor([3e-11, 0.9e-10, 1.1e-10, 4e-10, 1e-30])
    return (sizes[:, None] * torch.rand(5, 70, generator=generator).clamp(min=0.2),)


def _largest_is_negative(generator: Generator) -> tuple:
    """The largest magnitude of each row is negative, by a hundredth."""
    x = _rows(3, 90, generator).clamp(-2.0, 2.0)
    x[:, 3], x[:, 80] = 5.0, -5.05
    return (x,)


def _drawn_exactly(generator: Generator) -> tuple:
    """p is one of the numbers that are drawn, so that "at least p" and "above p" differ."""
    x, residual, dy, _, seed = _step(3, 50, 0.5, 8)(generator)
    return x, residual, dy, float(uniform(philox(seed, torch.arange(150))[:, 0]).sort().values[60]), seed


# ---- results before their rounding ---------------------------------------------------------------------------------


def _exact_quantised(y: Tensor) -> tuple[Tensor, Tensor]:
    """Quotients and scales along the last dimension, in float64."""
    scale = y.abs().amax(dim=-1).clamp(min=1e-10) / _LARGEST
    return (y / scale[..., None]).clamp(-_LARGEST, _LARGEST), scale


def _exact_groups(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    y = reference.silu_and_mul(x.double())
    parts = [_exact_quantised(part) for part in y.split(group, dim=-1)]
    return torch.cat([q for q, _ in parts], dim=-1), torch.stack([scale for _, scale in parts], dim=-1)


# ---- results of known mistakes -------------------------------------------------------------------------------------


def _cut(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.double().chunk(2, dim=-1)


def _gated(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """function(gate) * factor, rounded."""

    def formula(x: Tensor, *rest) -> Tensor:
        gate, factor = _cut(x)
        return (function(gate) * factor).to(x.dtype)

    return formula


def _silu64(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def _overflowing_silu(x: Tensor) -> Tensor:
    e = torch.exp(x.float())
    return (x.float() * e / (1 + e)).to(x.dtype)


def _overflowing_gate(x: Tensor, *rest) -> Tensor:
    gate, factor = x.float().chunk(2, dim=-1)
    return (_overflowing_silu(gate) * factor).to(x.dtype)


def _swapped(x: Tensor) -> Tensor:
    gate, factor = _cut(x)
    return (_silu64(factor) * gate).to(x.dtype)


def _neighbours(x: Tensor) -> Tensor:
    return (_silu64(x.double()[..., 0::2]) * x.double()[..., 1::2]).to(x.dtype)


def _added(x: Tensor) -> Tensor:
    gate, factor = _cut(x)
    return (_silu64(gate) + factor).to(x.dtype)


_OVERFLOW = (
    "`exp` became infinite, and infinity divided by infinity is NaN. Which sign must the exponent have so that an "
    "overflow can only happen below the fraction?"
)
_EXP_SIGN = "This is x / (1 + exp(x)). Look at the sign in the exponent: what should a large positive x give?"

_SILU_SUSPECTS = (
    Suspect("exp-overflow", _OVERFLOW, _overflowing_silu),
    Suspect("exponent-sign", _EXP_SIGN, lambda x: (x.double() * torch.sigmoid(-x.double())).to(x.dtype)),
    Suspect(
        "sigmoid-only",
        "This is the sigmoid by itself, between 0 and 1. SiLU is x times that.",
        lambda x: torch.sigmoid(x.double()).to(x.dtype),
    ),
    *other_activations(lambda function: lambda x: function(x.double()).to(x.dtype)),
)

_GATED_SUSPECTS = (
    Suspect("swapped-halves", "The wrong half went through the activation: the gate comes first.", _swapped),
    Suspect(
        "neighbours-not-halves",
        "Neighbours were taken for gate and factor. The factor of element c lies d elements further on.",
        _neighbours,
    ),
    Suspect("halves-added", "The halves were added. The factor multiplies.", _added),
    Suspect("no-activation", "This is gate * factor: the activation is missing.", _gated(lambda gate: gate)),
    Suspect("sigmoid-only", "The gate went through a sigmoid. SiLU is x times that.", _gated(torch.sigmoid)),
    Suspect("exponent-sign", _EXP_SIGN, _gated(lambda gate: gate * torch.sigmoid(-gate))),
    Suspect("exp-overflow", _OVERFLOW, _overflowing_gate),
    Suspect(
        "silu-of-the-product",
        "SiLU was taken of the product. It belongs to the gate, before the multiplication.",
        lambda x, *rest: _silu64(torch.mul(*_cut(x))).to(x.dtype),
    ),
    *other_activations(_gated),
)


# ---- the exercises -------------------------------------------------------------------------------------------------

_SILU = Exercise(
    number="3.1",
    title="SiLU that cannot overflow",
    stars=1,
    minutes=8,
    entry="silu",
    reference=own.silu,
    exact=widened(own.silu),
    cases=(
        Case("whole blocks", _vector(512), **_ONCE, again=True),
        Case("a length that is no multiple of the block", _vector(1000), **_ONCE),
        Case("one element", _vector(1), **_ONCE),
        Case("values around 30", _vector(300, scale=30.0), **_ONCE),
        Case("far out on both sides", _values(-3e38, -1e4, -104.0, -89.0, 0.0, 89.0, 104.0, 1e4, 3e38), **_ONCE),
        Case("float16, values around 1000", _vector(300, dtype=torch.float16, scale=1000.0), **_ONCE),
        Case("bfloat16", _vector(777, dtype=torch.bfloat16), **_ONCE),
        Case("one more than a block", _vector(257, scale=5.0), **_ONCE),
        Case("values from -60 to -5, results nearly 0", lambda generator: (torch.linspace(-60, -5, 200),), **_SMALL),
    ),
    large=Case("over a million elements", _vector(2**20 + 77), **_ONCE),
    hints=(
        "Which lanes may load and store? And for which x does `exp` of your exponent leave the range of float32?",
        "Load with a mask, widen with `.to(tl.float32)`, compute `x / (1 + tl.exp(...))`. An infinite denominator is "
        "harmless: x / inf is 0.",
        "`x = tl.load(x_ptr + offs, mask=<...>, other=0.0).to(tl.float32)`, `y = x / (1.0 + tl.exp(<...>))`, "
        "`tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=<...>)`.",
    ),
    suspects=_SILU_SUSPECTS,
)

_SWIGLU = Exercise(
    number="3.2",
    title="SwiGLU, gate and factor in one kernel",
    stars=2,
    minutes=12,
    entry="silu_and_mul",
    reference=reference.silu_and_mul,
    exact=widened(reference.silu_and_mul),
    cases=(
        Case("power-of-two width", _halves(4, 256), **_ONCE, again=True),
        Case("SmolLM2's width, 1536", _halves(3, 1536), **_ONCE),
        Case("a width that is no multiple of the block", _halves(3, 601), **_ONCE),
        Case("one column", _halves(4, 1), **_ONCE),
        Case("one row", _halves(1, 100), **_ONCE),
        Case("rows further apart than their width", _halves(4, 100, strided=True), **_ONCE),
        Case("gates up to 1000", _large_gates(), **_ONCE),
        Case("float16", _halves(3, 300, dtype=torch.float16), **_ONCE),
        Case("bfloat16", _halves(3, 576, dtype=torch.bfloat16), **_ONCE),
        Case("one more than a power of two", _halves(2, 2049), **_ONCE),
        Case("one row of 9,000", _halves(1, 9000), **_ONCE),
        Case("gates from -60 to -5, results nearly 0", _negative_gates, **_SMALL),
        Case("rows 2^30 elements apart", _far(_halves(3, 20, dtype=torch.bfloat16)), **_ONCE),
    ),
    hints=(
        "Where does row r of x begin, and how many elements behind a gate does its factor lie? How many blocks are "
        "there in a row of y?",
        "Load twice, `d` elements apart, both with the mask `cols < d`. The grid has two dimensions: blocks of a row "
        "first, rows second.",
        "`gate = tl.load(x_ptr + row * <...> + cols, mask=<...>, other=0.0).to(tl.float32)`, `up` the same with "
        "`+ d`; `y = gate / (1.0 + tl.exp(-gate)) * <...>`; launched with `silu_and_mul_kernel[(triton.cdiv(<...>, "
        "512), M)](x, y, x.stride(0), y.stride(0), d, BLOCK=512)`.",
    ),
    suspects=_GATED_SUSPECTS,
)


def _naive_tanh(gate: Tensor) -> Tensor:
    """GELU's tanh form with tanh(u) = (exp(2 u) - 1) / (exp(2 u) + 1), in float32."""
    x = gate.float()
    e = torch.exp(2 * 0.7978845608028654 * (x + 0.044715 * x * x * x))
    return (0.5 * x * (1 + (e - 1) / (e + 1))).double()


def _kinds(**replaced: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """act_and_mul where some kinds compute something else."""

    def formula(x: Tensor, kind: str) -> Tensor:
        if kind not in replaced:
            return reference.act_and_mul(x, kind)
        gate, factor = _cut(x)
        return (replaced[kind](gate) * factor).to(x.dtype)

    return formula


def _gelu(approximate: str) -> Callable[[Tensor], Tensor]:
    return lambda gate: torch.nn.functional.gelu(gate, approximate=approximate)


def _uncubed(gate: Tensor) -> Tensor:
    return gate * torch.sigmoid(2 * 0.7978845608028654 * gate)


_FAMILY = Exercise(
    number="3.3",
    title="Four activations, one kernel",
    stars=2,
    minutes=15,
    entry="act_and_mul",
    reference=reference.act_and_mul,
    exact=widened(reference.act_and_mul),
    cases=(
        Case("silu", _halves(3, 200, "silu"), **_ONCE, again=True),
        Case("gelu, exact", _halves(3, 200, "gelu", scale=2.0), **_ONCE),
        Case("gelu, tanh form", _halves(3, 200, "gelu_tanh", scale=2.0), **_ONCE),
        Case("relu", _halves(3, 200, "relu"), **_ONCE),
        Case("silu, gates up to 1000", _large_gates("silu"), **_ONCE),
        Case("gelu, gates up to 1000", _large_gates("gelu"), **_ONCE),
        Case("relu, gates up to 1000", _large_gates("relu"), **_ONCE),
        Case("gelu, tanh form, gates up to 1000", _large_gates("gelu_tanh"), **_ONCE),
        Case("one column", _halves(5, 1, "gelu_tanh"), **_ONCE),
        Case("float16", _halves(2, 601, "gelu", dtype=torch.float16), **_ONCE),
        Case("float16, silu", _halves(2, 601, "silu", dtype=torch.float16), **_ONCE),
        Case("rows 2^30 elements apart", _far(_halves(3, 20, "relu", dtype=torch.float16)), **_ONCE),
    ),
    hints=(
        "Which of the four formulas contain an exponential, and for which x does it overflow? Can tanh be written "
        "with a function that cannot?",
        '`if KIND == "silu": return ...` and so on, one branch for each name. tanh(u) = 2 sigmoid(2 u) - 1, so '
        "(1 + tanh(u)) / 2 is a single sigmoid.",
        '`if KIND == "silu": return x * tl.sigmoid(x)`, `elif KIND == "gelu": return 0.5 * x * (1.0 + tl.erf(<...>))`, '
        '`elif KIND == "gelu_tanh": u = <...>; return x * tl.sigmoid(<...>)`, `else: return tl.maximum(x, <...>)`.',
    ),
    suspects=(
        Suspect(
            "exp-overflow",
            "NaN where the gate is large: tanh was written with exp(2 u), and infinity divided by infinity is NaN.",
            _kinds(gelu_tanh=_naive_tanh),
        ),
        Suspect("exp-overflow", _OVERFLOW, _kinds(silu=lambda gate: _overflowing_silu(gate.float()).double())),
        Suspect(
            "gelu-forms-mixed-up",
            'The exact form and the tanh form differ in the fourth digit: one of "gelu" and "gelu_tanh" computes the '
            "other.",
            _kinds(gelu=_gelu("tanh")),
        ),
        Suspect(
            "gelu-forms-mixed-up",
            'The exact form and the tanh form differ in the fourth digit: one of "gelu" and "gelu_tanh" computes the '
            "other.",
            _kinds(gelu_tanh=_gelu("none")),
        ),
        Suspect(
            "unknown-means-identity",
            'For "relu" the gate came back as it was. What does your last branch do?',
            _kinds(relu=lambda gate: gate),
        ),
        Suspect(
            "missing-cube",
            "The tanh form lacks its cubic term: the definition has `0.044715 * x**3`.",
            _kinds(gelu_tanh=_uncubed),
        ),
        Suspect(
            "missing-cube",
            "In the tanh form 0.044715 multiplies the third power of x. Here it multiplies x itself.",
            _kinds(gelu_tanh=lambda g: g * torch.sigmoid(2 * 0.7978845608028654 * 1.044715 * g)),
        ),
        Suspect(
            "other-activation",
            "The tanh form was replaced by x * sigmoid(1.702 x), which is another approximation.",
            _kinds(gelu_tanh=lambda g: g * torch.sigmoid(1.702 * g)),
        ),
        Suspect(
            "sigmoid-argument",
            "The tanh form takes the sigmoid of u. In the identity it is the sigmoid of 2 u.",
            _kinds(gelu_tanh=lambda g: g * torch.sigmoid(0.7978845608028654 * (g + 0.044715 * g**3))),
        ),
        Suspect(
            "erf-argument",
            "The exact form takes erf of x. In the definition x is divided by the root of 2 first.",
            _kinds(gelu=lambda g: 0.5 * g * (1 + torch.erf(g))),
        ),
    ),
)


def _quantised(y: Tensor, amax: Tensor, largest: float = _LARGEST) -> tuple[Tensor, Tensor]:
    """(q, scale) for the given maximum of each row, in float32 as in the kernel."""
    scale = (amax.float() / largest).float()
    q = (y.float() / scale[..., None]).clamp(-largest, largest)
    return q.to(torch.float8_e4m3fn), scale


def _padded_signed_maximum(x: Tensor) -> Tensor:
    """The largest element of each row; the idle lanes of the kernel hold 0."""
    largest = x.float().amax(dim=-1)
    return largest if x.shape[-1] & (x.shape[-1] - 1) == 0 else largest.clamp(min=0)


def _signed(x: Tensor) -> tuple[Tensor, Tensor]:
    return _quantised(x, _padded_signed_maximum(x))


def _clamped(y: Tensor, amax: Tensor) -> tuple[Tensor, Tensor]:
    """As `_quantised`, by a tl.clamp that may lose a NaN: it then gives the lower bound."""
    q, scale = _quantised(y, amax)
    return torch.where(q.float().isnan(), -_LARGEST, q.float()).to(torch.float8_e4m3fn), scale


_SIGNED = (
    "The scale fits the largest number of the row. A negative number may be larger in magnitude: which of them must "
    "still fit?"
)
_NO_FLOOR = "A row of zeros has amax 0, so its scale is 0, and 0 / 0 is no number. What is the smallest amax allowed?"
_INVERTED = "The scale is upside down: `q * scale` must give x back, so the scale is amax over the largest fp8 number."
_WRONG_MAXIMUM = "The scale fits numbers up to 240, the largest of the other flavour. For e4m3fn it is 448."
_UNSCALED = "x was converted without being divided by its scale."


def _inverted(x: Tensor) -> tuple[Tensor, Tensor]:
    q, scale = own.quant_fp8(x)
    return q, 1 / scale


_OTHER_FLOOR = (
    "Ordinary rows are right. In rows of zeros, or nearly, the scale is another: `amax` is the larger one of two "
    "numbers, neither their sum nor a choice for exact zeros alone, and it is bounded before it is divided."
)


_QUANT = Exercise(
    number="3.4",
    title="Repair a quantiser",
    stars=2,
    minutes=12,
    entry="quant_fp8",
    reference=own.quant_fp8,
    exact=lambda x: _exact_quantised(x.double()),
    kind="repair",
    cases=(
        Case("the test it passes: width 1024, torch.rand", _positive(2, 1024), **_SCALED),
        Case("positive and negative numbers", _matrix(4, 256, scale=100.0), **_SCALED, again=True),
        Case("width 359", _matrix(3, 359, scale=100.0), **_SCALED),
        Case("negative numbers only", _negative(3, 128), **_SCALED),
        Case("a row of zeros between others", _with_zero_row(3, 100), **_SCALED),
        Case("zeros only", _matrix(2, 64, scale=0.0), **_SCALED),
        Case("one outlier", _with_outlier, **_SCALED),
        Case("one column", _matrix(3, 1, scale=100.0), **_SCALED),
        Case("bfloat16", _matrix(3, 600, dtype=torch.bfloat16, scale=100.0), **_SCALED),
        Case("bfloat16, zeros only", _matrix(2, 33, dtype=torch.bfloat16, scale=0.0), **_SCALED),
        Case("magnitudes around 1e-10", _near_the_floor, **_SCALED),
        Case("the largest magnitude is negative, by a hundredth", _largest_is_negative, **_SCALED),
        Case("one more than a power of two", _matrix(2, 1025, scale=0.03), **_SCALED),
        Case("70 rows", _matrix(70, 3, scale=10.0), **_SCALED),
        Case("40,000 columns", _matrix(1, 40_000, scale=0.03), **_SCALED),
        Case("rows 2^30 elements apart", _far(_matrix(3, 40, dtype=torch.bfloat16)), **_SCALED),
    ),
    hints=(
        "Which number of the row must still fit into 448? And what is the scale of a row that holds nothing but zeros?",
        "`tl.abs` gives magnitudes, `tl.maximum(a, b)` the larger of two numbers. Both belong to the line of `amax`.",
        "`amax = tl.maximum(tl.max(<magnitudes of x>, axis=0), <smallest amax allowed>)`.",
    ),
    suspects=(
        Suspect("signed-maximum", _SIGNED, _signed),
        Suspect("signed-maximum", _SIGNED, lambda x: _quantised(x, x.float().amax(dim=-1).clamp(min=1e-10))),
        Suspect("zero-scale", _NO_FLOOR, lambda x: _quantised(x, x.float().abs().amax(dim=-1))),
        Suspect("scale-inverted", _INVERTED, _inverted),
        *(
            Suspect("other-floor", _OTHER_FLOOR, lambda x, floor=floor: _quantised(x, floor(x.float().abs().amax(-1))))
            for floor in (
                lambda amax: amax + 1e-10,
                lambda amax: amax.clamp(min=448e-10),
                lambda amax: torch.where(amax == 0.0, 448.0, amax),
                lambda amax: torch.where(amax == 0.0, 1.0, amax),
                lambda amax: torch.where(amax == 0.0, 1e-10, amax),
            )
        ),
        Suspect(
            "wrong-fp8-maximum",
            _WRONG_MAXIMUM,
            lambda x: _quantised(x, x.float().abs().amax(dim=-1).clamp(min=1e-10), 240.0),
        ),
        Suspect(
            "not-scaled",
            _UNSCALED,
            lambda x: (x.float().clamp(-448, 448).to(torch.float8_e4m3fn), own.quant_fp8(x)[1]),
        ),
    ),
)


def _step_with(
    x: Tensor,
    residual: Tensor,
    dy: Tensor,
    keeps: tuple[Tensor, Tensor],
    scale: float,
    dropped: Callable[[Tensor, Tensor], Tensor] = lambda values, keep: torch.where(keep, values, 0.0),
) -> tuple[Tensor, Tensor]:
    forward, backward = (dropped(v.float() * scale, k) for v, k in zip((x, dy), keeps, strict=True))
    return (residual.float() + forward).to(x.dtype), backward.to(x.dtype)


def _keeps(x: Tensor, p: float, seed: int) -> Tensor:
    """Where `own.dropout_step` keeps an element."""
    ones = torch.ones(x.shape)
    return own.dropout_step(ones, 0 * ones, ones, p, seed)[1] > 0


def _keeps_by_block(x: Tensor, p: float, seed: int, block: int) -> Tensor:
    """The pattern of the first block again and again."""
    index = torch.arange(x.numel()) % block
    return _keeps(torch.empty(block), p, seed)[index].view(x.shape)


def _with_keeps(keeps: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple[Tensor, Tensor]]:
    """A step with other masks."""
    return lambda x, residual, dy, p, seed: _step_with(x, residual, dy, keeps(x, p, seed), 1 / (1 - p))


def _both(keep: Tensor) -> tuple[Tensor, Tensor]:
    return keep, keep


_SAME_PATTERN = (
    "Every block drops the same places. What must be different in each block, and the same in both kernels, for "
    "`tl.rand` to tell elements apart?"
)

_DROPOUT = Exercise(
    number="3.5",
    title="Dropout, forwards and backwards",
    stars=3,
    minutes=20,
    entry="dropout_step",
    reference=own.dropout_step,
    exact=widened(own.dropout_step),
    max_launches=2,
    no_idle=True,
    cases=(
        Case("one block, p = 0.5", _step(4, 64, 0.5, 1), **_ONCE, again=True),
        Case("many blocks of both kernels", _step(5, 576, 0.5, 2), **_ONCE),
        Case("a length that is no multiple of a block", _step(7, 301, 0.1, 3), **_ONCE),
        Case("p = 0 drops nothing", _step(3, 100, 0.0, 4), **_ONCE),
        Case("p = 0.9", _step(3, 500, 0.9, 5), **_ONCE),
        Case("another seed, above 32 bits", _step(3, 200, 0.5, 2**40 + 17), **_ONCE),
        Case("what is dropped was infinite", _infinite_step, **_ONCE),
        Case("one element", _step(1, 1, 0.3, 6), **_ONCE),
        Case("float16", _step(3, 400, 0.25, 7, dtype=torch.float16), **_ONCE),
        Case("p is one of the numbers that are drawn", _drawn_exactly, **_ONCE),
        Case("one more than the blocks of both kernels", _step(5, 205, 0.5, 9), **_ONCE),
        Case("zeros, and numbers too small to change the sum", _unseen_step, **_ONCE),
    ),
    hints=(
        "What must be the same in both kernels so that they drop the same elements? Does the length of a block matter?",
        "`tl.rand(seed, offs)` gives one number between 0 and 1 for each offset, always the same ones. Compare with p, "
        "and choose with `tl.where`.",
        "`keep = tl.rand(seed, <...>) >= p`, `y = residual + tl.where(keep, <x, scaled up>, 0.0)`; backwards "
        "`dx = tl.where(<the same>, <dy, scaled up>, 0.0)`. Offsets, mask, load and store as in lesson 01.",
    ),
    suspects=(
        Suspect(
            "same-pattern-in-every-block",
            _SAME_PATTERN,
            _with_keeps(lambda x, p, s: (_keeps_by_block(x, p, s, 512), _keeps_by_block(x, p, s, 1024))),
        ),
        Suspect(
            "same-pattern-in-every-block",
            _SAME_PATTERN,
            _with_keeps(lambda x, p, s: (_keeps_by_block(x, p, s, 512), _keeps(x, p, s))),
        ),
        Suspect(
            "same-pattern-in-every-block",
            _SAME_PATTERN,
            _with_keeps(lambda x, p, s: (_keeps(x, p, s), _keeps_by_block(x, p, s, 1024))),
        ),
        Suspect(
            "mask-inverted",
            "What should be kept is dropped, and the other way round. Kept is where the number is at least p.",
            _with_keeps(lambda x, p, s: _both(~_keeps(x, p, s))),
        ),
        Suspect(
            "another-mask-backwards",
            "Forwards is right. Backwards other elements are dropped: which two numbers decide what `tl.rand` gives?",
            _with_keeps(lambda x, p, s: (_keeps(x, p, s), _keeps(x, p, s + 1))),
        ),
        Suspect(
            "nothing-dropped-backwards",
            "Forwards is right. Backwards nothing is dropped, but an element with no part in y has the gradient 0.",
            _with_keeps(lambda x, p, s: (_keeps(x, p, s), torch.ones(x.shape, dtype=torch.bool))),
        ),
        Suspect(
            "boundary-dropped",
            "An element whose number is just p was dropped. Kept is where the number is at least p.",
            _with_keeps(lambda x, p, s: _both(_keeps(x, p * (1 + 1e-7) + 1e-9, s))),
        ),
        Suspect(
            "not-scaled-up",
            "The right elements are dropped, but those that remain are not divided by 1 - p.",
            lambda x, residual, dy, p, s: _step_with(x, residual, dy, _both(_keeps(x, p, s)), 1.0),
        ),
        Suspect(
            "product-with-the-mask",
            "A dropped infinity left a NaN behind: infinity times 0 is NaN. Choose instead of multiplying.",
            lambda x, residual, dy, p, s: _step_with(
                x, residual, dy, _both(_keeps(x, p, s)), 1 / (1 - p), lambda values, keep: values * keep
            ),
        ),
        Suspect(
            "residual-dropped",
            "The residual was dropped together with x. It is added afterwards, everywhere.",
            lambda x, residual, dy, p, s: _step_with(
                x + residual * (1 - p), 0 * residual, dy, _both(_keeps(x, p, s)), 1 / (1 - p)
            ),
        ),
        Suspect(
            "residual-dropped",
            "The residual was dropped together with x. It is added afterwards, everywhere.",
            lambda x, residual, dy, p, s: _step_with(
                x + residual, 0 * residual, dy, _both(_keeps(x, p, s)), 1 / (1 - p)
            ),
        ),
    ),
)


def _quantised_groups(y: Tensor, group: int, *, signed=False, floor=True, quantise=_quantised) -> tuple[Tensor, Tensor]:
    """Groups of y with a maximum that may be of signed numbers, or without its floor."""
    m, d = y.shape
    groups = -(-d // group)
    padded = torch.nn.functional.pad(y.float(), (0, groups * group - d)).view(m, groups, group)
    amax = (padded if signed else padded.abs()).amax(dim=-1)
    q, scale = quantise(padded, amax.clamp(min=1e-10) if floor else amax)
    return q.float().view(m, -1)[:, :d].to(torch.float8_e4m3fn), scale


def _of_product(product: Callable[[Tensor], Tensor], **how) -> Callable[..., tuple[Tensor, Tensor]]:
    return lambda x, group: _quantised_groups(product(x.double()), group, **how)


_ACT_QUANT = Exercise(
    number="3.6",
    title="SwiGLU and 8-bit groups in one launch",
    stars=3,
    minutes=20,
    entry="silu_mul_quant",
    reference=own.silu_mul_quant,
    exact=_exact_groups,
    max_launches=1,
    no_idle=True,
    cases=(
        Case("two whole groups", _halves(3, 256, 128, scale=10.0), **_SCALED, again=True),
        Case("SmolLM2's width, twelve groups", _halves(2, 1536, 128, scale=10.0), **_SCALED),
        Case("a last group that is cut short", _halves(3, 300, 128, scale=10.0), **_SCALED),
        Case("narrower than a group", _halves(3, 50, 64, scale=10.0), **_SCALED),
        Case("one column", _halves(3, 1, 32, scale=10.0), **_SCALED),
        Case("groups of 32", _halves(2, 200, 32, scale=10.0), **_SCALED),
        Case("rows further apart than their width", _halves(3, 130, 64, scale=10.0, strided=True), **_SCALED),
        Case("zeros only", _halves(2, 100, 64, scale=0.0), **_SCALED),
        Case("gates up to 1000", _large_gates(64), **_SCALED),
        Case("bfloat16", _halves(2, 384, 128, dtype=torch.bfloat16, scale=10.0), **_SCALED),
        Case("one more than two groups", _halves(3, 129, 64, scale=10.0), **_SCALED),
        Case("products around 1e-10", _halves(2, 96, 32, scale=1e-5), **_SCALED),
        Case("rows 2^30 elements apart", _far(_halves(3, 40, 32, dtype=torch.bfloat16)), **_SCALED),
    ),
    hints=(
        "Which columns does group g own? Of those, which lanes take part in the maximum, and with which value if they "
        "are idle? Where does the scale of group g of row r lie?",
        "Load gate and factor as in 3.2 with columns `group * GROUP + tl.arange(0, GROUP)`. Then the amax of 3.4 over "
        "the product. A row has `tl.num_programs(0)` scales.",
        "`y = gate * tl.sigmoid(gate) * up`, `scale = tl.maximum(tl.max(<...>, axis=0), 1e-10) / FP8_MAX`, "
        "`tl.store(scale_ptr + row * <scales of a row> + group, scale)`; launched with "
        "`silu_mul_quant_kernel[(groups, M)](x, q, scale, x.stride(0), d, FP8_MAX=448.0, GROUP=group)`.",
    ),
    suspects=(
        Suspect("signed-maximum", _SIGNED, _of_product(reference.silu_and_mul, signed=True)),
        Suspect("zero-scale", _NO_FLOOR, _of_product(reference.silu_and_mul, floor=False)),
        Suspect("zero-scale", _NO_FLOOR, _of_product(reference.silu_and_mul, floor=False, quantise=_clamped)),
        *(Suspect(s.code, s.sentence, _of_product(s.formula)) for s in _GATED_SUSPECTS),
        Suspect("scale-inverted", _INVERTED, lambda x, g: (own.silu_mul_quant(x, g)[0], 1 / _scales(x, g))),
        Suspect(
            "not-scaled",
            "The product was converted without being divided by its scale.",
            lambda x, g: (
                reference.silu_and_mul(x.float()).clamp(-448, 448).to(torch.float8_e4m3fn),
                _scales(x, g),
            ),
        ),
    ),
)


def _scales(x: Tensor, group: int) -> Tensor:
    return own.silu_mul_quant(x, group)[1]


EXERCISES = (_SILU, _SWIGLU, _FAMILY, _QUANT, _DROPOUT, _ACT_QUANT)
