"""What stands around a public function and its launch wrapper: see `_remembered` and `_torch_op`."""

from ._remembered import remembered
from ._torch_op import apply, torch_op

__all__ = ["apply", "remembered", "torch_op"]
