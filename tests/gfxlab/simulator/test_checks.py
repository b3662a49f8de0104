"""What a simulated launch finds wrong: for each check a kernel that has the defect, and one that has not."""

import dataclasses
import re

import assembly
import pytest
import torch
import triton
import triton.language as tl

from gfxlab.bound import bind
from gfxlab.engine import dual_mode
from gfxlab.simulator import IllegalAccess, SimulationError, simulate
from gfxlab.simulator.core.launch import execute, prepare
from gfxlab.simulator.show.run import Run
from gfxlab.simulator.watch.checks import poison

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")


def launch(code: str, *tensors: torch.Tensor, **facts) -> Run:
    """With counts and without: then accesses to LDS are not looked at one by one, and as much must be found."""
    before = [tensor.clone() for tensor in tensors]
    run = assembly.launch(code, *tensors, **facts)
    again = assembly.launch(code, *before, profile=False, **facts)
    assert again.wrong == run.wrong
    assert all(map(torch.equal, tensors, before))
    return run


# ---- LDS -------------------------------------------------------------------------------------------------------------

# Each thread writes its word and reads the word of the thread 64 further on, in a ring: the other wave's.
EXCHANGE = """# 7
    v_lshlrev_b32 v1, 2, v0
    ds_write_b32 v1, v0
    s_waitcnt lgkmcnt(0)
    {barrier}
    # 8
    v_xor_b32 v2, 0x100, v1
    ds_read_b32 v3, v2"""


@pytest.mark.parametrize("grid", [1, 3])
def test_a_read_after_another_waves_write(grid):
    good = launch(EXCHANGE.format(barrier="s_barrier"), lds=512, waves=2, grid=grid)
    assert good.wrong == ()
    (note,) = launch(EXCHANGE.format(barrier=""), lds=512, waves=2, grid=grid).wrong
    assert note.startswith(
        "lane 0 of wave 0 of program 0 reads byte 256 of LDS (line 8), which wave 1 wrote (line 7), with no barrier"
    )


def test_a_write_after_another_waves_read():
    code = EXCHANGE.format(barrier="s_barrier") + "\n{barrier}\n# 9\nds_write_b32 v1, v3"
    assert launch(code.format(barrier="s_barrier"), lds=512, waves=2).wrong == ()
    (note,) = launch(code.format(barrier=""), lds=512, waves=2).wrong
    assert note.startswith("lane 0 of wave 0 of program 0 writes byte 0 of LDS (line 9), which wave 1 read (line 8)")


def test_two_waves_write_one_place():
    code = "# 7\nv_and_b32 v1, {mask}, v0\nv_lshlrev_b32 v1, 2, v1\nds_write_b32 v1, v0"
    assert launch(code.format(mask=127), lds=512, waves=2).wrong == ()
    (note,) = launch(code.format(mask=63), lds=512, waves=2).wrong
    assert note.startswith("lane 0 of wave 0 of program 0 writes byte 0 of LDS (line 7), which wave 1 wrote (line 7)")


def test_a_race_in_one_program_of_several():
    # the program's number, shifted by 8, moves what a wave writes onto the place of the other
    code = """v_lshlrev_b32 v1, 2, v0
        s_and_b32 s4, s2, 2
        s_lshl_b32 s4, s4, {shift}
        v_and_b32 v2, 0x100, v1
        v_min_u32 v2, s4, v2
        v_sub_u32 v1, v1, v2
        ds_write_b32 v1, v0"""
    assert launch(code.format(shift=0), lds=512, waves=2, grid=2).wrong == ()
    (note,) = launch(code.format(shift=7), lds=512, waves=2, grid=4).wrong
    assert note.startswith("lane 0 of wave 0 of program 2 writes byte 0 of LDS, which wave 1 wrote")


def test_narrow_writes_of_two_waves_into_one_word():
    code = "v_lshrrev_b32 v1, 6, v0\nv_add_u32 v1, {move}, v1\nds_write_b8 v1, v0"
    (note,) = launch(code.format(move=0) + "\nds_write_b8 v1, v0 offset:1", lds=64, waves=2).wrong
    assert "writes byte 1 of LDS" in note
    assert launch(code.format(move=0), lds=64, waves=2).wrong == ()


def test_a_wide_read_across_the_cells_of_wide_writes():
    code = """v_lshlrev_b32 v4, 4, v0
        v_mov_b32 v1, 0
        v_mov_b32 v2, 0
        v_mov_b32 v3, 0
        ds_write_b128 v4, v[0:3]
        {barrier}
        v_add_u32 v4, 8, v4
        ds_read_b128 v[0:3], v4"""
    assert launch(code.format(barrier="s_barrier"), lds=2048, waves=2).wrong == ()
    (note,) = launch(code.format(barrier=""), lds=2048, waves=2).wrong
    assert note.startswith("lane 63 of wave 0 of program 0 reads byte 1024 of LDS, which wave 1 wrote")


def test_two_waves_write_the_same_value():
    code = """v_and_b32 v1, 63, v0
        v_lshlrev_b32 v1, 2, v1
        v_mov_b32 v2, {value}
        ds_write_{width} v1, v2
        ds_write_{width} v1, v2"""
    for width in ("b32", "b16"):
        assert launch(code.format(value=5, width=width), lds=256, waves=2).wrong == ()
        notes = launch(code.format(value="v0", width=width), lds=256, waves=2).wrong
        assert [note.partition("of LDS")[2][:20] for note in notes] == [", which wave 1 wrote"] * 2
    only_wave_0 = "\nv_mov_b32 v2, 6\nv_cmp_gt_u32 vcc, 64, v0\ns_and_b64 exec, exec, vcc\n"
    again = code.format(value=5, width="b32") + only_wave_0.replace("v2, 6", "v2, 5") + "ds_write_b32 v1, v2"
    assert launch(again, lds=256, waves=2).wrong == ()
    other = code.format(value=5, width="b32") + only_wave_0 + "ds_write_b32 v1, v2 offset:0"
    (note,) = launch(other, lds=256, waves=2).wrong
    assert note.endswith("First `ds_write_b32 v1, v2`, then `ds_write_b32 v1, v2 offset:0`.")


@triton.jit
def sum_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("num_warps", [2, 4, 8, 16])
def test_a_compiled_sum_without_its_barriers(arch, num_warps):
    x, out = torch.randn(3, 2048), torch.empty(3)
    options = {"BLOCK": 2048, "num_warps": num_warps}
    compiled, values = prepare(bind(sum_kernel, (x, out), options), arch)
    assert execute(compiled, (3, 1, 1), values).wrong == ()
    without = dataclasses.replace(compiled, asm=re.sub(r"\ts_barrier.*\n", "", compiled.asm))
    assert any("with no barrier between" in note for note in execute(without, (3, 1, 1), values).wrong)


def test_a_barrier_that_one_program_passes_and_another_does_not():
    code = EXCHANGE.format(barrier="s_cmp_eq_u32 s2, {first}\ns_cbranch_scc1 .LBB0_1\ns_barrier\n.LBB0_1:")
    assert launch(code.format(first=9), lds=512, waves=2, grid=3).wrong == ()
    (note,) = launch(code.format(first=1), lds=512, waves=2, grid=3).wrong
    assert note.startswith("lane 0 of wave 0 of program 1 reads byte 256 of LDS (line 8), which wave 1 wrote (line 7)")


# Five turns of a loop; at its end stands a barrier, which program `who` leaves out in turn `which`.
TURNS = (
    """
    s_mov_b32 s6, 0
    s_cmp_eq_u32 s2, {who}
    s_cselect_b32 s7, {which}, 9
    .LBB0_2:
    """
    + EXCHANGE.format(barrier="s_barrier")
    + """
    s_waitcnt lgkmcnt(0)
    s_cmp_eq_u32 s6, s7
    s_cbranch_scc1 .LBB0_1
    s_barrier
    .LBB0_1:
    s_add_i32 s6, s6, 1
    s_cmp_lt_u32 s6, 5
    s_cbranch_scc1 .LBB0_2"""
)


@pytest.mark.parametrize("which", [0, 2, 3])
def test_a_race_in_one_turn_of_a_loop_whose_others_are_known_to_be_harmless(which):
    assert launch(TURNS.format(who=9, which=which), lds=512, waves=2, grid=4).wrong == ()
    (note,) = launch(TURNS.format(who=2, which=which), lds=512, waves=2, grid=4).wrong
    assert note.startswith("lane 0 of wave 0 of program 2 writes byte 0 of LDS (line 7), which wave 1 read (line 8)")


@triton.jit
def in_turn_kernel(x_ptr, y_ptr, flags_ptr, sums_ptr, N: tl.constexpr):
    program = tl.program_id(0)
    offs = program * N + tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    sums = tl.cumsum(x, 0)
    before = 0
    if program > 0:
        while tl.atomic_add(flags_ptr + program - 1, 0, sem="acquire") == 0:
            pass
        before = tl.load(sums_ptr + program - 1, volatile=True)
    tl.store(sums_ptr + program, before + tl.sum(x))
    tl.debug_barrier()
    tl.atomic_xchg(flags_ptr + program, 1, sem="release")
    tl.store(y_ptr + offs, sums + before)


@pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")
def test_programs_that_come_to_their_barriers_one_after_the_other():
    """What one is known to have done must not stay where the barrier of another does not wipe it out."""
    x, y, flags, sums = (torch.full((9 * 32,), one, dtype=torch.int32) for one in (1, 0, 0, 0))
    run = simulate(in_turn_kernel, (9,), (x, y, flags, sums, 32), num_warps=2)
    assert run.wrong == () and torch.equal(y, x.cumsum(0))


def test_a_loop_moves_on_through_lds():
    """The same instruction names other places in every turn: what was harmless there says nothing of these."""
    code = """
        v_lshlrev_b32 v1, 2, v0
        s_mov_b32 s6, 0
        .LBB0_1:
        v_add_u32 v2, s6, v1
        ds_write_b32 v2, v0
        s_waitcnt lgkmcnt(0)
        s_barrier
        s_add_i32 s6, s6, {step}
        s_cmp_lt_u32 s6, 0x800
        s_cbranch_scc1 .LBB0_1
        ds_read_b32 v3, v1 offset:0x600"""
    assert launch(code.format(step=512), lds=2048, waves=2, grid=3).wrong == ()
    (note,) = launch(code.format(step=1024), lds=2048, waves=2, grid=3).wrong
    assert "reads byte 1536 of LDS before anybody wrote it" in note


def test_atomics_in_lds_do_not_race():
    code = "v_mov_b32 v1, 0\nds_add_u32 v1, v0\nds_add_u32 v1, v0"
    assert launch(code, lds=64, waves=2).wrong == ()


def test_lds_that_nobody_wrote():
    code = "v_lshlrev_b32 v1, 2, v0\nds_write_b32 v1, v0\n# 8\nds_read_b32 v2, v1 offset:{offset}"
    assert launch(code.format(offset=0), lds=512).wrong == ()
    (note,) = launch(code.format(offset=16), lds=512, grid=2).wrong
    assert note == (
        "lane 60 of wave 0 of program 0 reads byte 256 of LDS before anybody wrote it (8 lanes) (line 8), "
        "by `ds_read_b32 v2, v1 offset:16`."
    )


# ---- global memory ---------------------------------------------------------------------------------------------------


@triton.jit
def shared_kernel(out_ptr, VALUE: tl.constexpr, LOCKED: tl.constexpr):
    pid = tl.program_id(0)
    if LOCKED:
        tl.atomic_xchg(out_ptr + 1, 1)
    tl.store(out_ptr, pid * VALUE)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_programs_that_store_to_one_element(arch):
    def notes(value, locked=False):
        return simulate(
            shared_kernel, (3,), (torch.zeros(2, dtype=torch.int32),), VALUE=value, LOCKED=locked, arch=arch
        ).wrong

    (note,) = notes(1)
    assert re.match(r"programs \d and \d store different values to element 0 of out_ptr \(line \d+: tl.store", note)
    assert notes(0) == ()
    assert notes(1, locked=True) == ()


def test_programs_that_overlap_across_batches(monkeypatch):
    monkeypatch.setattr("gfxlab.simulator.core.launch._BATCH_BYTES", 1)
    code = """s_load_dwordx2 s[4:5], s[0:1], 0x0
        s_lshl_b32 s6, s2, {shift}
        v_lshlrev_b32 v1, 2, v0
        v_add_u32 v1, s6, v1
        v_add_u32 v2, s2, v0
        s_waitcnt lgkmcnt(0)
        # 7
        global_store_dword v1, v2, s[4:5]"""
    assert launch(code.format(shift=8), torch.zeros(256), grid=3).wrong == ()
    (note,) = launch(code.format(shift=7), torch.zeros(256), grid=3).wrong
    assert note.startswith("programs 0 and 1 store different values to element 32 of t0 (line 7)")
    # program 1 stores what program 0 stored where they overlap
    assert (
        launch(code.replace("s2, v0", "s2, v0\nv_lshrrev_b32 v2, 31, v2").format(shift=7), torch.zeros(256)).wrong == ()
    )


def test_misaligned_accesses():
    code = """s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_lshlrev_b32 v1, 2, v0
        s_waitcnt lgkmcnt(0)
        # 7
        global_load_dword v2, v1, s[4:5] offset:{offset}"""
    assert launch(code.format(offset=4), torch.zeros(128)).wrong == ()
    assert launch(code.format(offset=6), torch.zeros(256, dtype=torch.float16)).wrong == ()  # two elements as one
    (note,) = launch(code.format(offset=6), torch.zeros(128)).wrong
    assert note.startswith("lane 0 of wave 0 of program 0 loads 4 bytes at address 0x")
    assert "(element 1 of t0), which is no multiple of 4 (64 lanes) (line 7), by" in note


@triton.jit
def rows_kernel(x_ptr, out_ptr, STRIDE: tl.constexpr, COLS: tl.constexpr, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * STRIDE + cols, mask=cols < COLS)
    tl.store(out_ptr + row * BLOCK + cols, x)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_the_gap_between_rows(arch):
    x, out = torch.randn(4, 64)[:, :48], torch.empty(4, 64)
    simulate(rows_kernel, (4,), (x, out), STRIDE=64, COLS=48, BLOCK=64, num_warps=1, arch=arch)
    torch.testing.assert_close(out[:, :48], x, atol=0, rtol=0)
    sentence = r"of program 0 loads element 48 of x_ptr, between the rows of its 192 elements .*line \d+: x = tl.load"
    with pytest.raises(IllegalAccess, match=sentence):
        simulate(rows_kernel, (3,), (x, out), STRIDE=64, COLS=64, BLOCK=64, num_warps=1, arch=arch)


def test_two_tensors_in_one_storage():
    both = torch.randn(4, 128)
    x, out = both[:, :64], both[:, 64:]
    expected = x.clone()
    code = """s_load_dwordx4 s[4:7], s[0:1], 0x0
        v_lshlrev_b32 v1, 2, v0
        s_waitcnt lgkmcnt(0)
        global_load_dword v2, v1, s[4:5]
        s_waitcnt vmcnt(0)
        global_store_dword v1, v2, s[6:7]"""
    run = launch(code, x, out)
    torch.testing.assert_close(out[0], expected[0], atol=0, rtol=0)
    assert run.loads.tensors == {"t0": (256, 256)} and run.stores.tensors == {"t1": (256, 256)}


# ---- outputs ---------------------------------------------------------------------------------------------------------


@triton.jit
def fill_kernel(out_ptr, n, INPLACE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(out_ptr + offs, mask=offs < n) if INPLACE else 1.0
    tl.store(out_ptr + offs, value, mask=offs < n)


def test_outputs_never_written():
    def notes(n, out):
        return simulate(fill_kernel, (4,), (out, n), INPLACE=False, BLOCK=64, outputs=("out_ptr",)).wrong

    assert notes(250, torch.empty(250)) == ()
    assert notes(200, torch.empty(250)) == ("50 elements of out_ptr never written, of 250; the first is element 200.",)
    out = torch.empty(250, dtype=torch.bfloat16)
    assert notes(249, out) == ("1 element of out_ptr never written, of 250; the first is element 249.",)
    assert out[:249].eq(1).all() and out[249].isnan()


def test_gaps_of_an_output_need_not_be_written():
    out = torch.zeros(4, 64)
    x = torch.randn(4, 64)
    view = out[:, :16]
    run = simulate(rows_kernel, (1,), (x, view), STRIDE=64, COLS=64, BLOCK=16, outputs=("out_ptr",), num_warps=1)
    assert run.wrong == ("48 elements of out_ptr never written, of 64; the first is element 64.",)
    assert out[:, 16:].eq(0).all()


def test_outputs_read_before_they_are_written():
    run = simulate(fill_kernel, (4,), (torch.zeros(250), 250), INPLACE=True, BLOCK=64, outputs=("out_ptr",))
    (note,) = run.wrong
    assert re.match(r"lane 0 of wave 0 of program 0 reads element 0 of out_ptr before anything was stored there", note)
    assert simulate(fill_kernel, (4,), (torch.zeros(250), 250), INPLACE=True, BLOCK=64).wrong == ()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(torch.int32, 2**31 - 1), (torch.uint8, 255), (torch.bool, True), (torch.float8_e4m3fn, None)],
)
def test_poison(dtype, value):
    tensor = torch.zeros(3, dtype=dtype)
    poison("t", tensor)
    assert tensor.float().isnan().all() if value is None else tensor.tolist() == [value] * 3


def test_outputs_must_be_tensors():
    with pytest.raises(TypeError, match="outputs must name tensor arguments; m is None"):
        simulate(fill_kernel, (4,), (torch.zeros(250), 250), INPLACE=True, BLOCK=64, outputs=("m",))


# ---- registers, barriers, endless loops ------------------------------------------------------------------------------


def test_registers_that_nothing_wrote():
    (note,) = launch("v_mov_b32 v1, 1\n# 7\nv_add_u32 v3, v1, v2").wrong
    assert note == "`v_add_u32 v3, v1, v2` reads v2 (line 7), which no instruction before it has written."
    (note,) = launch("s_add_u32 s30, s2, s40").wrong
    assert "reads s40" in note
    assert launch("v_mov_b32 v1, 1\nv_mov_b32 v2, 1\nv_add_u32 v3, v1, v2").wrong == ()
    assert launch("v_mov_b32 v1, 1\nv_fmaak_f32 v3, v1, v1, 0x358637bd\nv_fmamk_f32 v4, v1, 0x40000000, v3").wrong == ()
    (note,) = launch("v_mov_b32 v1, 1\nv_fmac_f32 v3, v1, v1").wrong
    assert "reads v3" in note
    assert launch("s_branch .LBB0_1\nv_add_u32 v3, v1, v2\n.LBB0_1:\ns_nop 0").wrong == ()


def test_a_barrier_that_one_wave_does_not_reach():
    code = """v_readfirstlane_b32 s4, v0
        # 7
        s_cmp_lt_u32 s4, 64
        s_cbranch_scc1 .LBB0_1
        {last}
        .LBB0_1:
        # 8
        s_barrier"""
    launch(code.format(last="s_nop 0"), waves=2)
    with pytest.raises(SimulationError, match=r"program 0 .*wait at \(line 8\), and 1 of its 2 waves has ended"):
        launch(code.format(last="s_endpgm"), waves=2, grid=2)
    launch(code.format(last="s_barrier\ns_endpgm"), waves=2)  # hardware counts who arrives, not where


def test_an_endless_loop():
    with pytest.raises(SimulationError, match=r"program 0 of the launch does not end: .* 1,000 .*\(line 8\)"):
        launch("# 7\ns_nop 0\n.LBB0_1:\n# 8\ns_nop 0\ns_branch .LBB0_1", limit=1000)


def test_a_copy_of_half_a_pair_is_no_read_of_the_other_half():
    assert launch("v_mov_b32 v2, 1\nv_mov_b64 v[4:5], v[2:3]\nv_add_u32 v6, v4, v4").wrong == ()
    (note,) = launch("v_mov_b32 v2, 1\nv_mov_b64 v[4:5], v[2:3]\n# 7\nv_add_u32 v6, v4, v5").wrong
    assert note == "`v_add_u32 v6, v4, v5` reads v5 (line 7), which no instruction before it has written."


@pytest.mark.parametrize(
    "pair, half",
    [
        ("v_pk_mul_f32 v[6:7], v[2:3], v[4:5]", "v7"),  # of v[4:5] only v4 was written
        ("v_pk_mul_f32 v[6:7], v[2:3], v[4:5] op_sel:[0,1] op_sel_hi:[1,0]", "v6"),
        ("v_pk_fma_f32 v[6:7], v[2:3], v[2:3], v[4:5]", "v7"),
        ("v_lshl_add_u64 v[6:7], v[2:3], 1, v[4:5]", "v7"),
    ],
)
def test_half_of_a_pair_may_be_left_undefined_until_it_is_read(pair, half):
    other = {"v6": "v7", "v7": "v6"}[half]
    code = f"v_mov_b32 v2, 1.0\nv_mov_b32 v3, 1.0\nv_mov_b32 v4, 1.0\n{pair}"
    assert launch(f"{code}\nv_add_u32 v8, {other}, {other}").wrong == ()
    (note,) = launch(f"{code}\n# 9\nv_add_u32 v8, v6, v7").wrong
    assert note == f"`v_add_u32 v8, v6, v7` reads {half} (line 9), which no instruction before it has written."


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_reads_of_three_words_are_counted(arch):
    name = "ds_read_b96" if arch == "gfx942" else "ds_load_b96"
    store = "ds_write_b96" if arch == "gfx942" else "ds_store_b96"
    values = "v_mov_b32 v2, v0\nv_mov_b32 v3, v0\nv_mov_b32 v4, v0"
    code = f"v_mul_u32_u24 v1, 12, v0\n{values}\n{store} v1, v[2:4]\n{name} v[5:7], v1"
    run = launch(code, lds=1024, arch=arch)
    lanes = 64 if arch == "gfx942" else 32
    assert (run.lds.bytes, run.lds.conflicts) == (2 * 12 * lanes, 0)


@triton.jit
def count_kernel(x_ptr):
    tl.atomic_add(x_ptr, 1.0)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_an_atomic_of_one_half_reads_the_word_around_it(arch):
    x = torch.zeros(1, dtype=torch.float16)
    assert simulate(count_kernel, (3,), (x,), arch=arch).wrong == ()
    assert x.item() == 3


@pytest.mark.parametrize(
    "other, reads", [("mov_b32 v4, v0", ""), ("add_f32 v4, v0, v0", ""), ("add_f32 v4, v0, v1", "v1")]
)
def test_a_copy_that_is_issued_with_another_is_no_read(other, reads):
    """The compiler copies a number that the first round of a loop has no use for."""
    run = launch(f"v_dual_mov_b32 v3, v1 :: v_dual_{other}", arch="gfx1100")
    assert [f"reads {reads}" in sentence for sentence in run.wrong] == [True] * bool(reads)


def test_what_a_copy_that_is_issued_with_another_has_made_is_read_later():
    code = "v_dual_mov_b32 v3, v1 :: v_dual_mov_b32 v4, v0\nv_add_f32 v5, v4, v4\nv_add_f32 v6, v3, v4"
    assert "reads v3" in launch(code, arch="gfx1100").wrong[0]
