"""The heat map of reads: counts by element, gaps, cells of several elements, refusals."""

from __future__ import annotations

from xml.etree import ElementTree

import amd_kernels as kernels
import pytest
import torch
import triton
import triton.language as tl

from gfxlab import draw
from gfxlab.tracing import trace


@triton.jit
def window_kernel(x_ptr, y_ptr, n, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(WIDTH):
        total += tl.load(x_ptr + (offs + i) * stride, mask=offs + i < n, other=0.0)
    tl.store(y_ptr + offs, total, mask=offs < n)


def window(x, width=3, stride=1, n=None):
    n = len(x) if n is None else n
    with trace() as launch:
        window_kernel[(triton.cdiv(n, 8),)](x, torch.empty(n), n, stride, WIDTH=width, BLOCK=8)
    return launch


def test_each_level_is_counted():
    picture = draw.reuse_map(window(torch.zeros(20), n=18), "x_ptr")
    assert picture.text.splitlines() == [
        "window_kernel: how often each element of x_ptr is read (20 elements)",
        "  never: 2 of 20 elements",
        "  once: 1 of 20 elements",
        "  2 times: 1 of 20 elements",
        "  3 times: 16 of 20 elements",
        "  each element that is read at all: 2.83 times on average",
    ]
    ElementTree.fromstring(picture.svg)


def test_stores_are_counted_too_and_a_row_that_nobody_writes_shows():
    x, out = torch.zeros(64), torch.zeros(64)
    with trace() as launch:
        kernels.add[(1,)](x, x, out, 64, BLOCK=32)  # one program is missing
    text = draw.reuse_map(launch, "out_ptr", "store").text
    assert "never: 32 of 64 elements" in text and "once: 32 of 64 elements" in text


def test_the_gaps_of_a_strided_tensor_are_no_elements():
    x = torch.zeros(4, 16)[:, :10]
    with trace() as launch:
        window_kernel[(1,)](x, torch.empty(8), 8, 1, WIDTH=1, BLOCK=8)
    assert "(4 x 10 elements)" in draw.reuse_map(launch, "x_ptr").text
    assert "never: 32 of 40 elements" in draw.reuse_map(launch, "x_ptr").text
    assert "once: 8 of 8 elements" in draw.reuse_map(window(torch.zeros(16)[::2], width=1, stride=2), "x_ptr").text


def test_many_counts_become_ranges_and_large_tensors_cells():
    picture = draw.reuse_map(window(torch.zeros(3000), width=24), "x_ptr")
    assert "to" in picture.text.splitlines()[1] and len(picture.text.splitlines()) < 14
    assert len(picture.svg) < 20_000
    total = sum(int(line.split(": ")[1].split()[0].replace(",", "")) for line in picture.text.splitlines()[1:-1])
    assert total == 3000


def test_a_shape_as_wide_as_the_run_it_stands_for():
    """20 elements over the whole width: 3 columns never read, once or twice, the others in one run."""
    picture = draw.reuse_map(window(torch.zeros(20)), "x_ptr")
    runs = list(ElementTree.fromstring(picture.svg).iter("{http://www.w3.org/2000/svg}path"))
    assert [float(run.get("d").split("h")[1].split("v")[0]) for run in runs] == [32.6, 32.6, 586.8]


def test_what_is_not_there_is_named():
    launch = window(torch.zeros(8))
    with pytest.raises(ValueError, match="no tensor 'z_ptr'; it has x_ptr, y_ptr"):
        draw.reuse_map(launch, "z_ptr")
    with pytest.raises(ValueError, match="kind must be 'load' or 'store', got 'read'"):
        draw.reuse_map(launch, "x_ptr", "read")
