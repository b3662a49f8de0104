"""What moves between lanes: DPP, permutes, swizzles, lanes read and written as scalars. Each case is spelled out."""

import numpy as np
import pytest
from one_instruction import execute

from gfxlab.simulator.core.operands import VCC

GENERATOR = np.random.default_rng(1)
VALUES = GENERATOR.integers(0, 1 << 32, 64, np.uint32)
OTHER = GENERATOR.integers(0, 1 << 32, 64, np.uint32)
OLD = GENERATOR.integers(0, 1 << 32, 64, np.uint32)
SOME = GENERATOR.random(64) < 0.6
ALL = np.ones(64, bool)


def lanes_of(arch: str) -> int:
    return 64 if arch.startswith("gfx9") else 32


# The lane that each lane reads from, or None.
FROM = {
    "quad_perm:[3,2,1,0]": lambda i: i // 4 * 4 + (3, 2, 1, 0)[i % 4],
    "quad_perm:[1,0,3,2]": lambda i: i // 4 * 4 + (1, 0, 3, 2)[i % 4],
    "quad_perm:[0,0,2,2]": lambda i: i // 4 * 4 + (0, 0, 2, 2)[i % 4],
    "row_shl:1": lambda i: i + 1 if i % 16 + 1 < 16 else None,
    "row_shl:15": lambda i: i + 15 if i % 16 == 0 else None,
    "row_shr:1": lambda i: i - 1 if i % 16 else None,
    "row_shr:8": lambda i: i - 8 if i % 16 >= 8 else None,
    "row_shr:15": lambda i: i - 15 if i % 16 == 15 else None,
    "row_ror:1": lambda i: i // 16 * 16 + (i - 1) % 16,
    "row_ror:12": lambda i: i // 16 * 16 + (i - 12) % 16,
    "row_mirror": lambda i: i // 16 * 16 + 15 - i % 16,
    "row_half_mirror": lambda i: i // 8 * 8 + 7 - i % 8,
}
GFX9 = {
    "row_bcast:15": lambda i: i // 16 * 16 - 1 if i >= 16 else None,
    "row_bcast:31": lambda i: 31 if i >= 32 else None,
    "row_newbcast:5": lambda i: i // 16 * 16 + 5,
    "wave_shl:1": lambda i: i + 1 if i < 63 else None,
    "wave_shr:1": lambda i: i - 1 if i else None,
    "wave_rol:1": lambda i: (i + 1) % 64,
    "wave_ror:1": lambda i: (i - 1) % 64,
}
RDNA = {
    "row_share:3": lambda i: i // 16 * 16 + 3,
    "row_xmask:1": lambda i: i // 16 * 16 + (i % 16 ^ 1),
    "row_xmask:10": lambda i: i // 16 * 16 + (i % 16 ^ 10),
}
SELECTIONS = [("gfx942", name, rule) for name, rule in (FROM | GFX9).items()]
SELECTIONS += [("gfx1100", name, rule) for name, rule in (FROM | RDNA).items()]


@pytest.mark.parametrize("arch, name, rule", SELECTIONS, ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize(
    "rows, banks, modifiers",
    [(15, 15, ""), (15, 15, " bound_ctrl:1"), (0b0110, 15, ""), (0b1010, 0b1001, " bound_ctrl:1"), (15, 15, " fi:1")],
)
def test_dpp(arch, name, rule, rows, banks, modifiers):
    if "fi" in modifiers and arch == "gfx942":
        pytest.skip("gfx9 has no fetch-inactive bit")
    lanes = lanes_of(arch)
    mnemonic = "v_add_u32_dpp" if arch == "gfx942" else "v_add_nc_u32_dpp"
    text = f"{mnemonic} v10, v2, v4 {name} row_mask:{rows:#x} bank_mask:{banks:#x}{modifiers}"
    for active in (ALL[:lanes], SOME[:lanes]):
        w = execute(text, arch=arch, V={2: VALUES[:lanes], 4: OTHER[:lanes], 10: OLD[:lanes]}, lanes_on=active)
        for i in range(lanes):
            source = rule(i)
            reachable = source is not None and (active[source] or "fi" in modifiers)
            named = rows >> i // 16 & 1 and banks >> i % 16 // 4 & 1
            if not active[i] or not named or not reachable and "bound_ctrl" not in modifiers:
                wanted = OLD[i]
            else:
                wanted = (int(VALUES[source]) if reachable else 0) + int(OTHER[i]) & 0xFFFFFFFF
            assert w.V[10, 0, i] == wanted, (text, i)


def test_dpp_of_eight_lanes_reads_zero_where_a_lane_is_off():
    order = [7, 0, 6, 1, 5, 2, 4, 3]
    w = execute(
        "v_mov_b32_dpp v10, v2 dpp8:[7,0,6,1,5,2,4,3]",
        arch="gfx1100",
        V={2: VALUES[:32], 10: OLD[:32]},
        lanes_on=SOME[:32],
    )
    for i in range(32):
        source = i // 8 * 8 + order[i % 8]
        wanted = OLD[i] if not SOME[i] else VALUES[source] if SOME[source] else 0
        assert w.V[10, 0, i] == wanted, i


def test_dpp_may_write_the_register_that_it_reads():
    text = "v_mov_b32_dpp v2, v2 row_shr:1 row_mask:0xf bank_mask:0xf"
    w = execute(text, V={2: VALUES})
    assert w.V[2, 0].tolist() == [int(VALUES[i - 1 if i % 16 else i]) for i in range(64)]


def test_dpp_of_an_addition_with_carry():
    values = VALUES[:32]
    text = "v_add_co_u32_e64_dpp v10, vcc_lo, v2, v4 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1"
    w = execute(text, arch="gfx1100", V={2: values, 4: OTHER[:32]})
    totals = [(int(values[i - 1]) if i % 16 else 0) + int(OTHER[i]) for i in range(32)]
    assert w.V[10, 0].tolist() == [total % 2**32 for total in totals]
    assert w.lane_mask(VCC)[0].tolist() == [total >= 2**32 for total in totals]


def test_a_sum_over_the_wave_by_dpp():
    """The chain that Triton emits for tl.sum on gfx9."""
    steps = [f"v_add_u32_dpp v2, v2, v2 row_shr:{n} row_mask:0xf bank_mask:0xf bound_ctrl:1" for n in (1, 2, 4, 8)]
    steps += ["s_nop 1", "v_add_u32_dpp v2, v2, v2 row_bcast:15 row_mask:0xa bank_mask:0xf"]
    steps += ["v_add_u32_dpp v2, v2, v2 row_bcast:31 row_mask:0xc bank_mask:0xf", "v_readlane_b32 s0, v2, 63"]
    w = execute("\n".join(steps), V={2: VALUES})
    rows = [sum(VALUES[16 * r : 16 * r + 16].tolist()) for r in range(4)]
    assert w.S[0, 0] == sum(rows) % 2**32


# ---- permutes of RDNA and gfx950 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, other_row", [("v_permlane16_b32", 0), ("v_permlanex16_b32", 16)])
@pytest.mark.parametrize("fetch_inactive, zero", [(1, 0), (0, 0), (0, 1)])
def test_permlane16(name, other_row, fetch_inactive, zero):
    low, high = 0x76543210, 0x01234567
    low ^= 0x3
    text = f"{name} v10, v2, s2, s4 op_sel:[{fetch_inactive},{zero}]"
    active = SOME[:32]
    w = execute(text, arch="gfx1100", V={2: VALUES[:32], 10: OLD[:32]}, S={2: low, 4: high}, lanes_on=active)
    for i in range(32):
        selector = (low if i % 16 < 8 else high) >> 4 * (i % 8) & 15
        source = (i & 16 ^ other_row) + selector
        reachable = active[source] or fetch_inactive
        wanted = OLD[i] if not active[i] or not (reachable or zero) else VALUES[source] if reachable else 0
        assert w.V[10, 0, i] == wanted, i


@pytest.mark.parametrize("distance", [16, 32])
def test_permlane_swap(distance):
    """Odd rows (of 16 or 32 lanes) of the first register change places with the even rows of the second."""
    w = execute(f"v_permlane{distance}_swap_b32_e32 v2, v4", arch="gfx950", V={2: VALUES, 4: OTHER})
    for i in range(64):
        if i // distance % 2:
            assert w.V[2, 0, i] == OTHER[i - distance] and w.V[4, 0, i] == OTHER[i]
        else:
            assert w.V[4, 0, i] == VALUES[i + distance] and w.V[2, 0, i] == VALUES[i]


# ---- scalars from lanes ----------------------------------------------------------------------------------------------


def test_one_lane_as_a_scalar_whatever_exec_says():
    off = ALL & (np.arange(64) % 2 == 0)
    w = execute("v_readlane_b32 s8, v2, 5\nv_readlane_b32 s9, v2, s4", V={2: VALUES}, S={4: 63 + 64}, lanes_on=off)
    assert w.S[0, 8] == VALUES[5] and w.S[0, 9] == VALUES[63]
    w = execute("v_writelane_b32 v2, s4, 7\nv_writelane_b32 v2, 9, s6", V={2: VALUES}, S={4: 77, 6: 2}, lanes_on=off)
    expected = VALUES.copy()
    expected[[7, 2]] = 77, 9
    assert (w.V[2, 0] == expected).all()


def test_the_first_active_lane():
    for first in (0, 1, 37, 63):
        active = (np.arange(64) >= first) & (SOME | (np.arange(64) == first))
        assert execute("v_readfirstlane_b32 s8, v2", V={2: VALUES}, lanes_on=active).S[0, 8] == VALUES[first]
    assert execute("v_readfirstlane_b32 s8, v2", V={2: VALUES}, lanes_on=~ALL).S[0, 8] == VALUES[0]


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_counting_bits_of_lanes_below(arch):
    lanes = lanes_of(arch)
    mask = 0x9ABCDEF012345678 & ((1 << lanes) - 1)
    text = "v_mbcnt_lo_u32_b32 v10, s2, 100\nv_mbcnt_hi_u32_b32 v10, s4, v10"
    w = execute(text, arch=arch, S={2: mask & 0xFFFFFFFF, 4: mask >> 32})
    assert w.V[10, 0].tolist() == [100 + (mask & ((1 << i) - 1)).bit_count() for i in range(lanes)]
    w = execute("v_mbcnt_lo_u32_b32 v10, -1, 0\nv_mbcnt_hi_u32_b32 v10, -1, v10", arch=arch)
    assert w.V[10, 0].tolist() == list(range(lanes))


# ---- permutes through LDS's crossbar ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("active", [ALL, SOME], ids=["all", "some"])
def test_backward_permute(arch, active):
    lanes = lanes_of(arch)
    address = GENERATOR.integers(0, 1 << 32, lanes, np.uint32)
    active = active[:lanes]
    for text, offset in (("ds_bpermute_b32 v10, v4, v2", 0), ("ds_bpermute_b32 v10, v4, v2 offset:12", 12)):
        w = execute(text, arch=arch, V={2: VALUES[:lanes], 4: address, 10: OLD[:lanes]}, lanes_on=active)
        for i in range(lanes):
            source = (int(address[i]) + offset) // 4 % lanes
            wanted = OLD[i] if not active[i] else VALUES[source] if active[source] else 0
            assert w.V[10, 0, i] == wanted, i


def test_forward_permute():
    address = np.uint32(4) * (np.arange(64, dtype=np.uint32) // 2 * 3 % 64)  # pairs of lanes write to one place
    for active in (ALL, SOME):
        w = execute("ds_permute_b32 v10, v4, v2", V={2: VALUES, 4: address, 10: OLD}, lanes_on=active)
        wanted = [0] * 64
        for i in range(64):
            if active[i]:
                wanted[int(address[i]) // 4] = int(VALUES[i])  # the highest lane wins
        assert w.V[10, 0].tolist() == [wanted[i] if active[i] else int(OLD[i]) for i in range(64)]


SWIZZLES = {
    "offset:0x8055": lambda i: i // 4 * 4 + 1,  # quad: all read lane 1
    "offset:0x801b": lambda i: i // 4 * 4 + 3 - i % 4,
    "offset:swizzle(QUAD_PERM,3,0,2,1)": lambda i: i // 4 * 4 + (3, 0, 2, 1)[i % 4],
    "offset:0x041f": lambda i: i ^ 1,
    "offset:swizzle(SWAP,16)": lambda i: i ^ 16,
    "offset:swizzle(REVERSE,8)": lambda i: i // 8 * 8 + 7 - i % 8,
    "offset:swizzle(BROADCAST,32,5)": lambda i: i // 32 * 32 + 5,
    'offset:swizzle(BITMASK_PERM,"01pip")': lambda i: i // 32 * 32 + (i % 32 & 0b00111 | 0b01000) ^ 2,
}


@pytest.mark.parametrize("pattern", SWIZZLES)
def test_swizzle(pattern):
    rule = SWIZZLES[pattern]
    for active in (ALL, SOME):
        w = execute(f"ds_swizzle_b32 v10, v2 {pattern}", V={2: VALUES, 10: OLD}, lanes_on=active)
        for i in range(64):
            wanted = OLD[i] if not active[i] else VALUES[rule(i)] if active[rule(i)] else 0
            assert w.V[10, 0, i] == wanted, i


# ---- EXEC ------------------------------------------------------------------------------------------------------------


def test_lanes_that_are_off_compare_as_false():
    w = execute("v_cmp_eq_u32_e32 vcc, v2, v2", V={2: VALUES}, lanes_on=SOME, vcc=ALL)
    assert (w.lane_mask(VCC)[0] == SOME).all()


@pytest.mark.parametrize(
    "arch, text", [("gfx942", "v_cmpx_gt_u32_e32 vcc, v2, v4"), ("gfx1100", "v_cmpx_gt_u32 v2, v4")]
)
def test_comparing_into_exec(arch, text):
    lanes = lanes_of(arch)
    w = execute(
        f"{text}\nv_mov_b32_e32 v10, 1",
        arch=arch,
        V={2: VALUES[:lanes], 4: OTHER[:lanes], 10: 0},
        lanes_on=SOME[:lanes],
        vcc=ALL[:lanes],
    )
    left = SOME[:lanes] & (VALUES > OTHER)[:lanes]
    assert (w.V[10, 0] == left).all()
    assert (w.lane_mask(VCC)[0] == (left if arch == "gfx942" else ALL[:lanes])).all()


def test_waves_keep_to_themselves():
    values = GENERATOR.integers(0, 1 << 32, (3, 64), np.uint32)
    text = "v_readlane_b32 s8, v2, s2\nds_bpermute_b32 v10, v4, v2\nv_readfirstlane_b32 s9, v10"
    w = execute(text, V={2: values, 4: np.full(64, 4, np.uint32)}, S={2: [0, 10, 63]}, waves=3)
    assert w.S[:, 8].tolist() == [values[0, 0], values[1, 10], values[2, 63]]
    assert (w.V[10] == values[:, 1:2]).all() and (w.S[:, 9] == values[:, 1]).all()
