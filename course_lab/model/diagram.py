"""A picture of the model: the residual stream, what each layer reads from it and what it adds."""

from __future__ import annotations

from course_lab.model.config import Config
from gfxlab.draw import svg

_STREAM, _BRANCH = 62.0, 106.0  # heights of the stream and of the parts beside it
_HEIGHT = 26.0
_GAP = 14.0
_PLUS = 9.0  # radius of the sign of an addition


def draw(config: Config) -> svg.Picture:
    """The whole forward pass from left to right, one layer drawn."""
    canvas = svg.Canvas(width=720)
    canvas.text(10, 16, f"SmolLM2: a residual stream of {config.hidden_size} numbers for each token", "b")
    x = _part(canvas, 10, _STREAM, "embedding", 2)
    first, x = x, x + _GAP
    x = _branch(canvas, x, "attention", f"{config.num_q_heads} heads of {config.head_dim}")
    x = _branch(canvas, x, "MLP", f"{config.hidden_size} to 2 x {config.intermediate_size} and back")
    canvas.text((first + x) / 2, 40, f"one of {config.num_layers} layers, one after another", "qc")
    canvas.outline(first + 4, 26, x - first - 2, _BRANCH + _HEIGHT / 2 - 14, "a")
    start, x = x, x + 2 * _GAP
    _arrow(canvas, start, x)
    x = _part(canvas, x, _STREAM, "norm", 0)
    _arrow(canvas, x, x + _GAP)
    _part(canvas, x + _GAP, _STREAM, "logits", 2)
    text = (
        f"embedding, then {config.num_layers} times: stream + attention(norm(stream)), stream + MLP(norm(stream)); "
        "at the end norm, logits"
    )
    return canvas.picture(f"The forward pass of SmolLM2: {text}.", text)


def _branch(canvas: svg.Canvas, x: float, name: str, title: str) -> float:
    """The stream goes straight on; below it norm and `name` work on a copy, which is added. The x behind it."""
    start, middle = x, _BRANCH
    canvas.path(f"M{x} {_STREAM}v{middle - _STREAM}h{_GAP}", "a")
    x = _part(canvas, x + _GAP, middle, "norm", 0)
    _arrow(canvas, x, x + _GAP, middle)
    x = _part(canvas, x + _GAP, middle, name, 1, title)
    plus = x + _GAP
    canvas.path(f"M{x} {middle}H{plus}V{_STREAM + _PLUS}", "a")
    canvas.line(start - _GAP, _STREAM, plus - _PLUS, _STREAM, "o")
    canvas.circle(plus, _STREAM, _PLUS, "o")
    canvas.text(plus, _STREAM + 4, "+", "bc")
    canvas.line(plus + _PLUS, _STREAM, plus + _PLUS + _GAP, _STREAM, "o")
    return plus + _PLUS + _GAP


def _part(canvas: svg.Canvas, x: float, middle: float, name: str, colour: int, title: str = "") -> float:
    """A box with a name; the x behind it."""
    width = svg.text_width(name) + 18
    canvas.box(x, middle - _HEIGHT / 2, width, _HEIGHT, svg.colour(colour), title or name)
    canvas.text(x + width / 2, middle + 4, name, "c")
    return x + width


def _arrow(canvas: svg.Canvas, start: float, stop: float, y: float = _STREAM) -> None:
    canvas.line(start, y, stop, y, "o" if y == _STREAM else "a")
