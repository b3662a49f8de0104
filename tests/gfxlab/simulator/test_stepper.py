"""The walk of one wave: what is recorded, how it is told, how it is shown."""

import dataclasses
import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gfxlab.engine import dual_mode
from gfxlab.simulator import step
from gfxlab.simulator.show import stepper_view
from gfxlab.simulator.show.steps import Touch
from gfxlab.simulator.watch import readings

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")
N = 300


@triton.jit
def scaled_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    total = tl.sum(x, axis=0)
    tl.store(y_ptr + offs, x * total, mask=offs < n)


@triton.jit
def loop_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + start + offs)
    tl.store(y_ptr + offs, total)


@triton.jit
def careless_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs) + 1)


def walk(arch="gfx942", **options):
    x = torch.arange(N, dtype=torch.float32) + 0.5
    options = {"program": (1,), "num_warps": 2, **options}
    return step(scaled_sum_kernel, (2,), (x, torch.zeros(N), N), arch=arch, BLOCK=256, **options)


def register(frame, name):
    (found,) = [vector for vector in frame.vectors if vector.name == name]
    return found


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_walk_goes_from_the_first_instruction_to_the_end(arch):
    frames = walk(arch).frames
    assert [frame.number for frame in frames] == list(range(len(frames)))
    assert frames[0].instruction.index == 0
    assert frames[-1].instruction.mnemonic == "s_endpgm"
    assert frames[-1].following is None
    assert all(frame.following == after.instruction.index for frame, after in zip(frames, frames[1:]))
    assert {len(vector.after) for frame in frames for vector in frame.vectors} == {64 if arch == "gfx942" else 32}


def test_the_tensors_stay_as_they_are_and_so_do_views_of_one_storage():
    memory = torch.zeros(64)
    x, y = memory[:32], memory[16:48]
    frames = step(careless_kernel, (1,), (x, y), BLOCK=32, num_warps=1).frames
    assert (memory == 0).all()
    load, store = (frame.touches[0] for frame in frames if frame.touches)
    assert store.address[0] - load.address[0] == 16 * 4  # the copies overlap as the originals do


def test_a_load_shows_the_values_the_lanes_and_the_tensor():
    frame = next(frame for frame in walk() if frame.touches)
    touch = frame.touches[0]
    assert (touch.kind, touch.tensor, touch.dtype) == ("load", "x_ptr", torch.float32)
    on = np.flatnonzero(touch.active)
    assert "tl.load(x_ptr" in frame.code
    first = next(v for v in frame.vectors if v.written)
    read = readings.read(first.after, first.kind)
    np.testing.assert_array_equal(read.numbers[on], touch.elements[on] + 0.5)
    low, high = touch.elements[on].min(), touch.elements[on].max()
    assert f"{len(on)} lanes read element" in frame.sentence
    assert low == 256 and high < N
    assert re.search(r"of x_ptr: \d+ lines? of 128 bytes", frame.sentence)


def test_written_registers_are_told_from_those_read():
    frame = next(frame for frame in walk() if frame.instruction.mnemonic == "v_add_f32_dpp")
    result, left, right = (operand.text for operand in frame.instruction.operands[:3])
    assert [vector.name for vector in frame.vectors if vector.written] == [result]
    assert {vector.name for vector in frame.vectors} == {result, left, right}
    vector = register(frame, result)
    assert vector.changed.any()
    assert vector.kind == "f32"


def test_lds_is_mapped_with_who_wrote_it():
    touching = [frame for frame in walk() if frame.lds is not None]
    write, read = touching[0], touching[-1]
    assert write.touches[0].kind == "store" and read.touches[0].kind == "load"
    assert set(read.lds.tolist()) == {0, 1}  # both waves of the program have written by then
    assert "of LDS" in read.sentence
    html = walk()._repr_html_()
    assert 'aria-label="map of LDS"' in html
    assert "wave 1" in html


@pytest.mark.parametrize("arch, banks", [("gfx942", 32), ("gfx950", 64)])
def test_a_row_of_the_map_of_lds_is_one_word_of_each_bank(arch, banks):
    lds = np.full(2 * banks + 1, -1)
    lds[banks] = 1  # the first word of the second row
    touch = Touch("load", "LDS", np.arange(banks) * 4 + 4, np.ones(banks, bool), 4)
    frame = dataclasses.replace(walk(arch)[0], touches=(touch,), lds=lds)
    html = stepper_view.walk_html(dataclasses.replace(walk(arch), frames=(frame,)))
    cell = 512 // banks
    assert f"LDS, a row of {banks} banks a line" in html
    assert f'd="M0 15h{cell}v12h-{cell}z" fill=' in html  # written by wave 1
    assert f'd="M{cell} 1h{512 - cell}v12h-{512 - cell}z" class="mine"' in html
    assert f'd="M0 15h{cell}v12h-{cell}z" class="mine"' in html


def test_a_wave_of_its_own_is_followed():
    first, second = (next(f for f in walk(program=(0,), wave=w) if f.touches).touches[0].elements for w in (0, 1))
    assert not set(first.tolist()) & set(second.tolist())


def test_exec_and_vcc_are_shown_by_the_lane():
    compare = next(frame for frame in walk() if frame.instruction.mnemonic.startswith("v_cmp"))
    assert 0 < compare.vcc.sum() < 64
    assert f"{int(compare.vcc.sum())} of 64" in str(compare)


def test_a_loop_is_walked_as_often_as_it_runs_and_the_jump_says_so():
    frames = step(loop_kernel, (1,), (torch.ones(256), torch.zeros(64), 256), BLOCK=64, num_warps=1).frames
    loads = [frame for frame in frames for touch in frame.touches if touch.kind == "load"]
    assert len(loads) == 4
    said = [frame.sentence for frame in frames if frame.instruction.mnemonic.startswith("s_cbranch")]
    assert sum("Taken: the walk goes back" in sentence for sentence in said) == 3


def test_by_line_joins_what_belongs_to_one_line():
    single, lines = walk(), walk(by="line")
    assert sum(len(frame.instructions) for frame in lines) == len(single)
    assert all(a.line != b.line for a, b in zip(lines, lines[1:]))
    frame = max(lines.only("tl.sum"), key=lambda frame: len(frame.instructions))
    assert f"{len(frame.instructions)} instructions: " in frame.sentence
    names = [vector.name for vector in frame.vectors]
    assert len(names) == len(set(names))
    parts = single[[f.instruction for f in single].index(frame.instruction) :][: len(frame.instructions)]
    for vector in frame.vectors:
        steps = [v for part in parts for v in part.vectors if v.name == vector.name]
        np.testing.assert_array_equal(vector.before, steps[0].before)
        np.testing.assert_array_equal(vector.after, steps[-1].after)


def test_a_fault_is_the_last_frame_and_the_note():
    found = step(careless_kernel, (2,), (torch.zeros(100), torch.zeros(100)), BLOCK=64, program=(1,), num_warps=1)
    assert "element 100 of x_ptr, past the end" in found.note
    assert "load" in found[-1].instruction.mnemonic
    assert found.note in str(found)
    assert "past the end" in found._repr_html_()


def test_the_limit_says_that_the_walk_was_cut():
    found = walk(limit=7)
    assert len(found) == 7
    assert "cut after 7 instructions" in found.note


def test_bad_questions_are_answered_in_a_sentence():
    with pytest.raises(ValueError, match=r"program \(2, 0, 0\) is not in the grid \(2, 1, 1\)"):
        walk(program=(2,))
    with pytest.raises(ValueError, match="2 waves .* got wave=2"):
        walk(wave=2)
    with pytest.raises(ValueError, match="by must be"):
        walk(by="lines")
    with pytest.raises(ValueError, match="contains 'tl.dot'"):
        walk().only("tl.dot")


def test_a_part_of_a_walk_is_a_walk():
    part = walk()[3:6]
    assert [frame.number for frame in part] == [3, 4, 5]
    assert "3 steps" in str(part)
    loads, stores = walk().only("_load_"), walk().only("tl.store")
    assert len(walk().only("_load_", "tl.store")) == len({f.number for f in (*loads, *stores)})
    assert part._repr_html_().count('class="frame"') == 3


def test_a_long_walk_says_what_it_leaves_out(monkeypatch):
    monkeypatch.setattr(stepper_view, "MOST_FRAMES", 4)
    found = walk()
    html = found._repr_html_()
    assert html.count('class="frame"') == 4
    assert f"4 of {len(found)} steps are shown" in html


def test_the_slider_shows_the_frame_it_stands_at():
    found = walk()
    handle, page = found.slider().children
    assert handle.max == len(found) - 1
    handle.value = 5
    assert "step 5 (6 of" in page.value
    assert found[5].instruction.text in page.value.replace("&gt;", ">")


def test_without_ipywidgets_the_slider_is_the_strip(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ipywidgets", None)
    found = walk()[:2]
    assert found.slider() is found


# ---- readings and strips ---------------------------------------------------------------------------------------------


def bits(values, dtype=np.float32):
    return np.array(values, dtype).view(np.uint32)


def test_bits_are_read_as_what_they_look_like():
    assert readings.read(bits([1.5, -2.0, 0.0])).texts == ("1.5", "-2", "0")
    assert readings.read(bits([7, -1, 0], np.int32)).texts == ("7", "-1", "0")
    assert readings.read(np.array([0x3F803FC0], np.uint32), "bf16").texts == ("1.5|1",)
    assert readings.read(np.array([0x3C003E00], np.uint32), "f16").texts == ("1.5|1",)
    assert readings.read_scalar(0x3F800000) == "1"
    assert readings.read_scalar(1 << 40) == "0x10000000000"


def test_a_summary_is_short_and_honest():
    everywhere = np.ones(4, bool)
    assert readings.read(bits([2.0] * 4)).summary(everywhere) == "2 in every lane"
    assert readings.read(bits([1.0, 2, 3, 4])).summary(np.array([True, True, False, False])) == "1, 2"
    poison = np.full(4, readings.POISON)
    assert readings.read(poison).summary(everywhere) == "not written yet"


def test_strips_rank_the_lanes_and_mark_what_is_no_number():
    reading = readings.read(bits([0.0, 7.0, float("nan"), 3.5, 1.0]), "f32")
    on = np.array([True, True, True, True, False])
    assert stepper_view.levels(reading, on).tolist() == [0, 7, -3, 4, -1]
