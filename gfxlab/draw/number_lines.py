"""Which numbers an 8-bit floating-point type has, on a line."""

from __future__ import annotations

import torch

from gfxlab.draw import svg

_LEFT, _RIGHT, _TOP, _STEP, _TICK = 14, 150, 10, 72, 24


def fp8_line(*dtypes: torch.dtype) -> svg.Picture:
    """A tick for each number of each type that is not negative, on one scale; and one byte as each of them reads it.

        fp8_line(torch.float8_e4m3fn, torch.float8_e4m3fnuz)

    Raises:
        ValueError: no type, or one that has no 8 bits.
    """
    if not dtypes or any(dtype.itemsize != 1 or not dtype.is_floating_point for dtype in dtypes):
        raise ValueError(f"fp8_line needs 8-bit floating-point types, got {dtypes}")
    lines = {str(dtype).removeprefix("torch."): _numbers(dtype) for dtype in dtypes}
    largest = max(values[-1] for values in lines.values())
    byte = _byte_of(2.0 ** int(torch.tensor(largest).log2()), dtypes[0])
    read = [torch.tensor([byte], dtype=torch.uint8).view(dtype).float().item() for dtype in dtypes]
    canvas = svg.Canvas()
    scale = (canvas.width - _LEFT - _RIGHT) / largest
    for row, (name, values) in enumerate(lines.items()):
        _draw_line(canvas, _TOP + row * _STEP, name, values, scale, svg.colour(row))
    places = [(_LEFT + value * scale, _TOP + row * _STEP) for row, value in enumerate(read)]
    for (x1, y1), (x2, y2) in zip(places, places[1:]):
        canvas.line(x1, y1 + _TICK + 17, x2, y2 - 2, "o", 'stroke-dasharray="4 3"')
        canvas.text(x1 + 8, y1 + _TICK + 29, f"byte {byte:#x} means both", "q")
    words = [
        f"  {name}: {len(values)} numbers from 0 to {values[-1]:g}, the last step {values[-1] - values[-2]:g}, "
        f"the first {values[1]:g}; byte {byte:#x} is {value:g}"
        for (name, values), value in zip(lines.items(), read, strict=True)
    ]
    title = f"the numbers of {' and '.join(lines)}"
    return canvas.picture(title, "\n".join([title, *words]))


def _numbers(dtype: torch.dtype) -> list[float]:
    """All finite numbers from 0 up."""
    values = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    return sorted({value + 0.0 for value in values[values.isfinite() & (values >= 0)].tolist()})


def _byte_of(value: float, dtype: torch.dtype) -> int:
    return int(torch.tensor([value]).to(dtype).view(torch.uint8).item())


def _draw_line(canvas: svg.Canvas, y: float, name: str, values: list[float], scale: float, colour: str) -> None:
    end = _LEFT + values[-1] * scale
    canvas.line(_LEFT, y + _TICK, end, y + _TICK)
    ticks = [(_LEFT + value * scale - 0.5, y, 1, _TICK) for value in values]
    canvas.region(ticks, colour, f"{len(values)} numbers", 0.9)
    canvas.text(end + 8, y + _TICK / 2 + 4, f"{values[-1]:g}", "b")
    canvas.text(end + 36, y + _TICK / 2 + 4, name)
    power = 64
    while power < values[-1]:
        canvas.text(_LEFT + power * scale, y + _TICK + 12, str(power), "sqc")
        power *= 2
