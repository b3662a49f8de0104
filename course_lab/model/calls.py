"""One call of an operation in the model: where it stands, what runs there, and on which arguments."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


class Call(tuple):
    """The positional arguments of one call, as a tuple; ``keywords`` has the others.

    ``place`` names the call ("layers.7.mlp_norm"), ``operation`` what runs there ("add_rms_norm").
    """

    place: str
    operation: str
    keywords: dict[str, object]

    def __new__(cls, place: str, operation: str, args: Sequence[object], keywords: dict[str, object]) -> Call:
        self = super().__new__(cls, args)
        self.place, self.operation, self.keywords = place, operation, keywords
        return self

    def __repr__(self) -> str:
        shown = [_describe(value) for value in self]
        shown += [f"{name}={_describe(value)}" for name, value in self.keywords.items()]
        return f"{self.place}: {self.operation}({', '.join(shown)})"

    @property
    def kind(self) -> str:
        """The place with the layer's number left open: "layers.N.mlp_norm"."""
        first, _, rest = self.place.partition(".")
        return f"layers.N.{rest.partition('.')[2]}" if first == "layers" else self.place

    def copied(self) -> Call:
        """The same call with tensors of its own: the model writes to its caches, and a learner may write anywhere."""
        args = [value.clone() if isinstance(value, Tensor) else value for value in self]
        return Call(self.place, self.operation, args, self.keywords)


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return f"{value:g}" if isinstance(value, float) else repr(value)
