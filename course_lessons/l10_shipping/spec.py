"""The exercises of lesson 10: what is asked of a kernel that is shipped, for each kernel that may be.

The drivers (`drivers.py`) ask in the child; references and tolerances stay here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from course_kernels import reference
from course_lab.authoring import lessons
from course_lab.authoring.exercise import Case, Exercise, Suspect
from course_lab.authoring.tolerance import each, in_float32
from course_lessons.l10_shipping import drivers, judges
from course_lessons.l10_shipping import reference as own

_FINE = {"atol": 0.0, "rtol": 0.0, "why": "the driver complains by itself, and returns a zero"}
_ROW = in_float32(1245, size=1.0)
_NORM, _GATED, _SOFTMAX, _SUM = "2.2", "3.2", "6.1", "1.2"
_BF16, _F16 = torch.bfloat16, torch.float16
_SLOW_IMPORTS = ("torch._dynamo", "transformers.models.llama.modeling_llama")  # together: one fork server for all


def _randn(shape: tuple[int, ...], g: Generator, dtype=torch.float32, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(shape, generator=g)).to(dtype)


def _weight(n: int, g: Generator, dtype=torch.float32) -> Tensor:
    return (1 + 0.2 * torch.randn(n, generator=g)).to(dtype)


def _fine(*_: Any) -> Tensor:
    return drivers.FINE


def _case(name: str, *given: Any, **tolerance: Any) -> Case:
    """A case of plain values and of functions that take the generator."""
    return Case(name, lambda g: tuple(v(g) if callable(v) else v for v in given), **(tolerance or _FINE))


def _gives(name: str, kind: str, *given: Any, **tolerance: Any) -> Case:
    """A case of 10.1 that is taken: "gives", "gives nothing", "gives or refuses", then the arguments of `ship`."""
    return replace(_case(name, kind, "", "here", *given, **tolerance), hidden=2)


def _refuses(name: str, words: str, *given: Any, where: str = "here") -> Case:
    """A case of 10.1 that is refused, with one of the words (separated by |)."""
    return replace(_case(name, "refuses", words, where, *given), hidden=2)


def _picked(exercise: Exercise, others: dict[str, dict[str, Any]]) -> Exercise:
    """The exercise for RMSNorm, which also offers other kernels: by number, in what it is then another."""
    changed = tuple((number, replace(exercise, **changes)) for number, changes in others.items())
    return replace(exercise, picks=((_NORM, exercise), *changed))


# ---- 10.1 ----------------------------------------------------------------------------------------------------------


def _contract(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What a case must return: the kernel's numbers, or a zero where it is refused."""

    def told(kind: str, words: str, where: str, *args: Any) -> Tensor:
        return drivers.FINE if kind == "refuses" else formula(*args)

    return told


def _x(*shape: int, view: Callable[[Tensor], Tensor] = lambda x: x, **kind: Any) -> Callable[[Generator], Tensor]:
    return lambda g: view(_randn(shape, g, **kind))


def _w(n: int, view: Callable[[Tensor], Tensor] = lambda w: w, dtype=torch.float32) -> Callable[[Generator], Tensor]:
    return lambda g: view(_weight(n, g, dtype))


_WIDER = in_float32(1245, size=1.0)
_IN_HALF = {"atol": 1e-6, "rtol": 2**-7, "why": "one rounding to bfloat16, and what float32 loses"}


def _shared_contract(columns: int, *rest: Any) -> tuple[Case, ...]:
    """What all kernels of rows must meet; rest: the arguments after x, for rows of so many columns."""
    n = columns
    return (
        _gives("a batch of sequences, three dimensions", "gives", _x(2, 3, n), *rest, **_WIDER),
        _gives("one row alone, one dimension", "gives", _x(n), *rest, **_WIDER),
        _gives("four dimensions, bfloat16", "gives", _x(2, 1, 3, n, dtype=_BF16), *rest, **_IN_HALF),
        _gives(
            "rows further apart than they are long", "gives", _x(4, n + 12, view=lambda x: x[:, :n]), *rest, **_WIDER
        ),
        _gives("a batch of such rows", "gives", _x(2, 3, n + 4, view=lambda x: x[..., :n]), *rest, **_WIDER),
        _gives("the first token of each sequence", "gives", _x(4, 2, n, view=lambda x: x[:, :1]), *rest, **_WIDER),
        _gives(
            "one sequence of a batch that comes second",
            "gives",
            _x(3, 2, n, view=lambda x: x.transpose(0, 1)[:1]),
            *rest,
            **_WIDER,
        ),
        _gives("no rows", "gives nothing", _x(0, n), *rest, **_WIDER),
        _gives("a batch without sequences", "gives nothing", _x(2, 0, n), *rest, **_WIDER),
        _gives("every second column", "gives or refuses", _x(3, 2 * n, view=lambda x: x[:, ::2]), *rest, **_WIDER),
        _gives("transposed", "gives or refuses", _x(n, 4, view=lambda x: x.t()), *rest, **_WIDER),
        _gives(
            "sequences and batch exchanged",
            "gives or refuses",
            _x(3, 2, n + 4, view=lambda x: x[..., :n].transpose(0, 1)),
            *rest,
            **_WIDER,
        ),
        _refuses("float64 is refused", "float64", _x(3, n, dtype=torch.float64), *rest),
        _refuses("integers are refused", "int64", _x(3, n, scale=9.0, dtype=torch.int64), *rest),
        _refuses("no dimensions are refused", "", torch.tensor(2.0), *rest),
    )


def _same(make: Callable[[Generator], Tensor]) -> tuple[Callable, Callable]:
    """Two arguments of one form."""
    return make, make


_OF_A_SUM = (
    _gives("a batch of sequences, three dimensions", "gives", *_same(_x(2, 3, 576)), **_WIDER),
    _gives("one dimension, more than a block", "gives", *_same(_x(2500)), **_WIDER),
    _gives("bfloat16", "gives", *_same(_x(2, 1, 3, 576, dtype=_BF16)), **_IN_HALF),
    _gives("a single number, no dimensions", "gives or refuses", torch.tensor(2.0), torch.tensor(3.0), **_WIDER),
    _gives("rows of a matrix", "gives", *_same(_x(6, 100, view=lambda x: x[2:5])), **_WIDER),
    _gives("no rows", "gives nothing", *_same(_x(0, 576)), **_WIDER),
    _gives("rows of no elements", "gives nothing", *_same(_x(3, 0)), **_WIDER),
    _gives("every second column", "gives or refuses", *_same(_x(3, 200, view=lambda x: x[:, ::2])), **_WIDER),
    _gives(
        "rows further apart than they are long",
        "gives or refuses",
        *_same(_x(4, 112, view=lambda x: x[:, :100])),
        **_WIDER,
    ),
    _gives("both transposed", "gives or refuses", *_same(_x(100, 4, view=lambda x: x.t())), **_WIDER),
    _gives("one of them transposed", "gives or refuses", _x(100, 4, view=lambda x: x.t()), _x(4, 100), **_WIDER),
    _gives(
        "the other one expanded", "gives or refuses", _x(4, 100), _x(1, 100, view=lambda x: x.expand(4, 100)), **_WIDER
    ),
    _refuses("float64 is refused", "float64", *_same(_x(3, 100, dtype=torch.float64))),
    _refuses("integers are refused", "int64", *_same(_x(3, 100, scale=9.0, dtype=torch.int64))),
    _refuses("two dtypes are refused", "bfloat16|float32", _x(3, 100), _x(3, 100, dtype=_BF16)),
    _refuses("a shorter one is refused", "99|100", _x(3, 100), _x(3, 99)),
    _refuses("one row for all is refused", "(3, 100)|[3, 100]|(100,)|[100]", _x(3, 100), _x(100)),
    _refuses("as many elements in another shape", "(4, 75)|[4, 75]|75", _x(3, 100), _x(4, 75)),
    _refuses("one of them on another device", "meta", *_same(_x(3, 100)), where="meta"),
)


_SHIP = _picked(
    Exercise(
        number="10.1",
        title="The wrapper as a contract",
        stars=2,
        minutes=20,
        entry="ship",
        reference=_contract(reference.rms_norm),
        driver=drivers.contract,
        imports=_SLOW_IMPORTS,
        judge=judges.contract,
        time_limit=20.0,
        cases=(
            *_shared_contract(576, _w(576), 1e-6),
            _gives("rows of no elements", "gives nothing", _x(3, 0), _w(0), 1e-6, **_WIDER),
            _gives("a weight of another dtype", "gives", _x(3, 100), _w(100, dtype=_BF16), 0.5, **_WIDER),
            _refuses("a weight that is too short", "99|100", _x(3, 100), _w(99), 1e-6),
            _refuses("a weight that is too long", "128|100", _x(3, 100), _w(128), 1e-6),
            _refuses("a weight with a row for each row", "(3, 100)|[3, 100]|2", _x(3, 100), _x(3, 100), 1e-6),
            _refuses("a weight that is one column", "(100, 1)|[100, 1]|2|dim", _x(3, 100), _x(100, 1), 1e-6),
            _refuses("a weight that is one row", "(1, 100)|[1, 100]|2|dim", _x(3, 100), _x(1, 100), 1e-6),
            _refuses("a weight without dimensions", "()|[]|0|shape|dim", _x(3, 100), torch.tensor(2.0), 1e-6),
            _refuses("a weight in float64", "float64", _x(3, 100), _w(100, dtype=torch.float64), 1e-6),
            _refuses("a weight on another device", "meta", _x(3, 100), _w(100), 1e-6, where="meta"),
            _gives("every second weight", "gives or refuses", _x(3, 50), _w(100, lambda w: w[::2]), 1e-6, **_WIDER),
        ),
        hints=(
            "List what the kernel takes for granted: which of its loads goes wrong, without a word, when the caller "
            "passes something else? And which of your own operations may copy?",
            "Check dtypes, dimensions, the weight's shape and device, the strides, in this order. Return an empty "
            "tensor before the launch. `x.view(-1, N)` raises where `reshape` would copy.",
            "`if <x.dtype is none of three>: raise TypeError(f'... {x.dtype}')`, the same for shapes with ValueError, "
            "`if x.numel() == 0: return torch.empty(<...>)`, `if x.stride(-1) != 1: raise ...`, `rows = x.view(-1, "
            "x.shape[-1])` inside try, `return kernel(rows, <...>).view(x.shape)`.",
        ),
    ),
    {
        _GATED: {
            "reference": _contract(reference.silu_and_mul),
            "cases": (
                *_shared_contract(600),
                _gives("rows of no elements", "gives nothing", _x(3, 0), **_WIDER),
                _refuses("an odd number of columns", "7", _x(3, 7)),
                _gives("two columns", "gives", _x(5, 2), **_WIDER),
            ),
        },
        _SOFTMAX: {
            "reference": _contract(reference.softmax),
            "cases": (
                *_shared_contract(600),
                _gives("rows of no elements", "gives nothing", _x(3, 0), **_WIDER),
                _gives("one column", "gives", _x(5, 1), **_WIDER),
            ),
        },
        _SUM: {"reference": _contract(torch.add), "cases": _OF_A_SUM},
    },
)


# ---- 10.2 ----------------------------------------------------------------------------------------------------------

_GRADIENTS = each(in_float32(1245, size=1.0), in_float32(1245, size=4.0), in_float32(64, size=8.0))
_KERNEL_BF16 = {"atol": 0.03, "rtol": 2**-7, "why": "the kernel is graded elsewhere"}
_GRADIENTS_BF16 = each(_KERNEL_BF16, in_float32(1245, size=4.0), in_float32(64, size=8.0))
_TWO = each(in_float32(1, size=1.0), in_float32(8, size=4.0))
_OF_ROWS = each(in_float32(1245, size=1.0), in_float32(1245, size=4.0))
_THREE = each(in_float32(1, size=4.0) | {"rtol": 2**-7}, *[{"atol": 0.0, "rtol": 0.0, "why": "a copy of dy"}] * 2)
_TWO_BF16 = each(_KERNEL_BF16, in_float32(1245, size=4.0))


def _backward(m: int, n: int, *, dtype=torch.float32, scale=1.0, eps=1e-5, summed=False, strided=False) -> tuple:
    def x(g: Generator) -> Tensor:
        return _randn((m, n + 5 * strided), g, dtype, scale)[:, :n]

    dy = None if summed else (lambda g: _randn((m, n), g, dtype))
    return 1, x, _w(n), eps, dy


def _gated_backward(m: int, d: int, *, dtype=torch.float32, scale=1.0, summed=False) -> tuple:
    dy = None if summed else (lambda g: _randn((m, d), g, dtype))
    return 1, lambda g: _randn((m, 2 * d), g, dtype, scale), dy


_GRADIENT_SUSPECTS = (
    Suspect(
        "projection-missing",
        "`dx` is what it would be if `rstd` were a constant. It depends on every element of the row, and that is the "
        "second term.",
        own.without_projection,
    ),
    Suspect(
        "weight-missing-in-dx",
        "`dx` is right for weights of 1: the gradient passes through the weight first.",
        own.without_weight,
    ),
    Suspect("dweight-of-x", "`dweight` was summed with `x`, not with the normalised row.", own.dweight_of_x),
    Suspect("eps-missing-in-backward", "The backward pass leaves `eps` out.", own.without_eps),
    Suspect("sum-not-mean", "The second term of `dx` has a sum over the row; it is a mean.", own.sum_for_mean),
)

_OF_SOFTMAX = (
    Suspect(
        "projection-missing",
        "`dx` is what it would be if the sum under the softmax were a constant. It depends on every element of the "
        "row, and that is the second term.",
        own.softmax_without_projection,
    ),
    Suspect("mean-not-sum", "The second term of `dx` has a mean over the row; it is a sum.", own.softmax_mean_for_sum),
)


def _row_backward(m: int, n: int, *, dtype=torch.float32, scale=1.0, summed=False, mean=0.0) -> tuple:
    dy = None if summed else (lambda g: _randn((m, n), g, dtype))
    return 1, lambda g: (_randn((m, n), g, dtype, scale) + mean).to(dtype), dy


def _sum_backward(*shape: int, dtype=torch.float32, summed=False) -> tuple:
    dy = None if summed else _x(*shape, dtype=dtype)
    return 1, *_same(_x(*shape, dtype=dtype)), dy


_BACKWARD = _picked(
    Exercise(
        number="10.2",
        title="A backward pass",
        stars=3,
        minutes=20,
        entry="differentiable",
        reference=own.rms_norm_with_gradients,
        exact=own.rms_norm_exactly,
        driver=drivers.gradients,
        time_limit=20.0,
        cases=(
            _case("576 columns", *_backward(5, 576), **_GRADIENTS),
            _case("a power of two", *_backward(4, 64), **_GRADIENTS),
            _case("one column", *_backward(3, 1), **_GRADIENTS),
            _case("wider than 1024", *_backward(2, 1245), **_GRADIENTS),
            _case("tiny values, where eps matters", *_backward(3, 100, scale=1e-2, eps=1e-2), **_GRADIENTS),
            _case("the gradient of a sum, one number spread out", *_backward(4, 100, summed=True), **_GRADIENTS),
            _case("rows further apart than their width", *_backward(4, 100, strided=True), **_GRADIENTS),
            _case("bfloat16 with float32 weights", *_backward(4, 100, dtype=_BF16), **_GRADIENTS_BF16),
        ),
        hints=(
            "Of what does the backward pass need to know the forward pass's value, and which of these can be computed "
            "again from the arguments?",
            "`ctx.save_for_backward(x, weight)` and `ctx.eps = eps`. In `backward`, widen to float32, compute `rstd` "
            "and `x_hat` again, and follow the two formulas. Three arguments, so three gradients.",
            "`rstd = torch.rsqrt(<mean of the squares> + ctx.eps)`, `x_hat = x32 * rstd`, `g = dy32 * <...>`, `dx = "
            "rstd * (g - x_hat * <mean over the row>)`, `dweight = (<...>).sum(0)`, `return dx.to(x.dtype), <...>, "
            "None`.",
        ),
        suspects=_GRADIENT_SUSPECTS,
    ),
    {
        _GATED: {
            "reference": own.silu_and_mul_with_gradients,
            "exact": own.silu_and_mul_exactly,
            "suspects": (),
            "cases": (
                _case("576 columns", *_gated_backward(4, 576), **_TWO),
                _case("one column", *_gated_backward(3, 1), **_TWO),
                _case(
                    "gates up to 100",
                    *_gated_backward(3, 65, scale=30.0),
                    **each(in_float32(1, size=90.0), _TWO | {"atol": 1e-2}),
                ),
                _case("the gradient of a sum, one number spread out", *_gated_backward(4, 100, summed=True), **_TWO),
                _case("bfloat16", *_gated_backward(4, 100, dtype=_BF16), **_TWO_BF16),
            ),
        },
        _SOFTMAX: {
            "reference": own.softmax_with_gradients,
            "exact": own.softmax_exactly,
            "suspects": _OF_SOFTMAX,
            "cases": (
                _case("576 columns", *_row_backward(5, 576), **_OF_ROWS),
                _case("a power of two", *_row_backward(4, 64), **_OF_ROWS),
                _case("one column", *_row_backward(3, 1), **_OF_ROWS),
                _case("wider than 1024", *_row_backward(2, 1245), **_OF_ROWS),
                _case("one element far above the others", *_row_backward(3, 100, scale=30.0), **_OF_ROWS),
                _case("all far below zero", *_row_backward(3, 100, mean=-200.0), **_OF_ROWS),
                _case("the gradient of a sum, which is 0", *_row_backward(4, 100, summed=True), **_OF_ROWS),
                _case("bfloat16", *_row_backward(4, 100, dtype=_BF16), **_TWO_BF16),
            ),
        },
        _SUM: {
            "reference": own.sum_with_gradients,
            "exact": None,
            "suspects": (),
            "cases": (
                _case("a matrix", *_sum_backward(5, 576), **_THREE),
                _case("one dimension", *_sum_backward(1245), **_THREE),
                _case("the gradient of a sum, one number spread out", *_sum_backward(4, 100, summed=True), **_THREE),
                _case("bfloat16", *_sum_backward(4, 100, dtype=_BF16), **_THREE),
            ),
        },
    },
)


# ---- 10.3 ----------------------------------------------------------------------------------------------------------


def _operator(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What a case must return: the kernel's numbers, around which one more operation stands where it is compiled."""

    def told(kind: str, x: Tensor, *rest: Any) -> Tensor:
        if kind in ("describes", "examined"):
            return drivers.FINE
        return formula(2 * x, *rest) + 1 if kind == "compiled" else formula(x, *rest)

    return told


def _slice(m: int, n: int, **kind: Any) -> Callable[[Generator], Tensor]:
    return _x(m, n + 3, view=lambda x: x[:, :n], **kind)


def _operator_cases(columns: int, *rest: Any) -> tuple[Case, ...]:
    return (
        _case("called", "gives", _x(4, columns), *rest, **_ROW),
        _case("the description of a matrix", "describes", _x(4, columns), *rest),
        _case("the description of a slice", "describes", _slice(3, columns), *rest),
        _case("the description in bfloat16", "describes", _x(2, columns, dtype=_BF16), *rest),
        _case("examined by opcheck", "examined", _x(3, columns), *rest),
        _case("one node of one graph", "compiled", _x(3, columns), *rest, **_ROW),
    )


_OPERATOR = _picked(
    Exercise(
        number="10.3",
        title="An operator that the compiler keeps",
        stars=2,
        minutes=15,
        entry="operator",
        reference=_operator(reference.rms_norm),
        driver=drivers.operators,
        imports=_SLOW_IMPORTS,
        time_limit=60.0,
        cases=_operator_cases(100, _w(100), 1e-5),
        hints=(
            "The compiler runs your program on tensors without numbers. What can be said of the result there, and who "
            "says it?",
            "`@operator.register_fake` above a function with the operator's arguments. It returns a tensor with the "
            "shape, dtype and strides of what your kernel's function allocates.",
            "`@operator.register_fake`, `def _(x, weight, eps):`, `return x.new_empty(<the result's shape>)`.",
        ),
    ),
    {
        _GATED: {"reference": _operator(reference.silu_and_mul), "cases": _operator_cases(100)},
        _SOFTMAX: {"reference": _operator(reference.softmax), "cases": _operator_cases(100)},
        _SUM: {
            "reference": _operator(torch.add),
            "cases": (
                _case("called", "gives", *_same(_x(4, 300)), **_ROW),
                _case("the description of a matrix", "describes", *_same(_x(4, 300))),
                _case("the description of three dimensions", "describes", *_same(_x(2, 3, 50))),
                _case("the description in bfloat16", "describes", *_same(_x(2, 100, dtype=_BF16))),
                _case("examined by opcheck", "examined", *_same(_x(3, 100))),
                _case("one node of one graph", "compiled", *_same(_x(3, 100)), **_ROW),
            ),
        },
    },
)


# ---- 10.4 ----------------------------------------------------------------------------------------------------------


def _layer_cases(theirs: str) -> tuple[Case, ...]:
    return (
        _case("every layer is replaced, and kernels run", "replaced", theirs),
        _case("the same logits", "numbers", theirs),
        _case("settings of each layer", "settings", theirs),
        _case("a checkpoint loads by its names", "names", theirs),
        _case("parameters are handed over", "parameters", theirs),
        _case("in bfloat16", "bfloat16", theirs),
    )


_LAYER = _picked(
    Exercise(
        number="10.4",
        title="A layer in a Llama of transformers",
        stars=2,
        minutes=15,
        entry="swap",
        reference=_fine,
        driver=drivers.layers,
        imports=_SLOW_IMPORTS,
        time_limit=60.0,
        cases=_layer_cases("LlamaRMSNorm"),
        hints=(
            "What is the name of the norm's parameter in a checkpoint, and what gives it that name in your layer?",
            "`self.weight = theirs.weight` hands the parameter over under its name. `model.named_modules()` gives "
            "paths; `model.get_submodule(parent)` the module to put the new layer into.",
            "`for path, layer in list(model.named_modules()):`, `if type(layer).__name__ == <...>:`, then `parent, _, "
            "name = path.rpartition('.')`, `setattr(model.get_submodule(parent), name, ShippedNorm(<...>))`; in "
            "`forward`, `kernel(x.view(-1, <...>), self.weight, <eps>).view(x.shape)`.",
        ),
    ),
    {_GATED: {"cases": _layer_cases("LlamaMLP")}},
)


# ---- 10.5 ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Right:
    """A right implementation for the learner's tests: a solution with texts replaced, and what to call it."""

    what: str
    number: str
    edits: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class _Wrong:
    """A wrong implementation for the learner's tests: the solution with texts replaced, and what to call it."""

    what: str
    edits: tuple[tuple[str, str], ...]


_WRONG_NORMS = (
    _Wrong("a norm that divides by the block", (("/ N", "/ BLOCK"),)),
    _Wrong("a norm that ignores the weight", ((" * w\n", "\n"),)),
    _Wrong(
        "a norm with eps outside the root", (("tl.rsqrt(mean_square + eps)", "(1 / (tl.sqrt(mean_square) + eps))"),)
    ),
    _Wrong("a norm without eps", (("mean_square + eps", "mean_square + 0 * eps"),)),
    _Wrong("a norm with an eps of its own, 1e-5", (("mean_square + eps", "mean_square + 1e-5 + 0 * eps"),)),
    _Wrong("a norm that sums in the dtype of x", (("x * x, axis=0", "(x * x).to(x_ptr.dtype.element_ty), axis=0"),)),
    _Wrong("a norm that takes rows to be N apart", (("row * stride_xm", "row * N"),)),
    _Wrong("a norm made for 1024 columns", (("triton.next_power_of_2(N)", "min(triton.next_power_of_2(N), 1024)"),)),
    _Wrong("a norm made for 576 columns", (("/ N", "/ 576"),)),
    _Wrong("a norm that gives every row the first one's", (("tl.program_id(0).to(tl.int64)", "tl.program_id(0) * 0"),)),
    _Wrong("a norm that always returns float32", (("dtype=x.dtype, device", "dtype=torch.float32, device"),)),
    _Wrong(
        "a norm that writes its result into x", (("y = torch.empty((M, N), dtype=x.dtype, device=x.device)", "y = x"),)
    ),
    _Wrong("a norm that divides by N - 1 where it can", (("/ N", "/ tl.maximum(N - 1, 1)"),)),
    _Wrong(
        "a norm that is off by four parts in a thousand",
        (("y = x * tl.rsqrt", "y = 1.004 * x * tl.rsqrt"),),
    ),
)
_RIGHT_NORMS = (
    _Right("the course's solution", "2.2"),
    _Right("a norm that walks the row in blocks", "2.5", (("BLOCK=1024", "BLOCK=128"),)),
    _Right(
        "a norm that divides", "2.2", (("x * tl.rsqrt(mean_square + eps) * w", "x / tl.sqrt(mean_square + eps) * w"),)
    ),
    _Right("a norm that multiplies by 1 / N", "2.2", (("sum(x * x, axis=0) / N", "sum(x * x * (1.0 / N), axis=0)"),)),
)
_WRONG_GATES = (
    _Wrong("a gate that is added", (("tl.exp(-gate)) * up", "tl.exp(-gate)) + up"),)),
    _Wrong("a gate without its activation", (("gate / (1.0 + tl.exp(-gate))", "gate"),)),
    _Wrong("a sigmoid for a SiLU", (("gate / (1.0", "1.0 / (1.0"),)),
    _Wrong("halves exchanged", (("y = gate / (1.0 + tl.exp(-gate)) * up", "y = up / (1.0 + tl.exp(-up)) * gate"),)),
    _Wrong("neighbours for halves", (("gate_ptr + d", "gate_ptr + 1"),)),
    _Wrong("only the first 512 columns", (("(triton.cdiv(d, 512), M)", "(1, M)"),)),
    _Wrong("a grid that is rounded down", (("triton.cdiv(d, 512)", "max(d // 512, 1)"),)),
    _Wrong("rows that are taken to be 2 d apart", (("row * stride_xm", "row * 2 * d"),)),
    _Wrong("every row the first one's", (("tl.program_id(1).to(tl.int64)", "tl.program_id(1) * 0"),)),
    _Wrong("float32 whatever x is", (("dtype=x.dtype, device", "dtype=torch.float32, device"),)),
    _Wrong("a SiLU that overflows", (("gate / (1.0 + tl.exp(-gate))", "gate * tl.exp(gate) / (1.0 + tl.exp(gate))"),)),
    _Wrong("off by four parts in a thousand", (("y = gate /", "y = 1.004 * gate /"),)),
)
_RIGHT_GATES = (
    _Right("the course's solution", "3.2"),
    _Right("a gate by tl.sigmoid", "3.2", (("gate / (1.0 + tl.exp(-gate))", "gate * tl.sigmoid(gate)"),)),
    _Right("a gate with other blocks", "3.2", (("512", "128"),)),
)
_WRONG_SOFTMAXES = (
    _Wrong("a softmax that overflows", (("x - tl.max(x, axis=0)", "x"),)),
    _Wrong("a softmax whose masked lanes count", (('other=-float("inf")', "other=0.0"),)),
    _Wrong("a softmax that underflows below zero", (("tl.max(x, axis=0)", "tl.maximum(tl.max(x, axis=0), 0.0)"),)),
    _Wrong("a softmax to base 2", (("tl.exp(x", "tl.exp2(x"),)),
    _Wrong("a softmax that is not divided", (("numerator / tl.sum(numerator, axis=0)", "numerator"),)),
    _Wrong("a softmax that divides by N", (("/ tl.sum(numerator, axis=0)", "/ N"),)),
    _Wrong("a softmax that divides by the largest", (("/ tl.sum(numerator", "/ tl.max(numerator"),)),
    _Wrong("a softmax that takes rows to be N apart", (("row * stride_xm", "row * N"),)),
    _Wrong("a softmax for 1024 columns", (("triton.next_power_of_2(N)", "min(triton.next_power_of_2(N), 1024)"),)),
    _Wrong(
        "a softmax that gives every row the first one's", (("tl.program_id(0).to(tl.int64)", "tl.program_id(0) * 0"),)
    ),
    _Wrong("a softmax that always returns float32", (("dtype=x.dtype, device", "dtype=torch.float32, device"),)),
    _Wrong(
        "a softmax that writes its result into x",
        (("y = torch.empty((M, N), dtype=x.dtype, device=x.device)", "y = x"),),
    ),
    _Wrong("a softmax that is off by four parts in a thousand", (("y = numerator /", "y = 1.004 * numerator /"),)),
)
_RIGHT_SOFTMAXES = (
    _Right("the course's solution", "6.1"),
    _Right(
        "a softmax with another power",
        "6.1",
        (("tl.exp(x - tl.max(x, axis=0))", "tl.exp2((x - tl.max(x, axis=0)) * 1.44269504)"),),
    ),
    _Right(
        "a softmax that multiplies by 1 / sum",
        "6.1",
        (("numerator / tl.sum(numerator, axis=0)", "numerator * (1.0 / tl.sum(numerator, axis=0))"),),
    ),
)
_WRONG_SUMS = (
    _Wrong("a difference", (("(x + y)", "(x - y)"),)),
    _Wrong("twice the first", (("(x + y)", "(x + x)"),)),
    _Wrong("the second alone", (("(x + y)", "y"),)),
    _Wrong("a grid that is rounded down", (("triton.cdiv(n, 1024)", "max(n // 1024, 1)"),)),
    _Wrong("one program", (("(triton.cdiv(n, 1024),)", "(1,)"),)),
    _Wrong("a mask that ends early", (("offs < n", "offs < n - 1"),)),
    _Wrong("the first row alone", (("n = x.numel()", "n = x.shape[-1]"),)),
    _Wrong("float32 whatever x is", (("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float32)"),)),
    _Wrong("a sum that is written into x", (("z = torch.empty_like(x)", "z = x"),)),
    _Wrong("a sum that is cut off at 1000", (("(x + y)", "tl.minimum(x + y, 1000.0)"),)),
    _Wrong("a sum by way of float16", (("(x + y)", "(x + y).to(tl.float16)"),)),
    _Wrong("a sum that is off by four parts in a thousand", (("(x + y)", "(1.004 * (x + y))"),)),
)
_RIGHT_SUMS = (
    _Right("the course's solution", "1.2"),
    _Right("a sum in blocks of 256", "1.2", (("1024", "256"),)),
    _Right("a sum the other way round", "1.2", (("(x + y)", "(y + x)"),)),
)


def edited(number: str, edits: tuple[tuple[str, str], ...]) -> str:
    """The solution of an exercise with texts replaced; each must occur."""
    code = lessons.solution(number)
    for old, new in edits:
        if old not in code:
            raise ValueError(f"{old!r} does not occur in the solution of {number}")
        code = code.replace(old, new)
    return code


def _suite_cases(number: str, right: tuple[_Right, ...], wrong: tuple[_Wrong, ...], probes: Callable) -> tuple:
    cases = [_suite_case("accepts", one.what, one.number, one.edits) for one in right]
    cases += [_suite_case("rejects", one.what, number, one.edits) for one in wrong]
    return (*cases, Case("your own mutants", lambda g: ("mutants", probes(g)), **_FINE, hidden=2))


def _suite_case(kind: str, what: str, number: str, edits: tuple[tuple[str, str], ...]) -> Case:
    return replace(_case(f"{kind} {what}", kind, what, *_code(number, edits)), hidden=2)


def _code(number: str, edits: tuple[tuple[str, str], ...]) -> tuple[Callable, Callable]:
    """Entry and code, found when a case is made: the other lessons are not read before."""
    return lambda g: lessons.exercise(number).entry, lambda g: edited(number, edits)


def _norm_probes(g: Generator) -> list:
    """Arguments that show most mistakes."""
    return [
        (_randn((4, 64), g), _weight(64, g), 1e-5),
        (_randn((3, 113), g)[:, :100], _weight(100, g), 1e-5),
        (_randn((2, 1245), g), _weight(1245, g), 1e-5),
        (_randn((3, 100), g, scale=1e-3), _weight(100, g), 1e-5),
        (_randn((3, 100), g), _weight(100, g), 0.5),
        (_randn((3, 576), g, _F16, 300.0), _weight(576, g), 1e-5),
        (_randn((3, 1), g), _weight(1, g), 1e-5),
    ]


def _gate_probes(g: Generator) -> list:
    return [
        (_randn((4, 64), g),),
        (_randn((3, 1202), g),),
        (_randn((3, 213), g)[:, :200],),
        (_randn((3, 100), g, scale=300.0),),
        (_randn((2, 2), g),),
        (_randn((3, 100), g, _BF16),),
    ]


def _softmax_probes(g: Generator) -> list:
    return [
        (_randn((4, 64), g),),
        (_randn((2, 1245), g),),
        (_randn((3, 113), g)[:, :100],),
        (_randn((3, 100), g, scale=300.0),),
        (_randn((3, 64), g) - 200.0,),
        (_randn((3, 1), g),),
        (_randn((3, 100), g, _BF16),),
    ]


def _sum_probes(g: Generator) -> list:
    return [
        (_randn((4, 64), g), _randn((4, 64), g)),
        (_randn((3, 1245), g), _randn((3, 1245), g)),
        (_randn((1,), g), _randn((1,), g)),
        (_randn((3, 100), g, scale=3e4), _randn((3, 100), g, scale=3e4)),
        (_randn((3, 100), g, _BF16), _randn((3, 100), g, _BF16)),
    ]


_SUITE = _picked(
    Exercise(
        number="10.5",
        title="Tests that can fail",
        stars=3,
        minutes=30,
        entry="test_values",
        reference=_fine,
        driver=drivers.suites,
        imports=_SLOW_IMPORTS,
        judge=judges.suite,
        time_limit=90.0,
        cases=_suite_cases(_NORM, _RIGHT_NORMS, _WRONG_NORMS, _norm_probes),
        hints=(
            "Take one wrong kernel of the list below that your tests pass. For which shape, dtype, stride, scale or "
            "eps do its numbers differ from the right ones?",
            "A reference in float64, a tolerance of a few times 2**-24 times the root of the row's length plus "
            "`torch.finfo(x.dtype).eps`; widths 1, 100, 576, 1025, 1245; a slice of a wider matrix; values of 1e-3 "
            "and, in float16, of 300; two different eps; the result's dtype; the arguments unchanged.",
            "`def test_strides(implementation):`, `x = torch.randn(4, 113)[:, :100]`, `got = implementation(x, "
            "<weight>, 1e-5)`, `torch.testing.assert_close(got.double(), <reference in float64>, rtol=<...>)`; "
            "`MUTANTS = [(<name>, '/ N', '/ BLOCK'), <...>]`.",
        ),
    ),
    {
        _GATED: {"cases": _suite_cases(_GATED, _RIGHT_GATES, _WRONG_GATES, _gate_probes)},
        _SOFTMAX: {"cases": _suite_cases(_SOFTMAX, _RIGHT_SOFTMAXES, _WRONG_SOFTMAXES, _softmax_probes)},
        _SUM: {"cases": _suite_cases(_SUM, _RIGHT_SUMS, _WRONG_SUMS, _sum_probes)},
    },
)


# ---- 10.6 ----------------------------------------------------------------------------------------------------------


_BENCHMARK = Exercise(
    number="10.6",
    title="A benchmark to repair",
    stars=2,
    minutes=15,
    kind="repair",
    entry="benchmark",
    reference=own.cold_milliseconds,
    driver=drivers.benchmarks,
    cases=(
        _case("one size", 1, 1 << 24, atol=0.006, rtol=0.02, why="a launch's own time, and one part in a hundred"),
        _case("three sizes", 2, 1 << 22, 1 << 25, 1 << 20, atol=0.006, rtol=0.02),
        _case("large tensors", 3, 1 << 28, 3 << 26, atol=0.006, rtol=0.012),
        _case("small tensors", 4, 4096, 1 << 16, 1 << 18, atol=0.006, rtol=0.02),
    ),
    hints=(
        "What does `gpu.kernel` wait for before it returns? And which of the ten runs is different from the others?",
        "Compile with one call that is not timed. Before each timed run flush the cache and synchronise; synchronise "
        "again before the clock is read. Collect the times, and take the middle one.",
        "`for size in sizes:`, `gpu.kernel(size)`, `for _ in range(25):`, `gpu.flush_cache()`, `gpu.synchronize()`, "
        "`start = gpu.clock()`, <...>, `times.append(gpu.clock() - start)`; `result[size] = <the median>`.",
    ),
    suspects=(
        Suspect(
            "not-synchronised", "That is the time of a launch. When has the kernel ended?", own.launch_milliseconds
        ),
        Suspect(
            "warm-cache", "Three times too fast: the data are in the cache from the run before.", own.warm_milliseconds
        ),
        Suspect(
            "flush-counted",
            "The flush of the cache is in the figure. What lies between the two clocks?",
            own.with_flush,
        ),
        Suspect(
            "compilation-counted", "The first call with a size compiles, and its time counts.", own.with_compilation
        ),
        Suspect(
            "mean-not-median", "Disturbed runs pull the figure up. Which average do they not move?", own.mean_of_runs
        ),
        Suspect(
            "minimum-not-median",
            "Each figure is a few percent too small: it is the fastest run. The median is asked for, the middle one.",
            own.fastest_of_runs,
        ),
        Suspect("one-size", "Some sizes are missing. A kernel has no one speed.", own.only_last),
    ),
)

EXERCISES = (_SHIP, _BACKWARD, _OPERATOR, _LAYER, _SUITE, _BENCHMARK)
