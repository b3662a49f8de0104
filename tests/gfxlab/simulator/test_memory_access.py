"""Loads, stores and atomics of every width: global, through a resource, LDS and private memory."""

import numpy as np
import pytest
import torch
from exact import BF16, F16, F32, add
from integers import signed
from one_instruction import execute, lds_bytes

from gfxlab.simulator import IllegalAccess
from gfxlab.simulator.core.memory import GlobalMemory

GENERATOR = np.random.default_rng(2)
LANE = np.arange(64)
SOME = GENERATOR.random(64) < 0.6
OLD = 0x5A5AA5A5


def random_bytes(size: int) -> np.ndarray:
    return GENERATOR.integers(0, 256, size, np.uint8)


def on_memory(data: np.ndarray) -> tuple[GlobalMemory, torch.Tensor, dict[int, int]]:
    """Memory that holds one tensor `x` of these bytes, the tensor, and its address in s[4:5]."""
    tensor, memory = torch.from_numpy(data.copy()), GlobalMemory()
    address = memory.add_tensor("x", tensor)
    return memory, tensor, {4: address & 0xFFFFFFFF, 5: address >> 32}


def word_at(data: np.ndarray, place: int, width: int) -> int:
    return int.from_bytes(data[place : place + width].tobytes(), "little")


def registers(w, first: int, count: int, lane: int) -> int:
    return sum(int(w.V[first + place, 0, lane]) << 32 * place for place in range(count))


LOADS = {  # suffix: bytes, what becomes of them in the register
    "dword": (4, lambda x: x),
    "dwordx2": (8, lambda x: x),
    "dwordx3": (12, lambda x: x),
    "dwordx4": (16, lambda x: x),
    "ushort": (2, lambda x: x),
    "sshort": (2, lambda x: signed(x, 16) & 0xFFFFFFFF),
    "ubyte": (1, lambda x: x),
    "sbyte": (1, lambda x: signed(x, 8) & 0xFFFFFFFF),
    "short_d16": (2, lambda x: OLD & 0xFFFF0000 | x),
    "short_d16_hi": (2, lambda x: OLD & 0xFFFF | x << 16),
    "ubyte_d16": (1, lambda x: OLD & 0xFFFF0000 | x),
    "ubyte_d16_hi": (1, lambda x: OLD & 0xFFFF | x << 16),
}
NEWER_LOADS = {
    "b32": LOADS["dword"],
    "b64": LOADS["dwordx2"],
    "b96": LOADS["dwordx3"],
    "b128": LOADS["dwordx4"],
    "u16": LOADS["ushort"],
    "i16": LOADS["sshort"],
    "u8": LOADS["ubyte"],
    "i8": LOADS["sbyte"],
    "d16_b16": LOADS["short_d16"],
    "d16_hi_b16": LOADS["short_d16_hi"],
    "d16_u8": LOADS["ubyte_d16"],
    "d16_hi_u8": LOADS["ubyte_d16_hi"],
}


def named(width: int, first: int = 10) -> str:
    return f"v[{first}:{first + width // 4 - 1}]" if width > 4 else f"v{first}"


@pytest.mark.parametrize("arch, suffix", [("gfx942", s) for s in LOADS] + [("gfx1100", s) for s in NEWER_LOADS])
def test_loads(arch, suffix):
    lanes = 64 if arch == "gfx942" else 32
    width, filled = (LOADS | NEWER_LOADS)[suffix]
    data = random_bytes(4096)
    memory, _, S = on_memory(data)
    place = GENERATOR.permutation(240)[:lanes].astype(np.uint32) * 16
    S |= {6: 4000, 7: 0}
    resource = {8: S[4], 9: S[5], 10: 4096, 11: 0, 12: 32}
    text = f"""
        global_load_{suffix} {named(width)}, v2, s[4:5] offset:16
        global_load_{suffix} {named(width, 20)}, v[4:5], off offset:-16
        buffer_load_{suffix} {named(width, 30)}, v2, s[8:11], s12 offen offset:64
    """
    V = {2: place, 4: place + np.uint32(S[4] + 32), 5: S[5]} | dict.fromkeys((10, 20, 30), OLD)
    w = execute(text, arch=arch, V=V, S=S | resource, memory=memory, lanes_on=SOME[:lanes])
    for lane in range(lanes):
        for first, offset in ((10, 16), (20, 16), (30, 96)):
            wanted = filled(word_at(data, int(place[lane]) + offset, width)) if SOME[lane] else OLD
            assert registers(w, first, max(1, width // 4) if SOME[lane] else 1, lane) == wanted, (first, lane)


STORES = {"dword": (4, 0), "dwordx2": (8, 0), "dwordx3": (12, 0), "dwordx4": (16, 0), "short": (2, 0), "byte": (1, 0)}
STORES |= {"short_d16_hi": (2, 16), "byte_d16_hi": (1, 16)}


@pytest.mark.parametrize("space", ["global", "buffer"])
@pytest.mark.parametrize("suffix", STORES)
def test_stores(space, suffix):
    width, shift = STORES[suffix]
    data = random_bytes(2048)
    memory, tensor, S = on_memory(data)
    place = GENERATOR.permutation(100)[:64].astype(np.uint32) * 16
    values = {10 + i: GENERATOR.integers(0, 1 << 32, 64, np.uint32) for i in range(4)}
    if space == "global":
        text = f"global_store_{suffix} v2, {named(width)}, s[4:5] offset:32"
    else:
        text = f"buffer_store_{suffix} {named(width)}, v2, s[4:7], 0 offen offset:32"
    execute(text, V={2: place, **values}, S=S | {6: 2048, 7: 0}, memory=memory, lanes_on=SOME)
    wanted = data.copy()
    for lane in np.flatnonzero(SOME):
        stored = sum(int(values[10 + i][lane]) << 32 * i for i in range(4)) >> shift
        start = int(place[lane]) + 32
        wanted[start : start + width] = np.frombuffer(
            (stored & (1 << 8 * width) - 1).to_bytes(width, "little"), np.uint8
        )
    assert (tensor.numpy() == wanted).all()


def test_a_buffer_access_out_of_range_reads_zero_and_writes_nothing():
    """That is how Triton masks: it gives such lanes an offset of 2**31."""
    data = random_bytes(1024)
    memory, tensor, S = on_memory(data)
    place = np.where(SOME, LANE * 16, 0x80000000).astype(np.uint32)
    V = {2: place, **dict.fromkeys((10, 11, 12, 13), OLD)}
    S |= {6: 1024, 7: 0x27000}
    w = execute("buffer_load_dwordx4 v[10:13], v2, s[4:7], 0 offen", V=V, S=S, memory=memory)
    for lane in range(64):
        assert registers(w, 10, 4, lane) == (word_at(data, 16 * lane, 16) if SOME[lane] else 0)
    w = execute("buffer_load_short_d16_hi v10, v2, s[4:7], 0 offen", V=V, S=S, memory=memory)
    assert (w.V[10, 0][~SOME] == OLD & 0xFFFF).all()
    execute("buffer_store_dword v10, v2, s[4:7], 0 offen", V=V, S=S, memory=memory)
    assert (tensor.numpy().view(np.uint32)[::4] == np.where(SOME, OLD, data.view(np.uint32)[::4])).all()


def test_a_resource_ends_at_its_size_even_within_a_tensor():
    data = random_bytes(1024)
    memory, _, S = on_memory(data)
    place = np.where(LANE % 2, 512, 508).astype(np.uint32)
    w = execute("buffer_load_dword v10, v2, s[4:7], 0 offen", V={2: place}, S=S | {6: 512, 7: 0}, memory=memory)
    assert w.V[10, 0].tolist() == [0 if lane % 2 else word_at(data, 508, 4) for lane in range(64)]


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_negative_offset_of_a_lane_may_become_positive_by_the_constant(arch):
    """The compiler makes it so of `(31 - row) * 33 + (31 - column)`; the two are added in 32 bits."""
    data = random_bytes(1024)
    memory, _, S = on_memory(data)
    lanes = 64 if arch.startswith("gfx9") else 32
    text = "buffer_load_ubyte v10, v2, s[4:7], 0 offen offset:63"
    text = text if lanes == 64 else text.replace("ubyte", "u8")
    place = (-np.arange(lanes)).astype(np.uint32)
    w = execute(text, arch=arch, V={2: place}, S=S | {6: 1024, 7: 0}, memory=memory)
    assert w.V[10, 0].tolist() == [int(data[63 - lane]) for lane in range(lanes)]


def test_illegal_accesses_name_the_element_and_touch_nothing():
    memory, tensor, S = on_memory(np.zeros(256, np.uint8))
    where = (LANE * 8).astype(np.uint32)
    with pytest.raises(IllegalAccess, match=r"lane 32 of wave 0 of program 0 stores element 256 of x, past the end"):
        execute("global_store_dword v2, v4, s[4:5]", V={2: where, 4: 1}, S=S, memory=memory)
    assert not tensor.any()
    execute("global_store_dword v2, v4, s[4:5]", V={2: where, 4: 1}, S=S, memory=memory, lanes_on=LANE < 32)
    assert tensor[::8].all()


SCALAR_LOADS = {"s_load_dword": 4, "s_load_dwordx2": 8, "s_load_dwordx4": 16, "s_load_dwordx8": 32}
SCALAR_LOADS |= {"s_load_b32": 4, "s_load_b96": 12, "s_load_b256": 32, "s_load_b512": 64}


@pytest.mark.parametrize("name", SCALAR_LOADS)
def test_scalar_loads(name):
    width = SCALAR_LOADS[name]
    data = random_bytes(512)
    memory, _, S = on_memory(data)
    destination = f"s[20:{20 + width // 4 - 1}]" if width > 4 else "s20"
    arch = "gfx942" if "dword" in name else "gfx1201"
    w = execute(f"{name} {destination}, s[4:5], 0x40", arch=arch, S=S, memory=memory)
    assert w.S[0, 20 : 20 + width // 4].tolist() == data[64 : 64 + width].view(np.uint32).tolist()
    w = execute(f"{name} {destination}, s[4:5], s8 offset:0x10", arch=arch, S=S | {8: 128}, memory=memory)
    assert w.S[0, 20] == word_at(data, 144, 4)


@pytest.mark.parametrize("name, bits, sign", [("u8", 8, False), ("i8", 8, True), ("u16", 16, False), ("i16", 16, True)])
def test_narrow_scalar_loads(name, bits, sign):
    data = np.array([0xF1, 0xE2, 3, 4], np.uint8)
    memory, _, S = on_memory(data)
    w = execute(f"s_load_{name} s20, s[4:5], 0x0", arch="gfx1201", S=S, memory=memory)
    value = word_at(data, 0, bits // 8)
    assert w.S[0, 20] == (signed(value, bits) & 0xFFFFFFFF if sign else value)


# ---- LDS -------------------------------------------------------------------------------------------------------------

LDS_LOADS = {
    "ds_read_b32": LOADS["dword"],
    "ds_read_b64": LOADS["dwordx2"],
    "ds_read_b96": LOADS["dwordx3"],
    "ds_read_b128": LOADS["dwordx4"],
    "ds_read_u16": LOADS["ushort"],
    "ds_read_i16": LOADS["sshort"],
    "ds_read_u8": LOADS["ubyte"],
    "ds_read_i8": LOADS["sbyte"],
    "ds_read_u16_d16": LOADS["short_d16"],
    "ds_read_u16_d16_hi": LOADS["short_d16_hi"],
    "ds_read_u8_d16_hi": LOADS["ubyte_d16_hi"],
    "ds_load_b128": LOADS["dwordx4"],
    "ds_load_u16_d16_hi": LOADS["short_d16_hi"],
}


@pytest.mark.parametrize("name", LDS_LOADS)
def test_lds_loads(name):
    width, filled = LDS_LOADS[name]
    lanes = 64 if "read" in name else 32
    data = random_bytes(2048)
    place = (GENERATOR.permutation(100)[:lanes] * 16).astype(np.uint32)
    w = execute(
        f"{name} {named(width)}, v2 offset:48",
        arch="gfx942" if lanes == 64 else "gfx1100",
        V={2: place, 10: OLD},
        lds=data,
        lanes_on=SOME[:lanes],
    )
    for lane in np.flatnonzero(SOME[:lanes]):
        wanted = filled(word_at(data, int(place[lane]) + 48, width))
        assert registers(w, 10, max(1, width // 4), lane) == wanted
    assert (w.V[10, 0][~SOME[:lanes]] == OLD).all()


@pytest.mark.parametrize(
    "name, width, unit",
    [
        ("ds_read2_b32", 4, 4),
        ("ds_read2_b64", 8, 8),
        ("ds_read2st64_b32", 4, 256),
        ("ds_read2st64_b64", 8, 512),
        ("ds_load_2addr_b64", 8, 8),
        ("ds_load_2addr_stride64_b32", 4, 256),
    ],
)
def test_two_lds_loads_at_once(name, width, unit):
    lanes = 64 if "read" in name else 32
    arch = "gfx942" if lanes == 64 else "gfx1100"
    data = random_bytes(8192)
    place = (GENERATOR.permutation(64)[:lanes] * 8).astype(np.uint32)
    w = execute(f"{name} {named(2 * width)}, v2 offset0:3 offset1:9", arch=arch, V={2: place}, lds=data)
    for lane in range(lanes):
        first, second = (word_at(data, int(place[lane]) + n * unit, width) for n in (3, 9))
        assert registers(w, 10, width // 2, lane) == first | second << 8 * width


@pytest.mark.parametrize(
    "text, width, offsets, shift",
    [
        ("ds_write_b32 v2, v10 offset:64", 4, [64], 0),
        ("ds_write_b64 v2, v[10:11]", 8, [0], 0),
        ("ds_write_b128 v2, v[10:13]", 16, [0], 0),
        ("ds_write_b8 v2, v10", 1, [0], 0),
        ("ds_write_b16 v2, v10", 2, [0], 0),
        ("ds_write_b16_d16_hi v2, v10 offset:2", 2, [2], 16),
        ("ds_write_b8_d16_hi v2, v10", 1, [0], 16),
        ("ds_write2_b32 v2, v10, v12 offset0:1 offset1:2", 4, [4, 8], 0),
        ("ds_write2_b64 v2, v[10:11], v[12:13] offset1:1", 8, [0, 8], 0),
        ("ds_write2st64_b32 v2, v10, v12 offset0:4 offset1:8", 4, [1024, 2048], 0),
    ],
)
def test_lds_stores(text, width, offsets, shift):
    data = random_bytes(4096)
    place = (GENERATOR.permutation(64) * 16).astype(np.uint32)
    values = {10 + i: GENERATOR.integers(0, 1 << 32, 64, np.uint32) for i in range(4)}
    w = execute(text, V={2: place, **values}, lds=data, lanes_on=SOME)
    wanted = data.copy()
    for lane in np.flatnonzero(SOME):
        for number, offset in enumerate(offsets):
            stored = sum(int(values[10 + 2 * number + i][lane]) << 32 * i for i in range(4 - 2 * number)) >> shift
            start = int(place[lane]) + offset
            low = stored & (1 << 8 * width) - 1
            wanted[start : start + width] = np.frombuffer(low.to_bytes(width, "little"), np.uint8)
    assert (lds_bytes(w)[0] == wanted).all()


def test_workgroups_have_an_lds_each():
    text = "ds_write_b32 v2, v4\nds_read_b32 v10, v2"
    w = execute(
        text, V={2: LANE.astype(np.uint32) * 4, 4: np.arange(192).reshape(3, 64)}, waves=3, lds=random_bytes(256)
    )
    assert (w.V[10] == np.arange(192).reshape(3, 64)).all()


@pytest.mark.parametrize("name, bits", [("ds_read_b64_tr_b16", 16), ("ds_read_b64_tr_b8", 8)])
def test_transposing_reads(name, bits):
    """16 lanes read 16 rows of 64 bits: lane i gets column i of the 64 x 16 bits matrix that their words make."""
    size, columns = bits // 8, 64 // bits
    data = random_bytes(512)
    place = GENERATOR.permutation(64).astype(np.uint32) * 8
    w = execute(f"{name} v[10:11], v2", arch="gfx950", V={2: place}, lds=data)
    for lane in range(64):
        # the words of the 16 lanes, one after another, are a matrix with rows of 16 elements
        words = b"".join(data[place[16 * (lane // 16) + i] :][:8].tobytes() for i in range(16))
        elements = [words[size * i : size * (i + 1)] for i in range(len(words) // size)]
        wanted = b"".join(elements[16 * row + lane % 16] for row in range(columns))
        assert registers(w, 10, 2, lane) == int.from_bytes(wanted, "little"), lane


@pytest.mark.parametrize("text", ["buffer_load_{} v2, s[4:7], 0 offen lds", "global_load_lds_{} v[2:3], off"])
@pytest.mark.parametrize("suffix, width", [("dword", 4), ("dwordx3", 12), ("dwordx4", 16)])
def test_loads_straight_into_lds(text, suffix, width):
    data, before = random_bytes(2048), random_bytes(2048)
    memory, _, S = on_memory(data)
    place = (GENERATOR.permutation(100)[:64] * 16).astype(np.uint32)
    resource = "buffer" in text
    if resource:
        place[5] = 0x80000000
    S |= {6: 2048, 7: 0, 12: 64}
    w = execute(
        f"s_mov_b32 m0, s12\n{text.format(suffix)} offset:32",
        arch="gfx950",
        V={2: place if resource else place + np.uint32(S[4]), 3: S[5]},
        S=S,
        memory=memory,
        lds=before,
        lanes_on=SOME,
    )
    after = lds_bytes(w)[0]
    for lane in range(64):
        here = slice(96 + width * lane, 96 + width * (lane + 1))
        wanted = data[place[lane] + 32 :][:width] if lane != 5 or not resource else np.zeros(width, np.uint8)
        assert (after[here] == (wanted if SOME[lane] else before[here])).all(), lane


def test_a_tensor_smaller_than_the_access():
    memory = GlobalMemory()
    address = memory.add_tensor("scale", torch.ones(1))
    (region,) = memory.regions
    assert region.holds(np.array([0]), 4).all() and not region.holds(np.array([0, 4, address]), 16).any()


# ---- private memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arch, store, load",
    [
        (
            "gfx942",
            "scratch_store_dwordx2 off, v[2:3], off offset:16",
            "scratch_load_dwordx2 v[10:11], off, off offset:16",
        ),
        ("gfx942", "scratch_store_dwordx2 off, v[2:3], s4", "scratch_load_dwordx2 v[10:11], v4, off offset:4"),
        ("gfx1100", "scratch_store_b64 off, v[2:3], off offset:8", "scratch_load_b64 v[10:11], off, off offset:8"),
    ],
)
def test_every_lane_has_private_memory(arch, store, load):
    lanes = 64 if arch == "gfx942" else 32
    values = GENERATOR.integers(0, 1 << 32, (2, 2, lanes), np.uint32)
    V = {2: values[0], 3: values[1], 4: np.full(lanes, 8, np.uint32)}
    w = execute(f"{store}\nv_mov_b32_e32 v2, 0\n{load}", arch=arch, V=V, S={4: 12}, waves=2, scratch=32)
    assert (w.V[10:12] == values).all()


def test_a_scalar_offset_of_gfx90as_private_memory_counts_all_lanes():
    """Registers of 64 lanes lie side by side there: what is 12 bytes for a lane is 12 * 64 for the scalar offset."""
    V = {2: GENERATOR.integers(0, 1 << 32, (2, 64), np.uint32)}
    store = "buffer_store_dword v2, off, s[0:3], s4 offset:4 ; 4-byte Folded Spill"
    load = "buffer_load_dword v10, off, s[0:3], 0 offset:16 ; 4-byte Folded Reload"
    w = execute(f"{store}\n{load}", arch="gfx90a", V=V, S={4: 12 * 64}, waves=2, scratch=32)
    assert (w.V[10] == V[2]).all()


# ---- atomics ---------------------------------------------------------------------------------------------------------


def test_workgroups_that_run_together_have_lds_of_their_own_for_atomics_too():
    """Equal addresses in two workgroups are two places: a histogram of each program."""
    lane = np.arange(64, dtype=np.uint32)
    V = {2: lane // 16 * 4, 3: np.stack([lane, 1000 + lane])}
    lds = np.arange(4, dtype=np.uint32).view(np.uint8)
    w = execute("ds_add_rtn_u32 v4, v2, v3\nds_read_b32 v10, v2", V=V, waves=2, lds=lds)
    for wave, start in enumerate((0, 1000)):
        added = (start + lane).reshape(4, 16)
        assert np.array_equal(w.V[10, wave].reshape(4, 16)[:, 0], np.arange(4) + added.sum(axis=1))
        before = np.cumsum(added, axis=1) - added + np.arange(4)[:, None]
        assert np.array_equal(w.V[4, wave].reshape(4, 16), before)


EXCHANGES = {
    "add": lambda old, new: old + new,
    "sub": lambda old, new: old - new,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "swap": lambda old, new: new,
    "smax": lambda old, new: max(signed(old), signed(new)),
    "smin": lambda old, new: min(signed(old), signed(new)),
    "umax": max,
    "umin": min,
    "add_f32": lambda old, new: add(F32, old, new),
    "pk_add_f16": lambda old, new: add(F16, old & 0xFFFF, new & 0xFFFF) | add(F16, old >> 16, new >> 16) << 16,
    "pk_add_bf16": lambda old, new: add(BF16, old & 0xFFFF, new & 0xFFFF) | add(BF16, old >> 16, new >> 16) << 16,
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_atomics_of_lanes_that_meet(name):
    """Lanes take turns from the first to the last; each sees what the one before left."""
    data = GENERATOR.integers(0, 1 << 32, 8, np.uint32)
    new = GENERATOR.integers(0, 1 << 32, 64, np.uint32)
    if "_f16" in name or "_bf16" in name or "f32" in name:  # no infinity or NaN
        data, new = data & np.uint32(0xBEFFBEFF), new & np.uint32(0xBEFFBEFF)
    target = GENERATOR.integers(0, 8, 64)
    memory, tensor, S = on_memory(data.view(np.uint8))
    text = f"global_atomic_{name} v10, v2, v4, s[4:5] sc0"
    w = execute(text, V={2: target.astype(np.uint32) * 4, 4: new, 10: OLD}, S=S, memory=memory, lanes_on=SOME)
    held = data.tolist()
    for lane in range(64):
        if not SOME[lane]:
            assert w.V[10, 0, lane] == OLD
            continue
        assert w.V[10, 0, lane] == held[target[lane]]
        held[target[lane]] = EXCHANGES[name](held[target[lane]], int(new[lane])) & 0xFFFFFFFF
    assert tensor.numpy().view(np.uint32).tolist() == held


@pytest.mark.parametrize("name", ["add_x2", "umax_x2", "smin_x2", "swap_x2"])
def test_atomics_of_64_bits(name):
    data = GENERATOR.integers(0, 1 << 63, 4, np.uint64) * np.uint64(2)
    new = GENERATOR.integers(0, 1 << 63, 64, np.uint64) * np.uint64(2)
    target = LANE % 4
    memory, tensor, S = on_memory(data.view(np.uint8))
    V = {2: target.astype(np.uint32) * 8, 4: (new & np.uint64(0xFFFFFFFF)).astype(np.uint32)}
    V[5] = (new >> np.uint64(32)).astype(np.uint32)
    execute(f"global_atomic_{name} v2, v[4:5], s[4:5]", V=V, S=S, memory=memory)
    compute = {
        "add_x2": int.__add__,
        "umax_x2": max,
        "smin_x2": lambda old, value: min(signed(old, 64), signed(value, 64)),
        "swap_x2": lambda old, value: value,
    }[name]
    held = data.tolist()
    for lane in range(64):
        held[target[lane]] = compute(held[target[lane]], int(new[lane])) & 0xFFFFFFFFFFFFFFFF
    assert tensor.numpy().view(np.uint64).tolist() == held


@pytest.mark.parametrize("arch, name, flag", [("gfx942", "cmpswap", "sc0"), ("gfx1100", "cmpswap_b32", "glc")])
def test_compare_and_swap_lets_one_of_several_win(arch, name, flag):
    lanes = 64 if arch == "gfx942" else 32
    memory, tensor, S = on_memory(np.zeros(2, np.uint32).view(np.uint8))
    V = {2: (LANE[:lanes] % 2 * 4).astype(np.uint32), 4: LANE[:lanes] + 100, 5: np.zeros(lanes, np.uint32)}
    text = f"global_atomic_{name} v10, v2, v[4:5], s[4:5] {flag}"
    w = execute(text, arch=arch, V=V, S=S, memory=memory)
    assert tensor.numpy().view(np.uint32).tolist() == [100, 101]
    assert w.V[10, 0].tolist() == [0, 0] + [100 + i % 2 for i in range(2, lanes)]


def test_atomics_through_a_resource_skip_lanes_out_of_range():
    memory, tensor, S = on_memory(np.zeros(4, np.uint32).view(np.uint8))
    place = np.where(SOME, 4, 0x80000000).astype(np.uint32)
    execute("buffer_atomic_add v4, v2, s[4:7], 0 offen", V={2: place, 4: 3}, S=S | {6: 16, 7: 0}, memory=memory)
    assert tensor.numpy().view(np.uint32).tolist() == [0, 3 * SOME.sum(), 0, 0]


@pytest.mark.parametrize(
    "name, compute",
    [
        ("ds_add_u32", lambda old, new: old + new),
        ("ds_max_i32", lambda old, new: max(signed(old), signed(new))),
        ("ds_or_b32", lambda old, new: old | new),
        ("ds_add_f32", lambda old, new: add(F32, old, new)),
    ],
)
@pytest.mark.parametrize("returns", [False, True])
def test_lds_atomics(name, compute, returns):
    data = GENERATOR.integers(0, 1 << 32, 4, np.uint32) & np.uint32(0xBEFFFFFF)
    new = GENERATOR.integers(0, 1 << 32, 64, np.uint32) & np.uint32(0xBEFFFFFF)
    stem, _, kind = name.rpartition("_")
    text = f"{stem}_rtn_{kind} v10, v2, v4 offset:4" if returns else f"{name} v2, v4 offset:4"
    place = (LANE % 3 * 4).astype(np.uint32)
    w = execute(text, V={2: place, 4: new, 10: OLD}, lds=data.view(np.uint8), lanes_on=SOME)
    held = data.tolist()
    for lane in np.flatnonzero(SOME):
        where = lane % 3 + 1
        assert w.V[10, 0, lane] == (held[where] if returns else OLD)
        held[where] = compute(held[where], int(new[lane])) & 0xFFFFFFFF
    assert lds_bytes(w)[0].view(np.uint32).tolist() == held


# ---- less common accesses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix, high", [("d16_i8", False), ("d16_hi_i8", True)])
def test_a_signed_byte_fills_half_a_register(suffix, high):
    data = np.array([0x80, 0x7F, 0xFF, 0] * 8, np.uint8)
    memory, _, S = on_memory(data)
    w = execute(f"global_load_{suffix} v10, v2, s[4:5]", arch="gfx1100", V={2: LANE[:32], 10: OLD}, S=S, memory=memory)
    extended = data.view(np.int8).astype(np.int16).view(np.uint16).astype(np.uint32)
    wanted = extended << 16 | OLD & 0xFFFF if high else extended | OLD & 0xFFFF0000
    assert (w.V[10, 0] == wanted).all()


def test_an_address_in_lds_wraps_at_32_bits():
    data = random_bytes(1024)
    place = (LANE * 8 - 512).astype(np.uint32)
    w = execute(
        "ds_read_b64 v[10:11], v2 offset:512\nds_read2_b32 v[12:13], v2 offset0:128 offset1:129", V={2: place}, lds=data
    )
    for lane in range(64):
        assert registers(w, 10, 2, lane) == registers(w, 12, 2, lane) == word_at(data, 8 * lane, 8)


ATOMICS = {  # name: (bytes, what becomes of the old number)
    "inc_u32": (4, lambda old, new: 0 if old >= new else old + 1),
    "dec_u32": (4, lambda old, new: new if old == 0 or old > new else old - 1),
    "max_i64": (8, lambda old, new: max(old, new, key=lambda x: signed(x, 64))),
    "rsub_u64": (8, lambda old, new: new - old & (1 << 64) - 1),
    "add_u64": (8, lambda old, new: old + new & (1 << 64) - 1),
}


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_of_lds(name):
    width, change = ATOMICS[name]
    data = random_bytes(512)
    data[:16] = 0
    new = [int(x) for x in GENERATOR.integers(0, 1 << 63, 32)]
    V = {2: LANE[:32] * width, 4: np.array(new) & 0xFFFFFFFF, 5: np.array(new) >> 32}
    operation, kind = name.rsplit("_", 1)
    result, source = ("v[10:11]", "v[4:5]") if width == 8 else ("v10", "v4")
    w = execute(f"ds_{operation}_rtn_{kind} {result}, v2, {source}", arch="gfx1100", V=V, lds=data)
    after = lds_bytes(w)[0]
    for lane in range(32):
        old = word_at(data, width * lane, width)
        assert registers(w, 10, width // 4, lane) == old
        assert word_at(after, width * lane, width) == change(old, new[lane] & (1 << 8 * width) - 1)


@pytest.mark.parametrize("arch, text", [
    ("gfx942", "ds_cmpst_rtn_b32 v10, v2, v6, v4"),  # what is expected stands first
    ("gfx1100", "ds_cmpstore_rtn_b32 v10, v2, v4, v6"),
])  # fmt: skip
def test_compare_and_swap_in_lds(arch, text):
    data = np.arange(64, dtype=np.uint32).view(np.uint8)
    lanes = 64 if arch == "gfx942" else 32
    lane = np.arange(lanes)
    w = execute(text, arch=arch, V={2: 4 * lane, 4: 1000 + lane, 6: np.where(lane % 2, lane, 77)}, lds=data)
    assert (lds_bytes(w)[0].view(np.uint32)[:lanes] == np.where(lane % 2, 1000 + lane, lane)).all()
    assert (w.V[10, 0] == lane).all()


def test_two_exchanges_at_once():
    lane, lds = LANE[:32], np.arange(64, dtype=np.uint32).view(np.uint8)
    text = "ds_storexchg_2addr_rtn_b32 v[10:11], v2, v4, v6 offset1:32"
    w = execute(text, arch="gfx1100", V={2: 4 * lane, 4: lane + 100, 6: lane + 200}, lds=lds)
    assert (lds_bytes(w)[0].view(np.uint32) == np.r_[100:132, 200:232]).all()
    assert (w.V[10, 0] == lane).all() and (w.V[11, 0] == lane + 32).all()


@pytest.mark.parametrize("name, compute", [("add_f64", np.add), ("max_f64", np.maximum), ("min_f64", np.minimum)])
def test_atomics_of_doubles(name, compute):
    old, new = GENERATOR.normal(size=64), GENERATOR.normal(size=64)
    memory, tensor, S = on_memory(old.view(np.uint8))
    words = new.view(np.uint32).reshape(64, 2)
    execute(
        f"global_atomic_{name} v2, v[4:5], s[4:5]", V={2: 8 * LANE, 4: words[:, 0], 5: words[:, 1]}, S=S, memory=memory
    )
    assert (tensor.numpy().view(np.float64) == compute(old, new)).all()


@pytest.mark.parametrize("count", [1, 2, 33])
def test_a_compare_and_swap_around_the_last_of_an_odd_number_of_halves(count):
    """How compilers add to a float16: the word around it is loaded and swapped, whose other half is no one's."""
    tensor, memory = torch.arange(count, dtype=torch.int16), GlobalMemory()
    base = memory.add_tensor("x", tensor)
    address = base + 2 * (count - 1) & ~3
    shift = 16 * ((count - 1) % 2)
    old = 0 if count == 1 else (count - 1) << shift | (count - 2 if shift else 0)
    text = "global_load_dword v10, v[2:3], off\nglobal_atomic_cmpswap v11, v[2:3], v[4:5], off sc0"
    V = {2: address & 0xFFFFFFFF, 3: address >> 32, 4: old + (500 << shift), 5: old}
    w = execute(text, V=V, memory=memory, lanes_on=LANE == 0)
    assert int(w.V[10, 0, 0]) == int(w.V[11, 0, 0]) == old
    assert tensor.tolist() == [*range(count - 1), count - 1 + 500]


def test_a_load_of_a_word_around_an_element_alone_is_refused():
    memory = GlobalMemory()
    address = memory.add_tensor("x", torch.zeros(33, dtype=torch.int16)) + 64
    with pytest.raises(IllegalAccess):
        execute("global_load_dword v10, v[2:3], off", V={2: address & 0xFFFFFFFF, 3: address >> 32}, memory=memory)
