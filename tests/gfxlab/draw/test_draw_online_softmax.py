"""Online softmax step by step: what the kernel's variables held, and kernels that keep the wrong sum."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from course_kernels.attention import flash_attention
from course_kernels.softmax import softmax_long_kernel
from gfxlab import draw
from gfxlab.tracing import trace

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


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, seq_q, seq_k, first, scale, BASE: tl.constexpr, GUARD: tl.constexpr, BLOCK: tl.constexpr
):
    """Sums up each query's exponentials; grid: tiles of queries, heads. Query i sees keys from first + i on.

    Values are loaded together with the keys: at that moment `scores` are those of the turn before.
    """
    offs_m, offs_d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 16)
    head = tl.program_id(1)
    q = tl.load(q_ptr + (head * seq_q + offs_m)[:, None] * 16 + offs_d[None, :], mask=offs_m[:, None] < seq_q, other=0)
    row_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    row_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, seq_k, BLOCK):
        offs_n = start + tl.arange(0, BLOCK)
        k_ptrs = k_ptr + (head * seq_k + offs_n)[None, :] * 16 + offs_d[:, None]
        k = tl.load(k_ptrs, mask=offs_n[None, :] < seq_k, other=0)
        v = tl.load(v_ptr + head * seq_k + offs_n, mask=offs_n < seq_k, other=0)
        seen = (offs_n[None, :] >= first + offs_m[:, None]) & (offs_n[None, :] < seq_k)
        scores = tl.where(seen, tl.dot(q, k) * scale, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        centre = tl.where(new_max == -float("inf"), 0.0, new_max) if GUARD else new_max
        if BASE == 2:
            row_sum = row_sum * tl.exp2(row_max - centre) + tl.sum(tl.exp2(scores - centre[:, None]), axis=1)
        else:
            row_sum = row_sum * tl.exp(row_max - centre) + tl.sum(tl.exp(scores - centre[:, None]), axis=1)
        row_max = new_max
    tl.store(o_ptr + head * seq_q + offs_m, row_sum + 0 * tl.sum(v), mask=offs_m < seq_q)


Q, K = (torch.randn(2, n, 16, generator=torch.Generator().manual_seed(n)) for n in (20, 37))
WATCHED = ["scores", *NAMES]


def attention(k=K, first=0, base=math.e, guard=True, watch=WATCHED):
    tensors = Q, k, torch.ones(2, 37), torch.empty(2, 20)
    scale = 0.25 * (math.log2(math.e) if base == 2 else 1)
    with trace(watch=watch) as launch:
        attention_kernel[(2, 2)](*tensors, 20, 37, first, scale, BASE=base, GUARD=guard, BLOCK=16)
    return launch


@pytest.mark.parametrize("base", [math.e, 2])
def test_the_scores_of_an_attention_are_computed_not_loaded(base):
    frames = draw.online_softmax(attention(base=base), "k_ptr", scores="scores", base=base, program=(1, 1), row=2)
    name = "attention_kernel, program (1, 1): query 2 of its tile, a row of 37 keys in 3 blocks"
    assert frames.title == name and not frames.notes
    scores = (K[1] @ Q[1, 18] * 0.25)[18:]  # query 18 sees keys from 18 on
    assert frames[0].text.startswith("  keys 0 to 15: max stays -inf, sum 0 x 0 + 0 = 0")
    assert frames[2].text.startswith("  keys 32 to 36:")
    assert frames[2].text.endswith(f"= {(scores - scores.max()).exp().sum():.4g}")
    assert "key 36" in frames[2].svg and ("exp2(score - max)" if base == 2 else "exp(score - max)") in frames[2].svg


def test_a_block_of_which_a_query_sees_nothing_spoils_a_kernel_without_a_guard():
    frames = draw.online_softmax(attention(guard=False), "k_ptr", scores="scores", program=(1, 0), row=0)
    assert frames.notes == ("step 1: the kernel's sum is nan, that of the keys so far is 0",)


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]])  # the second: a maximum that is NaN
def test_what_is_nan_has_no_place_in_the_picture(names):
    launch = attention(k=K * torch.nan)
    frames = draw.online_softmax(launch, "k_ptr", scores="scores", row_max=names[0], row_sum=names[1])
    assert "that of the keys so far is nan" in frames.notes[0]
    assert not any('="nan' in picture.svg for picture in frames)


def test_an_attention_that_cannot_be_shown_says_why():
    with pytest.raises(ValueError, match="held no number named 'scores' after it loaded k_ptr"):
        draw.online_softmax(attention(watch=NAMES), "k_ptr", scores="scores")
    with pytest.raises(ValueError, match=r"scores has the shape \(16, 16\): there is no row 16"):
        draw.online_softmax(attention(), "k_ptr", scores="scores", row=16)
    with pytest.raises(ValueError, match="base is 10"):
        draw.online_softmax(attention(), "k_ptr", scores="scores", base=10)


def test_scores_of_a_function_that_ended_are_those_of_its_last_access():
    """The library's kernel masks the last keys in a second call of a function: its variables start anew."""
    with trace(watch=WATCHED) as launch:
        flash_attention(Q[None], K[None], K[None].clone(), sm_scale=math.log(2))  # log2 e times that is 1
    frames = draw.online_softmax(launch, "k_ptr", scores="scores", base=2, row=3)
    assert [picture.text.split(":")[0].strip() for picture in frames] == ["keys 0 to 31", "keys 32 to 36"]
    assert not frames.notes


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
