"""Pictures of lanes: who holds which element, and how many bytes move for those that are used."""

import pytest

from gfxlab import draw


def test_each_lane_holds_neighbours_and_the_block_wraps_around():
    picture = draw.lanes(1024, num_warps=4, wave_size=32, vector=4)
    assert "8 elements a lane, in 2 loads of 4" in picture.text
    assert "wave 3: elements 896 to 1023" in picture.svg  # the second round ends with the last wave
    assert "lane 31 holds element 127" in picture.svg


def test_a_block_that_leaves_lanes_empty_is_refused():
    with pytest.raises(ValueError, match="64 elements do not fill 4 waves of 64 lanes with 1 elements each"):
        draw.lanes(64, num_warps=4, vector=1)


@pytest.mark.parametrize(("stride", "lines", "used"), [(1, 2, "100%"), (2, 4, "50%"), (576, 64, "3%")])
def test_a_stride_costs_lines(stride, lines, used):
    picture = draw.cache_lines([stride * lane for lane in range(64)])
    assert f"{lines} lines of 128 bytes" in picture.text
    assert used in picture.text


def test_masked_lanes_and_lanes_on_one_element_move_nothing_more():
    picture = draw.cache_lines([-1, 5, 5, -1], itemsize=2)
    assert "1 line of 128 bytes" in picture.text
    assert "used 2 of the 128 bytes" in picture.text
