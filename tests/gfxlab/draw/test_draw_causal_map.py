"""The map of an attention's tiles: what was computed against what the rule asks for."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

import pytest
import torch
import triton

from course_kernels.attention import flash_attention_kernel
from gfxlab import draw
from gfxlab.tracing import trace

SVG = "{http://www.w3.org/2000/svg}"


def attention(seq_q, seq_k, causal=True, heads=2, block_n=16):
    """One sequence, query heads that share one head of keys, 16 queries a program."""
    q = torch.ones(1, heads, seq_q, 16)
    k, v = torch.ones(1, 1, seq_k, 16), torch.ones(1, 1, seq_k, 16)
    o, lse = torch.empty_like(q), torch.empty(1, heads, seq_q)
    strides = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3]
    blocks = {"BLOCK_M": 16, "BLOCK_N": block_n, "BLOCK_D": 16, "HEADS_AT_A_TIME": 1}
    with trace() as launch:
        flash_attention_kernel[(triton.cdiv(seq_q, 16) * heads, 1)](
            q, k, v, o, lse, *strides, 1, seq_q, seq_k, 0.25, GROUP=heads, HEAD_DIM=16, CAUSAL=causal, **blocks
        )
    return launch


def counts(picture):
    """Tiles by what the tooltip says of them."""
    rects = ElementTree.fromstring(picture.svg).iter(f"{SVG}rect")
    titles = [rect.find(f"{SVG}title") for rect in rects]
    return Counter(title.text.split(": ")[1].split(",")[0] for title in titles if title is not None)


@pytest.mark.parametrize(
    ("seq_q", "seq_k", "full", "partly", "skipped"),
    [
        (64, 64, 6, 4, 6),
        (50, 50, 6, 4, 6),  # the last tiles are of 2
        (32, 64, 5, 2, 1),  # aligned to the last key
        (1, 40, 3, 0, 0),  # a decoder's step sees everything
    ],
)
def test_a_causal_kernel_computes_what_is_seen_and_no_more(seq_q, seq_k, full, partly, skipped):
    picture = draw.causal_map(attention(seq_q, seq_k), head=1)
    lines = picture.text.splitlines()
    tiles = full + partly + skipped
    assert f"computed, every key seen: {full} of {tiles} tiles" in lines[1]
    assert ("  computed, partly seen: needs the mask: " in picture.text) == bool(partly)
    assert picture.svg.count("needs the mask") == partly + bool(partly)  # once in the legend
    assert counts(picture)["skipped"] == skipped
    assert "!" not in picture.text


def test_wider_blocks_of_keys_are_drawn_wider():
    picture = draw.causal_map(attention(64, 64, block_n=32))
    assert counts(picture)["skipped"] == 2 and picture.svg.count("needs the mask") == 4 + 1


def test_a_kernel_that_forgets_to_skip_shows():
    text = draw.causal_map(attention(48, 48, causal=False)).text
    assert "computed, though no key is seen: 3 of 9 tiles" in text
    assert "! queries 0 to 15, keys 16 to 31: computed, though no key is seen" in text


def test_a_kernel_that_skips_too_much_shows():
    picture = draw.causal_map(attention(48, 48), causal=False)
    assert "skipped, though some keys are seen: 3 of 9 tiles" in picture.text
    assert picture.svg.count("#D55E00") >= 2 * 3


def test_a_kernel_that_begins_too_late_shows():
    launch = attention(48, 48)[0]
    launch.accesses = [a for a in launch.accesses if a.tensor != "k_ptr" or a.elements.min() > 0]  # not the first block
    text = draw.causal_map(launch, head=1).text
    assert "skipped, though some keys are seen: 3 of 9 tiles" in text
    assert "! queries 32 to 47, keys 0 to 15: skipped" in text


def test_the_diagonal_has_a_step_for_each_query():
    (path,) = ElementTree.fromstring(draw.causal_map(attention(20, 20)).svg).iter(f"{SVG}path")
    points = [tuple(map(float, point.split())) for point in path.get("d")[1:].split("L")]
    assert len(points) == 2 * 20
    assert points[0] == (70 + 15, 62) and points[-1] == (70 + 300, 62 + 300)  # 15 pixels a query


def test_bad_questions_are_answered_in_a_sentence():
    launch = attention(16, 16)
    with pytest.raises(ValueError, match=r"leading dimensions \(1, 2\): there is no head 2"):
        draw.causal_map(launch, head=2)
    with pytest.raises(ValueError, match=r"there is no head \(1, 0\)"):
        draw.causal_map(launch, head=(1, 0))
    with pytest.raises(ValueError, match="no tensor 'keys'"):
        draw.causal_map(launch, k="keys")
