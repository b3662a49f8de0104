"""The walk of a matmul: which tiles a program loads, what programs share, and the kernels that get it wrong."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch
import triton

from course_kernels.matmul import matmul_kernel
from gfxlab import draw
from gfxlab.tracing import trace

SVG = "{http://www.w3.org/2000/svg}"


def product(m=64, n=64, k=32, group=1, xcds=1, programs=None, b=None):
    a, b, c = torch.ones(m, k), torch.ones(k, n) if b is None else b, torch.empty(m, n)
    programs = programs or triton.cdiv(m, 16) * triton.cdiv(n, 16)
    blocks = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": group, "XCDS": xcds}
    with trace() as launch:
        matmul_kernel[(programs,)](a, b, c, *a.stride(), *b.stride(), m, n, k, None, "ieee", **blocks)
    return launch


def labels(picture):
    return [text.text for text in ElementTree.fromstring(picture.svg).iter(f"{SVG}text")]


def boxes(picture, words):
    """x, y, width and height of the boxes whose tooltip begins so."""
    rects = ElementTree.fromstring(picture.svg).iter(f"{SVG}rect")
    told = [rect for rect in rects if rect.find(f"{SVG}title") is not None]
    named = [rect for rect in told if rect.find(f"{SVG}title").text.startswith(words)]
    return [tuple(float(rect.get(name)) for name in ("x", "y", "width", "height")) for rect in named]


def test_one_program_walks_a_row_of_a_and_a_column_of_b():
    walk = draw.tile_walk(product(), at_once=1)
    assert len(walk) == 16 and walk.title == "matmul_kernel, one program at a time: 64 loads of tiles"
    (a0, b0), (a1, b1) = (boxes(walk[6], f"step {step}") for step in (0, 1))  # program 6: second row, third column
    assert a1[0] == pytest.approx(a0[0] + a0[2], abs=0.2) and a1[1] == a0[1]
    assert b1[1] == pytest.approx(b0[1] + b0[3], abs=0.2) and b1[0] == b0[0]
    (c,) = boxes(walk[6], "program 6: rows 16 to 31, columns 32 to 47")
    assert c[1] == a0[1] and c[0] == b0[0]  # in line with its row of A and its column of B


@pytest.mark.parametrize(("group", "different"), [(1, 40), (2, 32)])
def test_a_square_of_tiles_shares_more_than_a_line(group, different):
    walk = draw.tile_walk(product(group=group), at_once=4)
    assert walk.title == f"matmul_kernel, 4 programs at a time: 64 loads of tiles, {different} if a round shares them"
    assert walk[0].text == f"  programs 0 to 3, 16 loads of tiles, {different // 4} different tiles"


@pytest.mark.parametrize(("order", "different"), [(1, 12), (2, 18)])
def test_dies_take_programs_in_turn(order, different):
    """2 rows of 8 tiles on two dies: a die gets every other column, or with the renaming a row."""
    walk = draw.tile_walk(product(m=32, n=128, xcds=order), at_once=8, xcds=2, xcd=1)
    assert len(walk) == 1 and " on die 1 of 2: " in walk.title
    assert walk[0].text == f"  programs 1, 3, 5 ... and 15, 32 loads of tiles, {different} different tiles"


def test_a_grid_that_is_too_small_leaves_tiles_unwritten():
    walk = draw.tile_walk(product(programs=14))
    assert walk.notes == ("512 elements of c_ptr are never written",)
    assert not {"14", "15"} & set(labels(walk[0])) and "13" in labels(walk[0])


def test_a_program_with_three_digits_keeps_its_number_in_a_narrow_tile():
    walk = draw.tile_walk(product(m=128, n=256, k=16), at_once=128)
    assert {"7", "99", "127"} <= set(labels(walk[0]))
    assert "font-size:8px" in walk[0].svg.split(">127<")[0][-60:]


def test_tiles_that_two_programs_store_are_named():
    """The dies share out their programs unevenly; an order that forgets this computes tiles twice."""
    launch = product()
    for access in launch.accesses:
        if access.tensor == "c_ptr" and access.program == (3, 0, 0):
            access.elements[:] -= 16  # as if it had stored the tile of program 2
    walk = draw.tile_walk(launch, at_once=16)
    assert walk.notes == ("tiles of c_ptr stored by more than one program: 1",)
    assert "2+3" in labels(walk[0])


def test_a_transposed_operand_is_drawn_as_it_is_indexed():
    walk = draw.tile_walk(product(b=torch.ones(64, 32).T), at_once=1)
    assert boxes(walk[6], "step 1")[1] == boxes(draw.tile_walk(product(), at_once=1)[6], "step 1")[1]


def test_bad_questions_are_answered_in_a_sentence():
    launch = product()
    with pytest.raises(ValueError, match="at_once must be 1 or more"):
        draw.tile_walk(launch, at_once=0)
    with pytest.raises(ValueError, match="xcd 8 of 8"):
        draw.tile_walk(launch, xcds=8, xcd=8)
    with pytest.raises(ValueError, match=r"a_ptr, a_ptr and c_ptr are 64 x 32, 64 x 32 and 64 x 64"):
        draw.tile_walk(launch, b="a_ptr")
    with pytest.raises(ValueError, match="no tensor 'w_ptr'"):
        draw.tile_walk(launch, b="w_ptr")
    with pytest.raises(ValueError, match="needs matrices"):
        draw.tile_walk(product(m=1), at_once=1)
