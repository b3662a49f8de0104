"""Gradients that have no gradient themselves, and say so."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.autograd import function


def once_differentiable(backward: Callable) -> Callable:
    """Refuse the derivative of what a `backward` returns; a decorator.

    PyTorch's of this name refuses it in `Tensor.backward()` only. `torch.autograd.grad` with respect to some tensors
    looks for a way to these, finds none through such a gradient, and leaves its share out without a word.
    """
    first = function.once_differentiable(backward)

    @wraps(backward)
    def call(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        results = first(ctx, *gradients)
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return results
        many = results if isinstance(results, tuple) else (results,)
        known = [i for i, x in enumerate(many) if isinstance(x, torch.Tensor)]
        sources = [x for x in (*gradients, *ctx.saved_tensors) if isinstance(x, torch.Tensor) and x.requires_grad]
        name = type(ctx).__name__.removesuffix("Backward")
        tied = dict(zip(known, _Refused.apply(name, len(known), *(many[i].detach() for i in known), *sources)))
        return tuple(tied.get(i) for i in range(len(many)))

    return call


class _Refused(torch.autograd.Function):
    """The first tensors as they are; a way leads from them to all others, and nobody may go it."""

    @staticmethod
    def forward(ctx, name, count, *tensors):
        ctx.name = name
        return tuple(x.detach() for x in tensors[:count])

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            f'{ctx.name} has no second derivative; take the reference, which has one, with use_backend("torch")'
        )
