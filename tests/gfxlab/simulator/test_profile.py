"""What a simulated launch counts, against figures worked out by hand."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from assembly import launch

from gfxlab.engine import dual_mode
from gfxlab.simulator import simulate
from gfxlab.simulator.watch import traffic

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")
KIB = 1024


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)


@triton.jit
def every_nth_kernel(x_ptr, out_ptr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs * STEP))


@triton.jit
def count_kernel(out_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(out_ptr + tl.arange(0, BLOCK) // BLOCK, 1)


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, SIDE: tl.constexpr):
    rows, cols = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    place = rows * SIDE + cols
    tl.store(out_ptr + place, tl.dot(tl.load(a_ptr + place), tl.load(b_ptr + place)))


def add(n=4096, arch="gfx942", **options):
    x, y, out = (torch.randn(4096) for _ in range(3))
    return simulate(add_kernel, (4,), (x, y, out, n), BLOCK=1024, arch=arch, **options)


# ---- global memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100"])
def test_vector_add_moves_each_byte_once(arch):
    run = add(arch=arch)
    assert (run.loads.bytes, run.loads.least) == (32 * KIB, 32 * KIB)
    assert (run.stores.bytes, run.stores.least) == (16 * KIB, 16 * KIB)
    assert (run.loads.segments, run.loads.lines, run.loads.coalescing) == (512, 256, 1.0)
    assert (run.stores.segments, run.stores.lines, run.stores.coalescing) == (256, 128, 1.0)
    assert run.loads.tensors == {"x_ptr": (16 * KIB, 16 * KIB), "y_ptr": (16 * KIB, 16 * KIB)}
    assert run.loads.accesses == 2 * 16 * KIB // (16 * run.program.lanes)  # of 16 bytes a lane
    assert run.notes == ()


def test_lanes_that_a_mask_switches_off_move_nothing():
    run = add(n=4000)
    assert (run.loads.bytes, run.stores.bytes, run.stores.least) == (32_000, 16_000, 16_000)
    assert run.stores.segments == 16_000 // 64


def test_lanes_that_take_every_fourth_word_touch_four_times_the_segments():
    run = add(n=1000)  # no multiple of 16: four accesses of a word each instead of one of 16 bytes
    assert (run.stores.accesses, run.stores.bytes) == (4 * 16, 4000)
    assert run.stores.segments == 4 * -(-1000 * 4 // 64)


def test_lanes_64_bytes_apart_touch_a_segment_each():
    x, out = torch.randn(64 * 16), torch.empty(64)
    run = simulate(every_nth_kernel, (1,), (x, out), STEP=16, BLOCK=64, num_warps=1)
    assert (run.loads.accesses, run.loads.segments, run.loads.lines) == (1, 64, 32)
    assert run.loads.coalescing == 4 / 64
    assert (run.loads.bytes, run.loads.least) == (256, 256)
    assert any("loads from 64 segments of 64 bytes where 4 would do" in note for note in run.notes)


def test_what_all_programs_read_counts_once_for_the_least():
    x, out = torch.randn(64), torch.empty(64)
    run = simulate(every_nth_kernel, (3,), (x, out), STEP=1, BLOCK=64, num_warps=1)
    assert run.loads.tensors == {"x_ptr": (3 * 256, 256)}
    assert "x_ptr: each byte is loaded 3 times; only a cache can save that." in run.notes


def test_an_atomic_counts_once_however_many_lanes_meet():
    out = torch.zeros(2, dtype=torch.int32)
    run = launch(
        """s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_mov_b32 v1, 0
        v_mov_b32 v2, 1
        global_atomic_add v1, v2, s[4:5]""",
        out,
    )
    assert out.tolist() == [64, 0]
    assert (run.atomics.accesses, run.atomics.bytes, run.atomics.least, run.atomics.segments) == (1, 256, 4, 1)
    assert run.atomics.coalescing == 1.0
    assert (run.loads.bytes, run.stores.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("address", "width", "segments"),
    [
        (np.arange(64) * 4, 4, 4),
        (np.arange(64) * 4 + 4, 4, 5),  # starts in the middle of one
        (np.arange(64)[::-1] * 4, 4, 4),  # backwards
        (np.arange(64) * 0 + 60, 8, 2),  # one place across an edge, for all
        (np.arange(64) % 2 * 4096, 4, 2),
        (np.arange(64) * 16, 16, 16),
        (np.arange(64) * 128, 4, 64),
        (np.arange(64) * 48 + 8, 8, 48),
    ],
)
def test_segments(address, width, segments):
    touched = {byte // 64 for start in address for byte in range(start, start + width)}
    assert segments == len(touched)
    both = np.stack([address, address + 8192]).astype(np.int64)
    assert traffic.pieces_touched(both, None, width, 64).tolist() == [segments, segments]


def test_segments_of_some_lanes():
    address = np.tile(np.arange(64, dtype=np.int64) * 64, (2, 1))
    lanes = np.zeros((2, 64), bool)
    lanes[0, [3, 40, 41]] = True
    assert traffic.pieces_touched(address, lanes, 4, 64).tolist() == [3, 0]
    assert traffic.pieces_touched(address[:, ::-1], lanes, 4, 128).tolist() == [2, 0]


# ---- LDS -------------------------------------------------------------------------------------------------------------


def write_lds(shift, width="b32", data="v0"):
    return launch(
        f"""v_lshlrev_b32 v8, {shift}, v0
        v_mov_b32 v1, 0
        v_mov_b32 v2, 0
        v_mov_b32 v3, 0
        ds_write_{width} v8, {data}""",
        lds=64 * KIB,
        grid=2,
    ).lds


def test_neighbouring_words_have_no_conflict():
    lds = write_lds(2)
    assert (lds.bytes, lds.cycles, lds.least, lds.worst, lds.conflicts) == (2 * 256, 2 * 2, 2 * 2, 1, 0)


def test_words_32_apart_all_want_one_bank():
    lds = write_lds(7)
    assert (lds.cycles, lds.least, lds.worst) == (2 * 64, 2 * 2, 32)


def test_every_other_word_is_a_two_way_conflict():
    assert (write_lds(3).cycles, write_lds(3).worst) == (2 * 4, 2)


def test_wide_writes_go_in_more_phases():
    assert (write_lds(4, "b128", "v[0:3]").cycles, write_lds(3, "b64", "v[0:1]").cycles) == (2 * 8, 2 * 4)


def test_one_word_for_all_lanes_is_no_conflict():
    assert traffic.bank_cycles(np.zeros((1, 64), np.int64), None, 4, True).tolist() == [[1, 1]]


def test_16_byte_reads_meet_other_lanes_than_writes():
    lane = np.arange(64)
    place = np.where((lane >= 16) & (lane < 24), lane ^ 4, lane)[None] * 16
    assert traffic.bank_cycles(place, None, 16, reads=False).tolist() == [[1] * 8]
    assert traffic.bank_cycles(place, None, 16, reads=True).tolist() == [[2, 2, 1, 1, 1, 1, 1, 1]]


def test_wide_reads_of_gfx950_go_to_64_banks():
    """HipKittens, measured on an MI355X: lanes 0 to 3 of a read of 16 bytes are served with 12 to 15 and 20 to 27."""
    lane = np.arange(64)
    served = [set(group) for group in traffic.phases(64, 16, True, 64).tolist()]
    assert served[0] == {*range(4), *range(12, 16), *range(20, 28)} and served[3] == {lane + 32 for lane in served[1]}
    assert traffic.bank_cycles(8 * lane[None], None, 8, True, 64).tolist() == [[1, 1]]
    assert traffic.bank_cycles(128 * lane[None], None, 8, True, 64).tolist() == [[16, 16]]  # banks 0 and 32 in turn
    assert traffic.bank_cycles(8 * lane[None], None, 8, False, 64).tolist() == [[1, 1, 1, 1]]
    assert traffic.phases(64, 12, True, 64)[0].tolist() == [0, 1, 2, 3, 20, 21, 22, 23]


def test_lanes_that_are_off_want_no_bank():
    lanes = np.zeros((1, 64), bool)
    lanes[0, [1, 2, 3]] = True
    assert traffic.bank_cycles(np.arange(64)[None] * 128, lanes, 4, True).tolist() == [[3, 0]]


def test_bank_cycles_against_counting_one_by_one():
    generator = np.random.default_rng(0)
    for width in (1, 2, 4, 8, 16):
        address = generator.integers(0, 4096 // width, (3, 64)) * width
        for reads in (False, True):
            expected = [[_cycles(row[group], width) for group in traffic.phases(64, width, reads)] for row in address]
            assert traffic.bank_cycles(address, None, width, reads).tolist() == expected


def _cycles(addresses, width):
    words = {int(a) // 4 + i for a in addresses for i in range(max(1, width // 4))}
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


# ---- instructions and lanes ------------------------------------------------------------------------------------------

LOOP = """# 7
    s_mov_b32 s4, 0
    .LBB0_1:
    # 8
    v_add_u32 v1, v0, v0
    s_add_i32 s4, s4, 1
    s_cmp_lt_i32 s4, 5
    s_cbranch_scc1 .LBB0_1"""


def test_a_loop_counts_every_time():
    run = launch(LOOP, grid=3, waves=2)
    assert run.by_kind == {"branch": 6 * 5 + 6, "vector": 6 * 5, "scalar": 6 * (1 + 10)}
    assert run.instructions == 6 * (1 + 4 * 5 + 1)
    assert [(line.source.line, line.text, line.instructions) for line in run.by_line] == [
        (7, "seven()", 6),
        (8, "eight()", 6 * 21),
    ]
    assert run.mix == {"vector": 30, "scalar": 102}


def test_lanes_that_are_on():
    run = launch(
        """# 7
        v_add_u32 v1, v0, v0
        s_mov_b64 exec, 0xff
        # 8
        v_add_u32 v1, v0, v0
        v_add_u32 v1, v0, v0"""
    )
    assert run.divergence == {8: 8 / 64}
    assert run.active == (64 + 8 + 8) / 192
    assert "line 8 runs with 12% of its lanes on." in run.notes


def test_spills():
    run = launch(
        """scratch_store_dword off, v0, off
        scratch_load_dword v1, off, off
        scratch_load_dword v1, off, off""",
        scratch=16,
        waves=2,
    )
    assert (run.spills.stores, run.spills.loads, run.spills.bytes) == (2, 4, 2 * 3 * 256)
    assert any("did not fit" in note for note in run.notes)


def test_matrix_instructions_are_in_the_mix():
    a, b, out = torch.randn(32, 32).half(), torch.randn(32, 32).half(), torch.empty(32, 32)
    run = simulate(dot_kernel, (1,), (a, b, out), SIDE=32, num_warps=1)
    assert run.mix["matrix"] == run.by_kind["matrix"] == 32**3 // (32 * 32 * 8)
    assert run.lds.bytes >= 2 * 32 * 32 * 2
    assert sum(line.instructions for line in run.by_line) == run.instructions


# ---- reading it ------------------------------------------------------------------------------------------------------


def test_text_and_card():
    run = add()
    text, card = str(run), run._repr_html_()
    assert text.startswith("add_kernel on gfx942, grid 4\n  (functional, not timed")
    assert "32 KiB, 32 KiB if each byte moved once; 512 segments of 64 bytes (100% coalesced), 256 lines" in text
    assert run.table() in text and "tl.load(x_ptr + offs, mask=mask)" in run.table()
    assert "functional, not timed" in card and "<script" not in card and "prefers-color-scheme" in card


def test_without_a_profile_instructions_are_still_counted():
    counted, run = add(), add(profile=False)
    assert run.by_kind == counted.by_kind and run.notes == ()
    assert "wave-instructions" in str(run)
    with pytest.raises(ValueError, match="profile=True"):
        _ = run.loads


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_lanes_beyond_a_buffers_end_are_off(arch):
    run = add(n=1024 + 100, arch=arch)  # one program whole, one with 100 elements, two with none
    places = {i.kind: [one for one in run.program.instructions if one.kind == i.kind] for i in run.program.instructions}
    assert run.active_in(places["global load"]) == run.active_in(places["global store"]) == (1024 + 100) / 4096
