"""The numbers of 8-bit floating-point types."""

from __future__ import annotations

import re

import pytest
import torch

from gfxlab import draw

FLAVOURS = torch.float8_e4m3fn, torch.float8_e4m3fnuz


def _ticks(picture: draw.Picture) -> list[list[float]]:
    """The left edges of the ticks, line by line."""
    paths = re.findall(r'<path d="([^"]*)" style="fill', picture.svg)
    return [[float(x) for x in re.findall(r"M([\d.]+) ", path)] for path in paths]


def test_each_type_has_a_tick_for_each_of_its_numbers():
    picture = draw.fp8_line(*FLAVOURS)
    assert [len(line) for line in _ticks(picture)] == [127, 128]  # of 256 bytes: no sign, no NaN
    assert "from 0 to 448, the last step 32" in str(picture) and "from 0 to 240, the last step 16" in str(picture)


def test_both_lines_have_one_scale():
    fn, fnuz = _ticks(draw.fp8_line(*FLAVOURS))
    assert (fnuz[-1] - fnuz[0]) / (fn[-1] - fn[0]) == pytest.approx(240 / 448, rel=1e-3)


def test_one_byte_is_followed_from_one_type_to_the_next():
    text = str(draw.fp8_line(*FLAVOURS))
    assert "byte 0x78 is 256" in text and "byte 0x78 is 128" in text


def test_a_single_type_needs_no_second_line():
    picture = draw.fp8_line(torch.float8_e5m2)
    assert len(_ticks(picture)) == 1 and "means both" not in picture.svg


@pytest.mark.parametrize("dtypes", [(), (torch.int8,), (torch.float16,)], ids=str)
def test_other_types_are_refused(dtypes):
    with pytest.raises(ValueError, match="8-bit floating-point"):
        draw.fp8_line(*dtypes)
