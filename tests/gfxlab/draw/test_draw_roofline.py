"""The roofline: a roof for each unit in use, any listed GPU, points from reports and from measurements."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from course_lab import bench
from gfxlab import draw, engines, hardware
from gfxlab.code.work import Work

SVG = "{http://www.w3.org/2000/svg}"
ADD = draw.Point("add", 1e6, 12e6, 4e-6)
DOT = draw.Point("dot", 1e12, 1e8, unit="bf16")


def dots(picture):
    """Where the dots of the plot stand, by their tooltip's name; those of the list below it are smaller."""
    circles = [c for c in ElementTree.fromstring(picture.svg).iter(f"{SVG}circle") if c.get("r") == "5"]
    return {c.find(f"{SVG}title").text.split(":")[0]: (float(c.get("cx")), float(c.get("cy"))) for c in circles}


def words(picture):
    return [text.text for text in _texts(picture)]


def _texts(picture):
    return list(ElementTree.fromstring(picture.svg).iter(f"{SVG}text"))


def test_every_unit_in_use_has_a_roof_of_its_own():
    picture = draw.roofline([ADD, DOT], "MI300X")
    assert {"163.4 TFLOP/s fp32", "1307 TFLOP/s bf16"} <= set(words(picture))
    assert "dot: 1e+04 FLOP/byte, at least 765 us, limited by compute" in picture.text
    assert "1307 TFLOP/s bf16" not in words(draw.roofline([ADD], "MI300X"))
    assert "limited by compute" in str(draw.roofline([replace(DOT, unit=None)], "MI300X", "bf16"))


def roof_names(picture):
    """The names of the flat roofs, each with the height of its text."""
    return [(t.text, float(t.get("y"))) for t in _texts(picture) if " TFLOP/s " in t.text and "TB/s" not in t.text]


def test_units_of_one_rate_share_a_roof():
    picture = draw.roofline([ADD, replace(DOT, unit="fp32 matrix")], "MI300X")
    assert [name for name, _ in roof_names(picture)] == ["163.4 TFLOP/s fp32, fp32 matrix"]


def test_the_names_of_near_roofs_do_not_cover_each_other():
    near = replace(hardware.card("MI300X"), fp32_matrix=1.05 * hardware.card("MI300X").fp32)
    (_, upper), (_, lower) = roof_names(draw.roofline([ADD, replace(DOT, unit="fp32 matrix")], near))
    assert lower - upper >= 12


def test_the_name_of_a_roof_leaves_room_for_a_point_on_it():
    picture = draw.roofline([draw.Point("at the right", 480e8, 1e8)], "MI300X")
    ((_, name),) = roof_names(picture)
    _title, number = (float(text.get("y")) for text in _texts(picture) if text.get("class") == "b")
    assert name < number - 8


@pytest.mark.parametrize("gpu", hardware.CARDS)
def test_every_listed_gpu_can_be_drawn(gpu):
    picture = draw.roofline([ADD, DOT], gpu)
    root = ElementTree.fromstring(picture.svg)
    assert picture.text.startswith(gpu)
    for x, y in dots(picture).values():
        assert 0 < x < float(root.get("width")) and 0 < y < float(root.get("height"))


def test_a_point_at_best_stands_on_the_roof_and_a_measured_one_below():
    best, half = replace(ADD, seconds=None), replace(ADD, name="half", seconds=2 * 12e6 / 5.3e12)
    found = dots(draw.roofline([best, half], "MI300X"))
    assert found["add"][0] == found["half"][0]
    decade = dots(draw.roofline([best, replace(best, name="tenth", seconds=10 * 12e6 / 5.3e12)], "MI300X"))
    lower = decade["tenth"][1] - decade["add"][1]
    assert lower == pytest.approx(270 / 6, rel=0.25)  # a tenth of the speed: about a decade of the axis
    assert found["half"][1] > found["add"][1]


def test_the_list_names_every_point_and_how_near_it_is():
    shown = words(draw.roofline([ADD, DOT], "MI300X"))
    assert "1  add (fp32), 57% of the roof" in shown and "2  dot (bf16)" in shown
    assert any(text.startswith("hollow: not measured") for text in shown)
    assert not any(text.startswith("hollow") for text in words(draw.roofline([ADD], "MI300X")))


def test_numbers_do_not_lie_on_each_other():
    picture = draw.roofline([replace(ADD, name=str(i)) for i in range(4)], "MI300X")
    places = [
        (float(text.get("x")), float(text.get("y")))
        for text in ElementTree.fromstring(picture.svg).iter(f"{SVG}text")
        if text.text in ("1", "2", "3", "4") and text.get("class") == "b"
    ]
    assert len(set(places)) == 4


def test_the_work_of_a_report_becomes_a_point():
    work = Work(1e6, "counted", vector=5e5, matrix=0, unit="", flops_from="counted")
    assert draw.Point.of_work("k", work) == draw.Point("k", 5e5, 1e6, None, "fp32")
    assert draw.Point.of_work("k", replace(work, matrix=4e9, unit="bf16"), 1e-3) == draw.Point(
        "k", 4e9, 1e6, 1e-3, "bf16"
    )


def test_a_measurement_becomes_a_point():
    figure = bench.Measurement("k", 1e-3, 1e-3, 1e-3, bytes=1e6, flops=1e9)
    assert draw.Point.measured(figure, "bf16") == draw.Point("k", 1e9, 1e6, 1e-3, "bf16")
    with pytest.raises(ValueError, match="give bench.time both bytes= and flops="):
        draw.Point.measured(replace(figure, flops=None))


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("AMD Instinct MI355X", "MI355X"),
        ("AMD Instinct MI250X / MI250", "MI250X (one die)"),
        ("AMD Radeon RX 7900 XTX", "RX 7900 XTX"),
        ("AMD Radeon RX 7900 XT", "MI300X"),  # not listed: as without a GPU
        (None, "MI300X"),
    ],
)
def test_the_gpu_of_this_machine_is_the_default(monkeypatch, device, name):
    monkeypatch.setattr(engines, "gpu", lambda: device and engines.Gpu(device, "gfx", "hip", 64))
    assert draw.roofline([ADD]).text.startswith(name + ":")


def test_a_unit_that_a_gpu_lacks_is_refused():
    with pytest.raises(ValueError, match="RX 7900 XTX has no unit 'fp8'"):
        draw.roofline([replace(DOT, unit="fp8")], "RX 7900 XTX")
