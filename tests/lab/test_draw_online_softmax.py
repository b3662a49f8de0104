"""Online softmax step by step: what the kernel's variables held, and kernels that keep the wrong sum."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from course_kernels.softmax import softmax_long_kernel
from course_lab import draw
from course_lab.trace import trace

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["row_max", "row_sum"]


@triton.jit
def online_kernel(x_ptr, y_ptr, rows, cols, RESCALE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, cols, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m < rows)[:, None] & (offs_n < cols)[None, :]
        x = tl.load(x_ptr + offs_m[:, None] * cols + offs_n[None, :], mask=mask, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        if RESCALE:
            row_sum = row_sum * tl.exp(row_max - new_max)
        row_sum += tl.sum(tl.exp(x - new_max[:, None]), axis=1)
        row_max = new_max
    tl.store(y_ptr + offs_m, row_sum, mask=offs_m < rows)


@triton.jit
def scalar_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row_max = -float("inf")
    row_sum = 0.0
    for start in range(0, cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < cols, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(x - new_max), axis=0)
        row_max = new_max
    tl.store(y_ptr, row_sum / row_sum)


X = torch.tensor([[0.0, 1, 0, 0, 3, 1, 2, 2, 1, 0], [5.0, 0, 0, 0, 0, 0, 0, 0, 0, 0]])


def online(rescale=True, watch=NAMES):
    with trace(watch=watch) as launch:
        online_kernel[(1,)](X, torch.empty(2), 2, 10, RESCALE=rescale, BLOCK_M=2, BLOCK_N=4)
    return launch


def test_each_step_tells_what_the_kernel_held():
    frames = draw.online_softmax(online())
    assert frames.title == "online_kernel, program 0: a row of 10 elements in 3 blocks" and not frames.notes
    first, second = 3 * math.exp(-1) + 1, 1 + math.exp(-2) + 2 * math.exp(-1)
    total = first * math.exp(-2) + second
    assert frames[0].text == f"  elements 0 to 3: max -inf -> 1, sum 0 x 0 + {first:.4g} = {first:.4g}"
    expected = f"  elements 4 to 7: max 1 -> 3, sum {first:.4g} x {math.exp(-2):.3g} + {second:.4g} = {total:.4g}"
    assert frames[1].text == expected
    assert "max stays 3" in frames[2].text
    other = draw.online_softmax(online(), row=1)
    assert "elements 0 to 3: max -inf -> 5" in other[0].text and not other.notes


def test_a_kernel_that_forgets_to_rescale_shows():
    frames = draw.online_softmax(online(rescale=False))
    assert frames.notes[0].startswith("step 2: the kernel's sum is 3.975, that of the elements so far is")
    assert "but the kernel holds 3.975" in frames[1].svg and "#D55E00" in frames[1].svg
    assert "!" not in frames[0].text and "#D55E00" not in frames[0].svg


def test_bars_are_as_high_as_exponentials():
    """The picture's second region of a kind: exp(x - max), the largest being 70 pixels high."""
    root = ElementTree.fromstring(draw.online_softmax(online())[0].svg)
    (bars,) = (
        path.get("d")
        for path in root.iter(f"{SVG}path")
        if path.find(f"{SVG}title") is not None and path.find(f"{SVG}title").text == "exp(x - max), this block"
    )
    heights = [float(bar.split("v")[1].split("h")[0]) for bar in bars.split("M")[1:]]
    assert heights == pytest.approx(70 * np.exp(X[0, :4].numpy() - 1), abs=0.1)


def test_numbers_of_one_row_and_a_second_pass():
    with trace(watch=NAMES) as launch:
        scalar_kernel[(1,)](X, torch.empty(1), 10, BLOCK=4)
    assert draw.online_softmax(launch).pictures == draw.online_softmax(online()).pictures


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lanes_with_a_maximum_each_are_joined_and_the_second_pass_left_out(dtype):
    x = X.to(dtype)
    with trace(watch=["lane_max", "lane_sum"]) as launch:
        softmax_long_kernel[(2,)](x, torch.empty_like(x), 10, 10, BLOCK_N=4)
    frames = draw.online_softmax(launch, row_max="lane_max", row_sum="lane_sum", program=1)
    assert len(frames) == 3 and not frames.notes
    assert frames[2].text.endswith(f"= {1 + 9 * math.exp(-5):.4g}")


def test_what_cannot_be_shown_is_said():
    with pytest.raises(ValueError, match=r"held no number named 'row_max'.*trace\(watch=\['row_max', 'row_sum'\]\)"):
        draw.online_softmax(online(watch=()))
    with pytest.raises(ValueError, match="held no number named 'm'.*watched: row_max, row_sum"):
        draw.online_softmax(online(), row_max="m")
    with pytest.raises(ValueError, match="program 7 loaded nothing of x_ptr"):
        draw.online_softmax(online(), program=7)
    with pytest.raises(ValueError, match="a block has 2 rows: there is no row 2"):
        draw.online_softmax(online(), row=2)
    with pytest.raises(ValueError, match="no tensor 'z_ptr'"):
        draw.online_softmax(online(), x="z_ptr")


@triton.jit
def load_next(x_ptr, offs):
    offs += 1
    return tl.load(x_ptr + offs)


@triton.jit
def two_names_kernel(x_ptr, y_ptr):
    offs = tl.arange(0, 4)
    tl.store(y_ptr + offs, load_next(x_ptr, offs))


def test_of_two_variables_of_a_name_the_inner_one_is_read():
    with trace(watch=["offs"]) as launch:
        two_names_kernel[(1,)](X, torch.empty(4))
    assert [held["offs"].tolist() for held in launch.watched] == [[1, 2, 3, 4], [0, 1, 2, 3]]


def test_variables_are_read_in_the_innermost_function_that_has_them():
    """In the long softmax x is loaded by a helper: its own `offs` hides the kernel's `offs_n`."""
    with trace(watch=["offs", "offs_n", "nobody", "start"]) as launch:
        softmax_long_kernel[(1,)](X, torch.empty_like(X), 10, 10, BLOCK_N=4)
    held = launch.watched[1]
    assert held["offs"].tolist() == held["offs_n"].tolist() == [4, 5, 6, 7]
    assert held["start"] == 4 and "nobody" not in held
    assert len(launch.watched) == len(launch.accesses)
