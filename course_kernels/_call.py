"""What stands around a public function and its launch wrapper: see `_remembered`, `_torch_op` and `_first_order`."""

from ._first_order import once_differentiable
from ._remembered import remembered
from ._torch_op import apply, torch_op

__all__ = ["apply", "once_differentiable", "remembered", "torch_op"]
