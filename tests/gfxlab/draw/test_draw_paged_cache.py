"""The picture of a paged cache: tokens through the block table, slots of an update, and what should not be touched."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch

from course_kernels import paged_decode_attention, paged_kv_cache_update
from gfxlab import draw
from gfxlab.tracing import trace

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def decode():
    """Two sequences of 11 and 4 tokens in pages of 8."""
    cache = torch.zeros(6, 8, 1, 16)
    table, lengths = torch.tensor([[4, 1], [2, -1]], dtype=torch.int32), torch.tensor([11, 4], dtype=torch.int32)
    with trace() as launch:
        paged_decode_attention(torch.zeros(2, 2, 16), cache, cache.clone(), table, lengths)
    return launch


@pytest.fixture
def lengths(decode):
    """The sequences' lengths, put back afterwards."""
    tensor = decode.tensor("seq_lens_ptr")
    before = tensor.clone()
    yield tensor
    tensor.copy_(before)


def update(slots, layout="flash"):
    caches = {
        "flash": [torch.zeros(6, 8, 1, 16) for _ in range(2)],
        "packed": [torch.zeros(6, 1, 4, 8, 4), torch.zeros(6, 1, 16, 8)],
    }[layout]
    new = torch.ones(len(slots), 1, 16)
    with trace() as launch:
        paged_kv_cache_update(None, new, new, *caches, torch.tensor(slots), None, None, None, layout=layout)
    return launch


def tips(picture):
    found = ElementTree.fromstring(picture.svg).iter(f"{SVG}title")
    return [title.text for title in found]


def test_tokens_lie_where_the_block_table_says(decode):
    picture = draw.paged_cache(decode)
    assert picture.text.splitlines() == [
        "paged_decode_kernel: slots of k_cache_ptr that are read (6 pages of 8)",
        "  sequence 0: 11 tokens in pages 4, 1",
        "  sequence 1: 4 tokens in pages 2",
        "  read: 15 slots; expected: 15",
    ]
    assert "page 1, place 2: token 10 of sequence 0, read" in tips(picture)
    assert "tokens 8 to 10 of sequence 0: page 1" in tips(picture)
    assert sum(", read" in tip for tip in tips(picture)) == 15
    assert "past the length: must not be used" in picture.svg and "#D55E00" not in picture.svg


def test_a_kernel_that_reads_past_the_length_shows(decode, lengths):
    lengths[0] = 9  # the kernel was told 11
    picture = draw.paged_cache(decode)
    assert "! page 1, place 1: read, though no token lies there" in picture.text
    assert sum("nobody's, read" in tip for tip in tips(picture)) == 2
    assert "read, though no token lies there" in picture.svg


def test_a_kernel_that_stops_early_shows(decode, lengths):
    lengths[1] = 7
    text = draw.paged_cache(decode).text
    assert "read: 15 slots; expected: 18" in text
    assert "! page 2, place 4: not read, though token 4 of sequence 1 lies there" in text


def test_many_wrong_slots_are_counted(decode, lengths):
    lengths[0] = 2
    assert "  ! and 5 more slots" in draw.paged_cache(decode).text


def test_a_length_beyond_the_blocks_is_refused(decode, lengths):
    lengths[0] = 17
    with pytest.raises(ValueError, match="sequence 0 has 17 tokens, but 2 pages of 8 have room for 16"):
        draw.paged_cache(decode)


@pytest.mark.parametrize(("layout", "slot_dim"), [("flash", 1), ("packed", 3)])
def test_an_update_writes_the_slots_of_the_mapping(layout, slot_dim):
    picture = draw.paged_cache(update([8, -1, 47], layout), slot_mapping="slots_ptr", slot_dim=slot_dim)
    assert picture.text.splitlines()[1] == "  written: 2 slots; expected: 2"
    assert "page 1, place 0: token 0, written" in tips(picture)
    assert "page 5, place 7: token 2, written" in tips(picture)


def test_sequences_may_share_a_block(decode):
    table = decode.tensor("block_table_ptr")
    before = table.clone()
    table[1, 0] = 4
    assert "page 4, place 3: token 3 of sequence 0, token 3 of sequence 1, read" in tips(draw.paged_cache(decode))
    table.copy_(before)


def test_everything_lies_inside_the_picture_however_large_the_cache():
    cache = torch.zeros(80, 32, 1, 16)
    slots = torch.arange(4) * 640
    with trace() as launch:
        paged_kv_cache_update(
            None, torch.ones(4, 1, 16), torch.ones(4, 1, 16), cache, cache.clone(), slots, *[None] * 3
        )
    root = ElementTree.fromstring(draw.paged_cache(launch, slot_mapping="slots_ptr").svg)
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.get("x")) + float(rect.get("width")) <= float(root.get("width"))
        assert float(rect.get("y")) + float(rect.get("height")) <= float(root.get("height"))
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert {"page 0", "page 20", "page 40", "page 60"} <= set(words) and "and 48 more pages" in words


def test_what_is_not_there_is_named(decode):
    with pytest.raises(ValueError, match="no tensor 'slots'"):
        draw.paged_cache(decode, slot_mapping="slots")
    with pytest.raises(ValueError, match="no store of k_cache_ptr was recorded"):
        draw.paged_cache(decode, slot_mapping="block_table_ptr")
