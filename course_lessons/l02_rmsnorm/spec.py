"""The exercises of lesson 02: what is asked, how it is checked, what the hints say."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from course_kernels import reference
from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.authoring.far_rows import spread
from course_lab.authoring.tolerance import UNIT, each, in_float32
from course_lessons.l02_rmsnorm import reference as own
from course_lessons.makers import FAR, widened, with_gaps

# Everything is computed in float32 and rounded once; the longest of the ordinary rows has 1245 elements.
_ONCE = in_float32(1245, size=1.0)
# A mean of 5 is subtracted from every element: its error counts in full.
_CENTRED = in_float32(600, size=20.0)
_LONGEST = 199 * 1024 + 1  # a million, which the statement allows, takes the interpreter two seconds

Make = Callable[[Generator], tuple]


# ---- inputs --------------------------------------------------------------------------------------------------------


def _rows(m: int, n: int, generator: Generator, *, dtype=torch.float32, scale=1.0, mean=0.0, strided=False) -> Tensor:
    """(m, n) of normally distributed values; strided: a slice of a wider matrix, so that rows lie n + 13 apart."""
    x = (mean + scale * torch.randn(m, n + 13 * strided, generator=generator)).to(dtype)
    return x[:, :n]


def _row(n: int, generator: Generator, dtype=torch.float32) -> Tensor:
    return (1 + 0.2 * torch.randn(n, generator=generator)).to(dtype)


def _alone(m: int, n: int, **kind) -> Make:
    return lambda generator: (_rows(m, n, generator, **kind),)


def _norm(m: int, n: int, *, eps: float = 1e-5, weight=torch.float32, **kind) -> Make:
    return lambda generator: (_rows(m, n, generator, **kind), _row(n, generator, weight), eps)


def _add_norm(m: int, n: int, *, eps: float = 1e-5, weight=torch.float32, **kind) -> Make:
    def make(generator: Generator) -> tuple:
        x, residual = _rows(m, n, generator, **kind), _rows(m, n, generator, **kind)
        return x, residual, _row(n, generator, weight), eps

    return make


def _add_norm_slice(m: int, n: int) -> Make:
    """Only x is a slice, so that x and residual have different strides."""

    def make(generator: Generator) -> tuple:
        x, residual = _rows(m, n, generator, strided=True), _rows(m, n, generator)
        return x, residual, _row(n, generator), 1e-5

    return make


def _add_norm_gaps(m: int, n: int) -> Make:
    """Both are slices, of matrices that are not equally wide."""

    def make(generator: Generator) -> tuple:
        x, residual, *rest = _add_norm(m, n, strided=True)(generator)
        return x, with_gaps(residual, 5), *rest

    return make


def _layer_norm(m: int, n: int, *, eps: float = 1e-5, **kind) -> Make:
    def make(generator: Generator) -> tuple:
        return _rows(m, n, generator, **kind), _row(n, generator), 0.1 * torch.randn(n, generator=generator), eps

    return make


def _constant_row(generator: Generator) -> tuple:
    return torch.full((2, 300), 7.5), _row(300, generator), 0.1 * torch.randn(300, generator=generator), 1e-5


def _far(make: Make, *positions: int) -> Make:
    """The same inputs, the matrices at these positions with rows 2^30 elements and more apart."""

    def far(generator: Generator) -> tuple:
        args = list(make(generator))
        for i, position in enumerate(positions):
            args[position] = spread(args[position], (FAR + 8 * i, 1))
        return tuple(args)

    return far


def _half_zeros(generator: Generator) -> tuple:
    """Rows with a mean far from zero in which every other element is 0, as behind a ReLU."""
    x, *rest = _layer_norm(3, 359, mean=4.0)(generator)
    x[:, ::2] = 0.0
    return x, *rest


# ---- results of known mistakes -------------------------------------------------------------------------------------


def _block(x: Tensor) -> int:
    return 1 << (x.shape[-1] - 1).bit_length()


def _mean_square(x: Tensor) -> Tensor:
    return x.float().square().mean(-1, keepdim=True)


def _mean_square_over_block(x: Tensor) -> Tensor:
    return x.float().square().sum(-1, keepdim=True) / _block(x)


def _mean_square_in_own_dtype(x: Tensor) -> Tensor:
    """As in a kernel that forgets .to(tl.float32): Triton adds in the dtype of x."""
    return (x * x).sum(-1, keepdim=True, dtype=x.dtype).float() / x.shape[-1]


def _scaled(x: Tensor, factor: Tensor, weight: Tensor | float) -> Tensor:
    return (x.float() * factor * (weight.float() if isinstance(weight, Tensor) else weight)).to(x.dtype)


def _layer_norm_with(x, weight, bias, eps, *, padded: bool, eps_inside: bool) -> Tensor:
    x32, (n, block) = x.float(), (x.shape[-1], _block(x))
    mean = x32.mean(-1, keepdim=True)
    variance = (x32 - mean).square().mean(-1, keepdim=True) + padded * (block - n) * mean.square() / n
    rstd = torch.rsqrt(variance + eps) if eps_inside else 1 / (variance.sqrt() + eps)
    return ((x32 - mean) * rstd * weight.float() + bias.float()).to(x.dtype)


def _unbiased_layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    centred = x.float() - x.float().mean(-1, keepdim=True)
    variance = centred.square().sum(-1, keepdim=True) / max(x.shape[-1] - 1, 0)
    return (centred * torch.rsqrt(variance + eps) * weight.float() + bias.float()).to(x.dtype)


def _cut_off(x: Tensor, weight: Tensor, eps: float, block: int = 1024) -> Tensor:
    """Only the first `block` columns are read and written; fresh memory holds NaN."""
    mean_square = x[:, :block].float().square().sum(-1, keepdim=True) / x.shape[1]
    y = _scaled(x, torch.rsqrt(mean_square + eps), weight)
    y[:, block:] = float("nan")
    return y


_OVER_BLOCK = (
    "The sum was divided by `BLOCK`. Idle lanes are not elements of the row: how many elements does a row have?"
)
_OUTSIDE = "`eps` stands outside the root. In the definition it is added to the mean square, before the root is taken."
_NO_EPS = "This is the result without `eps`. Rows of tiny values show the difference."

_RMS_SUSPECTS = (
    Suspect(
        "divides-by-block",
        _OVER_BLOCK,
        lambda x, w, eps: _scaled(x, torch.rsqrt(_mean_square_over_block(x) + eps), w),
    ),
    Suspect("eps-outside-root", _OUTSIDE, lambda x, w, eps: _scaled(x, 1 / (_mean_square(x).sqrt() + eps), w)),
    Suspect(
        "multiplied-by-the-root",
        "The rows were multiplied by the root. By what does the definition divide?",
        lambda x, w, eps: _scaled(x, (_mean_square(x) + eps).sqrt(), w),
    ),
    Suspect(
        "sum-not-mean",
        "The rows were divided by the root of the sum of their squares. Its mean is asked for.",
        lambda x, w, eps: _scaled(x, torch.rsqrt(x.float().square().sum(-1, keepdim=True) + eps), w),
    ),
    Suspect(
        "eps-as-bound",
        "`eps` was taken for the least mean square allowed. In the definition it is added.",
        lambda x, w, eps: _scaled(x, torch.rsqrt(_mean_square(x).clamp(min=eps)), w),
    ),
    Suspect("missing-eps", _NO_EPS, lambda x, w, eps: _scaled(x, torch.rsqrt(_mean_square(x)), w)),
    Suspect(
        "missing-weight",
        "This is the result without the weight.",
        lambda x, w, eps: _scaled(x, torch.rsqrt(_mean_square(x) + eps), 1.0),
    ),
    Suspect(
        "missing-root",
        "The rows were divided by the mean square itself. Its root is missing.",
        lambda x, w, eps: _scaled(x, 1 / (_mean_square(x) + eps), w),
    ),
    Suspect(
        "half-accumulation",
        "The squares were added up in the dtype of `x`. Widen to float32 straight after the load.",
        lambda x, w, eps: _scaled(x, torch.rsqrt(_mean_square_in_own_dtype(x) + eps), w),
    ),
)


# ---- the exercises -------------------------------------------------------------------------------------------------

_MEAN_SQUARE = Exercise(
    number="2.1",
    title="The mean square of a row",
    stars=1,
    minutes=8,
    entry="row_mean_square",
    reference=own.row_mean_square,
    cases=(
        Case("power-of-two width", _alone(4, 64), **_ONCE, again=True),
        Case("SmolLM2's width, 576", _alone(5, 576), **_ONCE),
        Case("one column", _alone(3, 1), **_ONCE),
        Case("wider than 1024", _alone(2, 1245), **_ONCE),
        Case("70 rows", _alone(70, 3), **_ONCE),
        Case("40,000 columns", _alone(1, 40_000), **in_float32(40_000)),
        Case("rows further apart than their width", _alone(4, 100, strided=True), **_ONCE),
        Case(
            "float16, values around 300",
            _alone(3, 100, dtype=torch.float16, scale=300.0),
            **_ONCE | {"why": "the result is float32; 300 squared is above float16's maximum of 65504"},
        ),
        Case("one more than a power of two", _alone(2, 513, scale=0.01), **_ONCE),
        Case("rows 2^30 elements apart", _far(_alone(3, 40, dtype=torch.float16), 0), **_ONCE),
    ),
    hints=(
        "What must the lanes beyond column `N` hold so that the sum does not notice them? And by what do you divide?",
        "Load with `mask=cols < N` and the `other=` that a sum ignores, widen with `.to(tl.float32)`, then "
        "`tl.sum(<squares>, axis=0)`.",
        "`x = tl.load(x_ptr + row * stride_xm + cols, mask=<...>, other=<...>).to(tl.float32)`, then "
        "`tl.store(out_ptr + row, <sum of x * x> / <elements of a row>)`.",
    ),
    suspects=(
        Suspect("divides-by-block", _OVER_BLOCK, lambda x: _mean_square_over_block(x).squeeze(-1)),
        Suspect(
            "sum-not-mean", "This is the sum of the squares, not their mean.", lambda x: x.float().square().sum(-1)
        ),
        Suspect("mean-not-squared", "This is the mean of the row, not of its squares.", lambda x: x.float().mean(-1)),
        Suspect(
            "magnitudes-not-squared",
            "This is the mean of the magnitudes, not of the squares.",
            lambda x: x.float().abs().mean(-1),
        ),
        Suspect(
            "square-of-mean",
            "This is the square of the mean. Square first, then take the mean.",
            lambda x: x.float().mean(-1).square(),
        ),
        Suspect(
            "root-too-many",
            "The root was taken. Here only the mean square is asked for.",
            lambda x: _mean_square(x).sqrt().squeeze(-1),
        ),
        Suspect(
            "half-accumulation",
            "The squares were computed in float16 and overflowed. Widen to float32 straight after the load.",
            lambda x: _mean_square_in_own_dtype(x).squeeze(-1),
        ),
    ),
)

_RMS_NORM = Exercise(
    number="2.2",
    title="RMSNorm",
    stars=2,
    minutes=15,
    entry="rms_norm",
    reference=reference.rms_norm,
    exact=widened(reference.rms_norm),
    no_idle=True,
    cases=(
        Case("power-of-two width", _norm(4, 256), **_ONCE, again=True),
        Case("SmolLM2's width, 576", _norm(5, 576), **_ONCE),
        Case("one column", _norm(3, 1), **_ONCE),
        Case("wider than 1024", _norm(2, 1245), **_ONCE),
        Case("tiny values, where eps matters", _norm(3, 576, scale=1e-3), **_ONCE),
        Case("a row of zeros", _norm(2, 100, scale=0.0), **_ONCE),
        Case("another eps", _norm(3, 100, eps=0.5), **_ONCE),
        Case("rows further apart than their width", _norm(4, 100, strided=True), **_ONCE),
        Case("float16, values around 300", _norm(3, 576, dtype=torch.float16, scale=300.0), **_ONCE),
        Case("bfloat16 with float32 weights", _norm(3, 576, dtype=torch.bfloat16), **_ONCE),
        Case("float32 with bfloat16 weights", _norm(2, 100, weight=torch.bfloat16), **_ONCE),
        Case("float16 with float32 weights, tiny values", _norm(3, 300, dtype=torch.float16, scale=2e-3), **_ONCE),
        Case("mean far from zero", _norm(3, 200, mean=5.0), **_ONCE),
        Case("one more than a power of two, eps 1e-3", _norm(3, 1025, eps=1e-3, scale=0.03), **_ONCE),
        Case("small values, eps 1e-12", _norm(3, 200, eps=1e-12, scale=1e-4), **_ONCE),
        Case("70 rows", _norm(70, 3), **_ONCE),
        Case("wider than 4096", _norm(1, 5000), **in_float32(5000)),
        Case("40,000 columns", _norm(1, 40_000), **in_float32(40_000)),
        Case("rows 2^30 elements apart", _far(_norm(3, 40, dtype=torch.bfloat16), 0), **_ONCE),
    ),
    hints=(
        "You have written the mean square in 2.1. What comes after it, and which lanes may be stored?",
        "Load the row and the weight with the same mask, both widened to float32. `tl.rsqrt(a)` is 1 / root of a. "
        "The grid has one program for each row, and `BLOCK` is the next power of two of `N`.",
        "`mean_square = tl.sum(x * x, axis=0) / N`, `y = x * tl.rsqrt(<mean square, eps>) * w`, `tl.store(y_ptr + "
        "<row offset> + cols, y.to(y_ptr.dtype.element_ty), mask=<...>)`; launched with `rms_norm_kernel[(M,)](x, "
        "weight, y, x.stride(0), y.stride(0), N, eps, BLOCK=<...>)`.",
    ),
    suspects=(
        *_RMS_SUSPECTS,
        Suspect(
            "block-too-short",
            "Columns from 1024 on were neither read nor written: the block is shorter than the row. What must "
            "`BLOCK` be computed from?",
            _cut_off,
        ),
    ),
)


def _unrounded(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total = x.float() + residual.float()
    return reference.rms_norm(total, weight, eps).to(x.dtype), x + residual


def _rounded_sum_normalised(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Both results before their last rounding: the sum itself is rounded before it is normalised."""
    total = x.double() + residual.double()
    return reference.rms_norm(total.to(x.dtype).double(), weight.double(), eps), total


def _both(norm: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """The mistake `norm` made on the sum."""
    return lambda x, residual, weight, eps: (norm(x + residual, weight, eps), x + residual)


# One addition, rounded once, is off by half a unit in the last place.
_SUM = {"atol": 0.0, "rtol": 1.001 * UNIT}
_TWO = each(_ONCE, _SUM)
_ADD_RMS_NORM = Exercise(
    number="2.3",
    title="Add and normalise in one launch",
    stars=2,
    minutes=15,
    entry="add_rms_norm",
    reference=reference.add_rms_norm,
    exact=_rounded_sum_normalised,
    max_launches=1,
    cases=(
        Case("power-of-two width", _add_norm(4, 256), **_TWO, again=True),
        Case("SmolLM2's width, 576", _add_norm(5, 576), **_TWO),
        Case("one column", _add_norm(3, 1), **_TWO),
        Case("x and residual with different strides", _add_norm_slice(4, 100), **_TWO),
        Case("both with gaps between their rows, not the same", _add_norm_gaps(4, 72), **_TWO),
        Case("tiny values, where eps matters", _add_norm(3, 300, scale=1e-3), **_TWO),
        Case(
            "bfloat16, normalises the rounded sum",
            _add_norm(4, 576, dtype=torch.bfloat16, weight=torch.bfloat16),
            **_TWO | {"why": "the rounded sum is exact in both, so y differs by its own rounding alone"},
        ),
        Case("float16, values around 300", _add_norm(3, 576, dtype=torch.float16, scale=300.0), **_TWO),
        Case("float16 with float32 weights", _add_norm(2, 100, dtype=torch.float16), **_TWO),
        Case("one more than a power of two, eps 1e-3", _add_norm(3, 1025, eps=1e-3, scale=0.03), **_TWO),
        Case("70 rows", _add_norm(70, 3), **_TWO),
        Case("small values, eps 1e-12", _add_norm(3, 200, eps=1e-12, scale=1e-4), **_TWO),
        Case("40,000 columns", _add_norm(1, 40_000), **each(in_float32(40_000), _SUM)),
        Case("rows 2^30 elements apart", _far(_add_norm(3, 40, dtype=torch.bfloat16), 0), **_TWO),
    ),
    hints=(
        "In which order: load, add, round, store, normalise? Which value does the next layer read, the rounded or "
        "the unrounded sum?",
        "`a.to(new_residual_ptr.dtype.element_ty)` rounds the sum. Store that. Then `.to(tl.float32)` it again, and "
        "go on as in 2.2.",
        "`new_residual = (x + residual).to(<dtype of the output>)`, `tl.store(new_residual_ptr + ..., new_residual, "
        "mask=mask)`, `total = new_residual.to(tl.float32)`, then RMSNorm of `total`.",
    ),
    suspects=(
        Suspect(
            "normalises-unrounded-sum",
            "`new_residual` is right, but `y` belongs to the sum before it was rounded. Normalise what the next "
            "layer will read.",
            _unrounded,
        ),
        Suspect(
            "residual-not-added",
            "`x` alone was normalised. The residual has to be added first.",
            lambda x, residual, w, eps: (reference.rms_norm(x, w, eps), x + residual),
        ),
        Suspect(
            "statistic-of-one-input",
            "The sum is divided by the root mean square of `x`. It is that of the sum that is asked for.",
            lambda x, residual, w, eps: (_scaled(x + residual, torch.rsqrt(_mean_square(x) + eps), w), x + residual),
        ),
        Suspect(
            "statistic-of-one-input",
            "The sum is divided by the root mean square of the residual. It is that of the sum that is asked for.",
            lambda x, residual, w, eps: (
                _scaled(x + residual, torch.rsqrt(_mean_square(residual) + eps), w),
                x + residual,
            ),
        ),
        Suspect(
            "returns-x",
            "The second result is `x`. The new residual is the sum.",
            lambda x, residual, w, eps: (reference.rms_norm(x + residual, w, eps), x),
        ),
        Suspect(
            "returns-old-residual",
            "The second result is the old residual. The new one is the sum.",
            lambda x, residual, w, eps: (reference.rms_norm(x + residual, w, eps), residual),
        ),
        Suspect(
            "returns-normalised-residual",
            "Both results are the normalised row. The second one is the sum, before the norm.",
            lambda x, residual, w, eps: (reference.rms_norm(x + residual, w, eps),) * 2,
        ),
        Suspect(
            "swapped-results",
            "The two results are swapped: `y` first, then `new_residual`.",
            lambda x, residual, w, eps: reference.add_rms_norm(x, residual, w, eps)[::-1],
        ),
        *(Suspect(s.code, s.sentence, _both(s.formula)) for s in _RMS_SUSPECTS),
    ),
)

_LAYER_NORM = Exercise(
    number="2.4",
    title="Repair a LayerNorm",
    stars=2,
    minutes=12,
    entry="layer_norm",
    reference=reference.layer_norm,
    exact=widened(reference.layer_norm),
    kind="repair",
    cases=(
        Case(
            "the test it passes: width 1024, mean 0",
            _layer_norm(2, 1024),
            **_CENTRED,
            again=True,
        ),
        Case("mean far from zero, width 576", _layer_norm(4, 576, mean=5.0), **_CENTRED),
        Case("mean far from zero, power-of-two width", _layer_norm(4, 512, mean=5.0), **_CENTRED),
        Case("width 359", _layer_norm(3, 359), **_CENTRED),
        Case("one column", _layer_norm(3, 1), **_CENTRED),
        Case("70 rows", _layer_norm(70, 3), **_CENTRED),
        Case("small values, eps 1e-12", _layer_norm(3, 200, eps=1e-12, scale=1e-4), **_CENTRED),
        Case("tiny values, where eps matters", _layer_norm(3, 600, scale=1e-3), **_CENTRED),
        Case("a constant row", _constant_row, **in_float32(300, size=7.5 * 316)),
        Case(
            "bfloat16, mean 5",
            _layer_norm(3, 1000, mean=5.0, dtype=torch.bfloat16),
            **in_float32(1000, size=20.0),
        ),
        Case("a mean of 1000", _layer_norm(3, 300, mean=1000.0), **in_float32(300, size=2000.0)),
        Case("wider than 1024", _layer_norm(2, 1025), **in_float32(1025, size=20.0)),
        Case("mean far from zero, every other element 0", _half_zeros, **_CENTRED),
        Case("one more than a power of two, eps 1e-2", _layer_norm(3, 513, eps=1e-2, scale=0.1), **_CENTRED),
        Case("rows 2^30 elements apart", _far(_layer_norm(3, 40), 0), **_CENTRED),
        Case("1100 columns", _layer_norm(2, 1100), **_CENTRED),
        Case("40,000 columns", _layer_norm(1, 40_000), **in_float32(40_000, size=20.0)),
    ),
    hints=(
        "After `x - mean`, what does an idle lane hold? What does it add to the variance?",
        "`tl.where(mask, <value for real elements>, <value for idle lanes>)` puts the idle lanes back. For the "
        "second bug, compare the line that uses `eps` with the definition.",
        "`centred = tl.where(mask, x - mean, <identity of the sum>)`, and `y = centred * tl.rsqrt(<variance, eps>) * "
        "w + b`.",
    ),
    suspects=(
        Suspect(
            "weight-and-bias-swapped",
            "Weight and bias have changed places: the weight multiplies, the bias is added.",
            lambda x, w, b, eps: reference.layer_norm(x, b, w, eps),
        ),
        Suspect(
            "padded-variance",
            "Idle lanes have joined the variance: after the mean is subtracted, they no longer hold zero.",
            lambda x, w, b, eps: _layer_norm_with(x, w, b, eps, padded=True, eps_inside=False),
        ),
        Suspect(
            "padded-variance",
            "Idle lanes have joined the variance: after the mean is subtracted, they no longer hold zero.",
            lambda x, w, b, eps: _layer_norm_with(x, w, b, eps, padded=True, eps_inside=True),
        ),
        Suspect(
            "eps-outside-root",
            "The variance is right now. But `eps` is added to the standard deviation; it belongs to the variance.",
            lambda x, w, b, eps: _layer_norm_with(x, w, b, eps, padded=False, eps_inside=False),
        ),
        Suspect(
            "mean-not-subtracted",
            "The mean was not subtracted: this is RMSNorm with a bias.",
            lambda x, w, b, eps: (_scaled(x.float(), torch.rsqrt(_mean_square(x) + eps), w) + b).to(x.dtype),
        ),
        Suspect(
            "missing-bias",
            "This is the result without the bias.",
            lambda x, w, b, eps: reference.layer_norm(x, w, torch.zeros_like(b), eps),
        ),
        Suspect(
            "unbiased-variance",
            "The variance was divided by `N - 1`. LayerNorm divides by `N`.",
            _unbiased_layer_norm,
        ),
    ),
)


def _mean_square_of_last_block(x: Tensor, block: int = 1024) -> Tensor:
    last = (x.shape[1] - 1) // block * block
    return x[:, last:].float().square().sum(-1, keepdim=True) / x.shape[1]


def _block_by_block(x: Tensor, weight: Tensor, eps: float, block: int = 1024) -> Tensor:
    """Each block normalised by its own mean square."""
    parts = zip(x.split(block, dim=1), weight.split(block), strict=True)
    return torch.cat([reference.rms_norm(part, w, eps) for part, w in parts], dim=1)


def _full_blocks_only(x: Tensor, weight: Tensor, eps: float, block: int = 1024) -> Tensor:
    """The cut-off last block is neither read nor written; fresh memory holds NaN."""
    full = x.shape[1] // block * block
    mean_square = x[:, :full].float().square().sum(-1, keepdim=True) / x.shape[1]
    y = _scaled(x, torch.rsqrt(mean_square + eps), weight)
    y[:, full:] = float("nan")
    return y


def _first_weights_repeated(x: Tensor, weight: Tensor, eps: float, block: int = 1024) -> Tensor:
    return reference.rms_norm(x, weight[torch.arange(x.shape[1]) % block], eps)


def _divided_by(count: Callable[[int], int]) -> Callable[..., Tensor]:
    def formula(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        mean_square = x.float().square().sum(-1, keepdim=True) / count(x.shape[1])
        return _scaled(x, torch.rsqrt(mean_square + eps), weight)

    return formula


def _block_stays(args: tuple, launches: tuple) -> str:
    blocks = [block for launch in launches if (block := launch.constant("BLOCK")) not in (None, 1024)]
    return f"`BLOCK` was {blocks[0]}. It is to stay 1024, however wide the row is." if blocks else ""


_LONG = Exercise(
    number="2.5",
    title="Rows of any length",
    stars=3,
    minutes=20,
    entry="rms_norm_long",
    reference=reference.rms_norm,
    exact=widened(reference.rms_norm),
    demand=_block_stays,
    cases=(
        Case("one full block", _norm(2, 1024), **in_float32(20_000), again=True),
        Case("two full blocks", _norm(2, 2048), **in_float32(20_000)),
        Case("a last block that is cut short", _norm(2, 5000), **in_float32(20_000)),
        Case("shorter than a block", _norm(3, 100), **in_float32(20_000)),
        Case("20000 columns", _norm(1, 20000), **in_float32(20_000)),
        Case("tiny values, where eps matters", _norm(2, 2500, scale=1e-3), **in_float32(20_000)),
        Case("rows further apart than their width", _norm(2, 1500, strided=True), **in_float32(20_000)),
        Case("bfloat16", _norm(2, 4099, dtype=torch.bfloat16, weight=torch.bfloat16), **_ONCE),
        Case("one more than two blocks, eps 0.25", _norm(2, 2049, eps=0.25), **in_float32(20_000)),
        Case("bfloat16, 200,000 columns", _norm(1, _LONGEST, dtype=torch.bfloat16), **in_float32(_LONGEST)),
        Case("rows 2^30 elements apart", _far(_norm(3, 1100, dtype=torch.bfloat16), 0), **_ONCE),
        Case("small values, eps 1e-12", _norm(2, 1100, eps=1e-12, scale=1e-4), **_ONCE),
        Case("one more than a block", _norm(2, 1025, scale=0.5), **_ONCE),
    ),
    hints=(
        "What must be known before the first element can be written? So how often does the row have to be walked?",
        "First loop: `for start in range(0, N, BLOCK)`, columns `start + tl.arange(0, BLOCK)`, partial sums in a "
        "block that lives outside the loop. Then one `tl.sum`. Second loop: load again, scale, store.",
        "`squares = tl.zeros((BLOCK,), dtype=tl.float32)`; in the loop `squares += <...>`; then `rstd = "
        "tl.rsqrt(tl.sum(squares, axis=0) / <...> + eps)`; in the second loop `tl.store(y_ptr + cols, (x * rstd * "
        "w).to(<...>), mask=<...>)`.",
    ),
    suspects=(
        Suspect(
            "only-last-block",
            "The mean square is that of the last block. The earlier blocks were overwritten instead of added to.",
            lambda x, w, eps: _scaled(x, torch.rsqrt(_mean_square_of_last_block(x) + eps), w),
        ),
        Suspect(
            "block-statistics",
            "Each block was normalised by its own mean square. The row has only one.",
            _block_by_block,
        ),
        Suspect(
            "last-block-left-out",
            "Only full blocks were read and written. The loop has to take one more turn for what is left of the row.",
            _full_blocks_only,
        ),
        Suspect(
            "weight-not-advanced",
            "Every block used the first block's weights. Their columns have to move along with `start`.",
            _first_weights_repeated,
        ),
        Suspect("divides-by-block", _OVER_BLOCK, _divided_by(lambda n: 1024)),
        Suspect("divides-by-block", _OVER_BLOCK, _divided_by(lambda n: -(-n // 1024) * 1024)),
        *_RMS_SUSPECTS[1:],
    ),
)

_SHORT = Exercise(
    number="2.6",
    title="Several short rows in one program",
    stars=3,
    minutes=20,
    entry="rms_norm_short",
    reference=reference.rms_norm,
    exact=widened(reference.rms_norm),
    no_idle=True,
    cases=(
        Case("rows and columns powers of two", _norm(64, 32), **_ONCE, again=True),
        Case("12 columns", _norm(32, 12), **_ONCE),
        Case("more rows than full blocks", _norm(77, 64), **_ONCE),
        Case("one row", _norm(1, 48), **_ONCE),
        Case("one column", _norm(20, 1), **_ONCE),
        Case("rows of very different size", lambda generator: _uneven_rows(generator), **_ONCE),
        Case("rows further apart than their width", _norm(33, 24, strided=True), **_ONCE),
        Case("float16, values around 300", _norm(40, 100, dtype=torch.float16, scale=300.0), **_ONCE),
        Case("65 rows of 65 columns, eps 0.25", _norm(65, 65, eps=0.25), **_ONCE),
        Case("small values, eps 1e-12", _norm(17, 33, eps=1e-12, scale=1e-4), **_ONCE),
        Case("128 columns", _norm(17, 128, scale=0.01), **_ONCE),
        Case("300 rows", _norm(300, 5), **_ONCE),
        Case("rows 2^30 elements apart", _far(_norm(3, 40, dtype=torch.float16), 0), **_ONCE),
    ),
    hints=(
        "The block is now a table of rows and columns. Along which axis do you add up, and which of the two masks "
        "does the weight need?",
        "`offs_m[:, None] * stride_xm + offs_n[None, :]` gives a `(BLOCK_M, BLOCK_N)` table of offsets. The mask "
        "combines `offs_m < M` and `offs_n < N` in the same way, with `&`.",
        "`mean_square = tl.sum(x * x, axis=1) / N` has one number for each row; `<...>[:, None]` spreads it over the "
        "row, and `w[None, :]` spreads the weight over all rows. The grid is `(triton.cdiv(M, BLOCK_M),)`.",
    ),
    suspects=(
        Suspect(
            "one-statistic-for-all-rows",
            "All rows of a program were divided by the same number: the sum ran over rows as well as columns.",
            lambda x, w, eps: _tile_statistic(x, w, eps),
        ),
        *_RMS_SUSPECTS,
    ),
)


def _uneven_rows(generator: Generator) -> tuple:
    sizes = 10.0 ** torch.linspace(-2, 3, 20)
    return sizes[:, None] * torch.randn(20, 64, generator=generator), _row(64, generator), 1e-5


def _tile_statistic(x: Tensor, weight: Tensor, eps: float, rows: int = 16) -> Tensor:
    """Tiles of 16 rows, each divided by the sum over the whole tile."""
    tiles = [part.float().square().sum().expand(len(part), 1) for part in x.split(rows)]
    return _scaled(x, torch.rsqrt(torch.cat(tiles) / x.shape[1] + eps), weight)


EXERCISES = (_MEAN_SQUARE, _RMS_NORM, _ADD_RMS_NORM, _LAYER_NORM, _LONG, _SHORT)
