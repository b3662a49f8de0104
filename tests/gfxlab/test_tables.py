"""One table as text, HTML and Markdown; the geometry of strides and the names of programs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from gfxlab.latest import Latest
from gfxlab.programs import format_grid, format_program, place
from gfxlab.strides import Strided
from gfxlab.tables import Table
from gfxlab.units import unbroken

TABLE = Table([("x_ptr", "4,096"), ("a|b", "7")], ("tensor", "bytes"), numbers=1, marked=[1])


def test_text_lines_columns_up_and_marks_rows():
    assert TABLE.text("  ").splitlines() == ["     tensor  bytes", "     x_ptr   4,096", "  *  a|b         7"]
    assert str(Table([("a", "bb"), ("ccc", "")])) == "a    bb\nccc"
    assert str(Table([])) == ""


def test_no_line_ends_between_a_number_and_its_unit():
    assert "12.6\u00a0us, 170\u00a0TFLOP/s" in Table([("ours", "12.6 us, 170 TFLOP/s")], numbers=1).html()
    kept = "took 73\u00a0µs, 54\u00a0% of 200\u00a0000, 37\u00a0×\u00a01536 at 5.3\u00a0TB/s in 2 sums"
    assert unbroken("took 73\nµs, 54 % of 200 000, 37 × 1536 at 5.3 TB/s in 2 sums") == kept


def test_html_escapes_and_shades_marked_rows():
    html = Table([("<x>", "1"), ("  y", "2")], ("", "n"), numbers=1, marked=[1]).html()
    assert html == (
        '<table><tr><th></th><th class="n">n</th></tr><tr><th>&lt;x&gt;</th><td class="n">1</td></tr>'
        '<tr class="on"><th>&#160;&#160;y</th><td class="n">2</td></tr></table>'
    )


def test_a_cell_leads_where_it_is_told_to_in_html_alone():
    table = Table([("a & b", "1")], links={"a & b": 'x.html?a=1&b="2"'})
    assert '<th><a href="x.html?a=1&amp;b=&quot;2&quot;">a &amp; b</a></th>' in table.html()
    assert table.text() == "a & b  1" and "x.html" not in table.markdown()


def test_markdown_keeps_a_bar_inside_its_cell():
    assert TABLE.markdown().splitlines() == [
        "| tensor | bytes |",
        "|---|---:|",
        "| x_ptr | 4,096 |",
        "| a\\|b | 7 |",
    ]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"a row of 1 cells in a table of 2 columns: \('a',\)"):
        Table([("a",)], ("x", "y"))


# ---- strided geometry ------------------------------------------------------------------------------------------------

TENSORS = {
    "dense": torch.zeros(3, 4),
    "rows apart": torch.zeros(3, 8)[:, :5],
    "every second": torch.zeros(12)[1::2],
    "transposed": torch.zeros(4, 3).T,
    "expanded": torch.zeros(4).expand(3, 4),
    "outer expanded, rows apart": torch.zeros(1, 3, 8)[..., :5].expand(2, 3, 5),
    "one element": torch.zeros(()),
    "empty": torch.zeros(0, 4),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_geometry_is_that_of_counting_every_element(tensor):
    shape, steps = tuple(tensor.shape), tensor.stride()
    places = {sum(i * step for i, step in zip(index, steps)) for index in itertools.product(*map(range, shape))}
    strided = Strided.of(tensor)
    assert strided.span == max(places, default=-1) + 1
    assert set(np.flatnonzero(strided.exists())) == places
    assert strided.dense == (len(places) == strided.span)
    around = np.arange(-3, strided.span + 3)
    assert set(around[strided.contains(around)]) == places
    found = np.array(sorted(places), dtype=np.int64)
    indices = strided.indices(found)
    assert (sum((i * step for i, step in zip(indices, steps)), np.zeros_like(found)) == found).all()


# ---- names of programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "grid", "name"),
    [
        ((3, 0, 0), (8, 1, 1), "3"),
        ((3, 0, 0), (8, 2, 1), "(3, 0)"),
        ((0, 0, 0), (1, 1, 2), "(0, 0, 0)"),
        ((3, 0, 0), None, "3"),
        ((0, 2, 0), None, "(0, 2)"),
        ((0, 0, 1), None, "(0, 0, 1)"),
    ],
)
def test_a_program_has_as_many_numbers_as_its_grid_has_dimensions(program, grid, name):
    assert format_program(program, grid) == name
    assert format_program(np.array(program), grid) == name


def test_numbers_of_programs_count_x_fastest():
    assert [place(number, (2, 3, 2)) for number in (0, 1, 2, 7)] == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 0, 1)]
    assert [format_grid(grid) for grid in ((1, 1, 1), (4, 1, 1), (4, 2, 1), (1, 1, 3))] == [
        *("1", "4", "4 x 2", "1 x 1 x 3")
    ]


# ---- the latest answers ----------------------------------------------------------------------------------------------


def test_the_oldest_answer_is_forgotten_and_none_is_found_twice():
    asked = []
    latest = Latest(2)
    for question in "aabcca":
        assert (
            latest.get(question, lambda question=question: asked.append(question) or question.upper())
            == question.upper()
        )
    assert asked == ["a", "b", "c", "a"] and len(latest) == 2
    with pytest.raises(ZeroDivisionError):
        latest.get("d", lambda: 1 // 0)
    assert latest.get("d", lambda: 4) == 4
