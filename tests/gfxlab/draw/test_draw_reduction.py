"""The picture of a reduction: which lanes still hold something that is needed, step by step."""

import pytest

from gfxlab import draw


@pytest.mark.parametrize(("lanes", "partial_sums"), [(64, [64, 32, 16, 8, 4, 2, 1]), (32, [32, 16, 8, 4, 2, 1])])
def test_each_step_halves_the_partial_sums(lanes, partial_sums):
    lines = str(draw.reduction(lanes=lanes, waves=1)).splitlines()
    assert [int(line.split(": ")[-1].split()[0]) for line in lines] == partial_sums


def test_only_several_waves_go_through_lds():
    assert "LDS" not in draw.reduction(waves=1).svg
    picture = draw.reduction(waves=4)
    assert "LDS, 16 bytes" in picture.svg and "barrier" in str(picture)


def test_other_waves_are_refused():
    with pytest.raises(ValueError, match="got 4 of 48"):
        draw.reduction(lanes=48)
