"""Accesses to LDS that the extension does by itself, since it is known what they lead to: the same as one by one."""

from __future__ import annotations

import random

import pytest
import torch
from assembly import launch

from gfxlab.simulator.compiled import extension
from gfxlab.simulator.instructions.local_data import LocalAccess

pytestmark = pytest.mark.skipif(extension.EXTENSION is None, reason="the extension is not built")

PROGRAMS, WAVES, LDS = 5, 2, 4096
LANES = {"gfx942": 64, "gfx1100": 32}
NAMES = {
    "gfx942": ("ds_read", "ds_write", "v_add_u32", "s_load_dwordx2", "global_store_dword"),
    "gfx1100": ("ds_load", "ds_store", "v_add_nc_u32", "s_load_b64", "global_store_b32"),
}
# s4: turns, another number in each program; s5: this one; s6: 1 in one turn of program 3; v1: side by side; v2: of the
# other wave; v3: 16 bytes each, v4: one place for all; v8: the sum of all that was read.
BEGIN = """{load} s[8:9], s[0:1], 0x0
    s_waitcnt lgkmcnt(0)
    s_and_b32 s4, s2, 3
    s_add_i32 s4, s4, 4
    s_mov_b32 s5, 0
    v_lshlrev_b32 v1, 2, v0
    v_xor_b32 v2, {wave}, v1
    v_lshlrev_b32 v3, 4, v0
    v_mov_b32 v4, 0x800
    v_mov_b32 v8, 0
    v_mov_b32 v9, v0
    v_mov_b32 v10, 7
    v_mov_b32 v11, v1
    {first}
    .LBB0_1:
    s_cmp_eq_u32 s2, 3
    s_cselect_b32 s6, 1, 0
    s_cmp_eq_u32 s5, 3
    s_cselect_b32 s6, s6, 0"""
END = """s_add_i32 s5, s5, 1
    s_cmp_lt_u32 s5, s4
    s_cbranch_scc1 .LBB0_1
    s_mul_i32 s6, s2, {threads}
    {add} v1, s6, v0
    v_lshlrev_b32 v1, 2, v1
    {keep} v1, v8, s[8:9]"""


def some_code(seed: int, arch: str) -> str:
    """A loop of loads, stores and barriers; what is wrong with it is left to chance, every third one is tame."""
    chance, tame = random.Random(seed), seed % 3 == 0
    read, write, add, load, keep = NAMES[arch]
    wave = 4 * LANES[arch]

    def one(line: int) -> str:
        address, offset = chance.choice(["v1", "v1", "v3", "v2", "v2", "v4"]), chance.choice([0, 0, 512, 1024, 4000])
        if tame:
            address, offset = chance.choice(["v1", "v2"]), 0
        add_read = f"s_waitcnt lgkmcnt(0)\n{add} v8, v8, v12"
        return f"# {line}\n" + chance.choice(
            [
                f"{read}_b32 v12, {address} offset:{offset}\n{add_read}",
                f"{read}_b64 v[12:13], {address} offset:{offset}\n{add_read}",
                f"{read}2_b32 v[12:13], {address} offset1:{chance.choice([1, 64, 128])}\n{add_read}".replace(
                    "load2", "load_2addr"
                ),
                f"{read}_u8 v12, {address} offset:{offset}\n{add_read}",
                f"{write}_b32 {address}, v9 offset:{offset}",
                f"{write}_b32 {address}, v{chance.choice([8, 9, 10])}",
                f"{write}_b128 v3, v[8:11] offset:{offset}",
                "s_barrier",
                "s_barrier",
                "s_barrier",
                f"v_xor_b32 v{chance.choice([1, 3])}, {wave if chance.random() < 0.5 else 256}, v1",
                f"v_lshlrev_b32 v5, s6, v1\n{write}_b32 v5, v9",
                f"{add} v4, s6, v4",
            ]
        )

    first = (
        f"{write}_b32 v1, v9\ns_barrier\n{write}_b128 v3, v[8:11]\ns_barrier" if tame or chance.random() < 0.6 else ""
    )
    body = [one(100 + line) + "\ns_barrier" * tame for line in range(chance.randint(4, 10))]
    barrier = ["s_barrier"] * (chance.random() < 0.8)
    sizes = {"threads": WAVES * LANES[arch], "wave": wave, "first": first, "load": load, "add": add, "keep": keep}
    return "\n".join([BEGIN.format(**sizes), *body, *barrier, END.format(**sizes)])


def outcome(code: str, arch: str, monkeypatch, how: str) -> tuple:
    """What a launch leaves in memory and says, without the extension ("0") and with it."""
    monkeypatch.setenv(extension.VARIABLE, how)
    y = torch.zeros(PROGRAMS * WAVES * LANES[arch], dtype=torch.int32)
    run = launch(code, y, lds=LDS, waves=WAVES, grid=PROGRAMS, arch=arch, profile=False)
    return y.tolist(), run.wrong, run.executed.tolist()


@pytest.mark.parametrize("arch", LANES)
def test_any_code(arch, monkeypatch):
    found = set()
    for seed in range(18):
        code = some_code(seed, arch)
        wanted = outcome(code, arch, monkeypatch, "0")
        for _ in range(2):  # what is known stays known for the next launch
            assert outcome(code, arch, monkeypatch, "1") == wanted, code
        found |= {word for word in ("no barrier", "before anybody wrote") for note in wanted[1] if word in note}
        found |= {"nothing"} if not wanted[1] else set()
    assert found == {"no barrier", "before anybody wrote", "nothing"}


LOOP = """v_lshlrev_b32 v1, 2, v0
    v_xor_b32 v2, 0x100, v1
    s_mov_b32 s5, 0
    ds_write_b32 v1, v0 offset:512
    .LBB0_1:
    ds_write_b32 v1, v0
    s_barrier
    ds_read2_b32 v[3:4], v2 offset1:128
    ds_read_b32 v5, v1
    s_barrier
    ds_write_b32 v1, v5 offset:512
    s_barrier
    s_add_i32 s5, s5, 1
    s_cmp_lt_u32 s5, 50
    s_cbranch_scc1 .LBB0_1"""


@pytest.mark.parametrize("profile", [False, True])
def test_only_what_is_new_is_looked_at(profile, monkeypatch):
    monkeypatch.delenv(extension.VARIABLE, raising=False)
    done = []
    step = LocalAccess.__call__
    monkeypatch.setattr(LocalAccess, "__call__", lambda self, w: (done.append(self), step(self, w)))
    assert not launch(LOOP, lds=1024, waves=2, grid=3, profile=profile).wrong
    assert len(done) == (201 if profile else 6)


def test_each_workgroup_writes_for_itself(monkeypatch):
    """One after the other stores in the same way, and then all read: nobody's bytes count as written by another."""
    monkeypatch.delenv(extension.VARIABLE, raising=False)
    code = """v_lshlrev_b32 v1, 2, v0
        s_mov_b32 s5, 0
        .LBB0_1:
        s_cmp_eq_u32 s5, s2
        s_cbranch_scc0 .LBB0_2
        ds_write_b32 v1, v0
        .LBB0_2:
        s_barrier
        s_add_i32 s5, s5, 1
        s_cmp_lt_u32 s5, {turns}
        s_cbranch_scc1 .LBB0_1
        ds_read_b32 v3, v1"""
    assert launch(code.format(turns=4), lds=512, waves=2, grid=4, profile=False).wrong == ()
    (note,) = launch(code.format(turns=3), lds=512, waves=2, grid=4, profile=False).wrong
    assert "lane 0 of wave 0 of program 3 reads byte 0 of LDS before anybody wrote it" in note


def test_what_is_taught_must_fit():
    states, local = torch.zeros(3, dtype=torch.int64).numpy(), torch.zeros(96, dtype=torch.uint8).numpy()
    known_ones = extension.EXTENSION.known(local, states, 32, 32, 2, 64)
    words = torch.zeros((2, 64), dtype=torch.int32).numpy()
    extension.EXTENSION.teach(known_ones, 0, words, 0, 1, ())
    for wrong in ((words[:1], ()), (words, (states,)), (words, (local,))):
        with pytest.raises(ValueError, match="must be"):
            extension.EXTENSION.teach(known_ones, 1, wrong[0], 0, 1, wrong[1])
    with pytest.raises(ValueError, match="no workgroups of 0 waves"):
        extension.EXTENSION.known(local, states, 32, 32, 0, 64)
