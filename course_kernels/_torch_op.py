"""Launch wrappers as operators of PyTorch, so that `torch.compile` keeps each as one node of its graph.

    @torch_op(lambda x: x.new_empty(x.shape))  # what it returns, without computing it
    def softmax_forward(x: torch.Tensor) -> torch.Tensor: ...

While PyTorch traces, and where tensors have no memory, a call goes to `torch.ops.course_kernels.softmax_forward`, an
opaque operator: nothing in the function is traced, what it returns is described by the function in the decorator.  At
any other time the call goes straight to the function, since an operator's dispatch takes longer than the launch of a
small kernel is worth.

`torch.library.triton_op`, which shows the kernels to the compiler, would launch them by the compiler's own code: not
interpreted on CPU tensors, and with launch parameters that are computed from symbols.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import torch
from torch.autograd import forward_ad

from . import checks, launch


def torch_op(fake: Callable, mutates: tuple[str, ...] = ()) -> Callable[[Callable], Callable]:
    """Register a function of tensors, numbers and strings as an operator of the same name; a decorator.

    The function's annotations are the operator's schema. Gradients are not its business: the `autograd.Function` that
    calls it is traced as it stands.

    Args:
        fake: takes the function's arguments and returns tensors of the right shape, strides, dtype and device.
        mutates: names of the tensors that the function writes, given by place; all others must stay as they are.
    """

    def register(function: Callable) -> Callable:
        package = function.__module__.partition(".")[0]  # a family that was lifted out has operators of its own
        name = f"{package}::{function.__name__}"
        tags = (torch.Tag.needs_exact_strides,)  # the strides that were checked, not others that suit the compiler
        operator = torch.library.custom_op(name, function, mutates_args=mutates, tags=tags)
        operator.register_fake(fake)

        places = [list(signature(function).parameters).index(name) for name in mutates]

        @wraps(function)
        def call(*args, **kwargs):
            if torch.compiler.is_compiling() or any(map(_without_memory, args)):
                return operator(*args, **kwargs)
            result = function(*args, **kwargs)
            launch.wrote(*(args[place] for place in places))  # of an operator PyTorch knows it
            return result

        return call

    return register


def apply(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """`function.apply(*inputs)`; where no gradient can be asked for, its forward pass alone: apply costs as much as it.

    Where it is asked for: an input requires grad, or forward mode is on, or PyTorch traces and does not know yet.
    """
    if torch.compiler.is_compiling():
        return function.apply(*_each_once(inputs))
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)) or forward_ad._current_level >= 0:
        launch.not_transformed(function.__name__, tensors)
        return function.apply(*inputs)
    return function.forward(_NothingToSave(), *inputs)


def _each_once(inputs: tuple) -> list:
    """The inputs; a tensor that comes again is a view of itself, since PyTorch traces no function of one twice."""
    return [
        x.view_as(x) if isinstance(x, torch.Tensor) and any(x is before for before in inputs[:i]) else x
        for i, x in enumerate(inputs)
    ]


def _without_memory(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and checks.without_memory(x)


class _NothingToSave:
    """The context of a forward pass that has no backward pass."""

    def save_for_backward(self, *tensors: torch.Tensor | None) -> None:
        """Nothing."""

    mark_dirty = mark_non_differentiable = save_for_backward
