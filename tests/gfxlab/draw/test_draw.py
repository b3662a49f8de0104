"""Pictures: well-formed SVG, the same facts as text, refusals."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from gfxlab import draw
from gfxlab.draw.program_maps import _Axis, stack_rows
from gfxlab.draw.svg import Canvas

POINTS = [draw.Point("add", 1e6, 12e6, 4e-6), draw.Point("dot", 1e12, 1e8)]
PICTURES = {
    "strip": lambda: draw.program_map((98,), [draw.Piece("0", 0, 64), draw.Piece("1", 64, 98)], "add: stores"),
    "masked": lambda: draw.program_map((6,), [draw.Piece("0", 0, 6), draw.Piece("0", 6, 8, masked=True)], "tail"),
    "grid": lambda: draw.program_map((4, 8), [draw.Piece(str(r), 0, 8, r, r + 1) for r in range(4)], "rows"),
    "many": lambda: draw.program_map(
        (1 << 20,), [draw.Piece(str(i), 1024 * i, 1024 * (i + 1)) for i in range(1024)], "m"
    ),
    "bars": lambda: draw.bytes_bar({"five operations": {"square": 30, "mean": 20}, "fused": {"read": 10}}),
    "roofline": lambda: draw.roofline(
        [draw.Point("add", 1e6, 12e6, 4e-6), draw.Point("dot", 1e12, 1e8)], "MI300X", "bf16"
    ),
    "cache lines": lambda: draw.cache_lines(range(0, 128, 2)),
    "lanes": lambda: draw.lanes(1024),
    "reduction": lambda: draw.reduction(),
    "curves": lambda: draw.curves({"silu": torch.nn.functional.silu, "relu": torch.relu}, -4, 2),
    "fp8": lambda: draw.fp8_line(torch.float8_e4m3fn, torch.float8_e4m3fnuz),
}


@pytest.mark.parametrize("make", PICTURES.values(), ids=PICTURES)
def test_every_picture_is_small_well_formed_svg_with_tooltips_and_both_themes(make):
    picture = make()
    root = ElementTree.fromstring(picture.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("aria-label")
    assert len(picture.svg) < 40_000
    assert "<title>" in picture.svg
    assert "prefers-color-scheme:dark" in picture.svg and "--jp-content-font-color1" in picture.svg
    assert make().svg == picture.svg and str(picture) == repr(picture) == picture.text
    assert picture._repr_svg_() == picture.svg


@pytest.mark.parametrize("make", PICTURES.values(), ids=PICTURES)
def test_everything_lies_inside_the_picture(make):
    root = ElementTree.fromstring(make().svg)
    width, height = float(root.get("width")), float(root.get("height"))
    for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y = float(shape.get("x", 0)), float(shape.get("y", 0))
        assert x >= -0.1 and x + float(shape.get("width")) <= width + 0.2
        assert y >= 0 and y + float(shape.get("height")) <= height
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 < float(text.get("x")) <= width and 0 < float(text.get("y")) <= height


def test_equal_rows_become_one_tile():
    rows = [draw.Piece("0", 0, 4, r, r + 1) for r in range(3)] + [draw.Piece("0", 0, 2, 3, 4)]
    assert stack_rows(rows) == [draw.Piece("0", 0, 4, 0, 3), draw.Piece("0", 0, 2, 3, 4)]


def test_long_tensors_show_the_first_and_the_last_programs():
    text = str(PICTURES["many"]()).splitlines()
    assert text[1] == "  program 0: elements 0 to 1023" and text[-1] == "  program 1023: elements 1047552 to 1048575"
    assert len(text) < 15 and "  ..." in text


def test_an_axis_leaves_out_what_nobody_touches():
    axis = _Axis.of([(0, 10), (90, 100)], 0, 226)
    assert axis.at(0) == 0 and axis.at(10) == 100 and axis.at(90) == 126 and axis.at(100) == 226
    assert axis.gaps() == [113] and not axis.shows(50)


@pytest.mark.parametrize(
    "shape, pieces, words", [((2, 2, 2), [draw.Piece("0", 0, 1)], "one or two"), ((4,), [], "nothing")]
)
def test_a_map_of_nothing_is_refused(shape, pieces, words):
    with pytest.raises(ValueError, match=words):
        draw.program_map(shape, pieces, "x")


def test_the_end_of_a_strip_that_nobody_touches_is_drawn():
    short = [draw.Piece(str(i), 100 * i, 100 * i + 100) for i in range(4)]
    assert "elements 400 to 449: no program" in draw.program_map((450,), short, "x").svg
    assert "end: 450" in draw.program_map((450,), short, "x").svg
    for n in (400, 380, 900):  # all touched, a block beyond the end, far too long to draw
        assert "no program" not in draw.program_map((n,), short, "x").svg


def test_borders_inside_a_strip_are_marked_and_told():
    map_ = draw.program_map((1024,), [draw.Piece("0", 0, 768)], "x", {"end of z": 576, "scale begins": 640})
    assert "end of z: 576" in map_.svg and map_.svg.count('stroke-dasharray="5 3"') == 2
    assert str(map_).splitlines()[-2:] == ["  end of z: 576", "  scale begins: 640"]
    grid = draw.program_map((2, 8), [draw.Piece("0", 0, 8)], "x", {"head 1": 4})
    assert ">head 1: 4<" in grid.svg and str(grid).endswith("  head 1: 4")


def test_bars_say_how_much_is_saved():
    assert str(PICTURES["bars"]()).splitlines() == [
        "bytes moved",
        "  five operations: 50 B",
        "    square: 30 B",
        "    mean: 20 B",
        "  fused: 10 B (5 times less)",
        "    read: 10 B",
    ]
    with pytest.raises(ValueError, match="at least one bar and no negative"):
        draw.bytes_bar({"a": -1})


def test_the_roofline_says_which_roof_and_how_near():
    lines = str(PICTURES["roofline"]()).splitlines()
    assert lines[0] == "MI300X: 5.3 TB/s and 1307 TFLOP/s bf16"
    assert lines[1] == "  add: 0.0833 FLOP/byte, at least 2.26 us, limited by memory; measured 4 us (57% of the roof)"
    assert lines[2] == "  dot: 1e+04 FLOP/byte, at least 765 us, limited by compute"
    assert "Azure" in PICTURES["roofline"]().svg
    too_fast = draw.roofline([draw.Point("cached", 1e6, 12e6, 1e-6)])
    assert "above the roof" in str(too_fast)
    with pytest.raises(ValueError, match="needs points with bytes and flops"):
        draw.roofline([draw.Point("nothing", 0, 0)])


def test_a_grid_shows_all_its_tiles_and_says_what_it_leaves_out():
    def tiles(side):
        return [draw.Piece(f"({i}, {j})", j, j + 1, i, i + 1) for i in range(side) for j in range(side)]

    assert draw.program_map((7, 7), tiles(7), "x").svg.count("program (") == 7 * 7 + 2  # two in the legend
    assert "390 programs left out" in draw.program_map((20, 20), tiles(20), "x").svg


def test_text_is_escaped():
    canvas = Canvas()
    canvas.text(1, 10, "a < b & c")
    assert "a &lt; b &amp; c" in canvas.picture('"quoted"', "").svg
    ElementTree.fromstring(canvas.picture('"quoted"', "").svg)
