"""Whole launches come out alike with the extension and without: memory, counts, what is wrong, what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from assembly import launch

from gfxlab.engine import dual_mode
from gfxlab.simulator import IllegalAccess, simulate
from gfxlab.simulator.compiled import extension
from gfxlab.simulator.show.run import Run

pytestmark = [
    pytest.mark.skipif(extension.EXTENSION is None, reason="the extension is not built"),
    pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile"),
]
ARCHES = ["gfx942", "gfx1100"]  # waves of 64 lanes, and of 32
OTHERS = ["gfx90a", "gfx950", "gfx1201"]  # `make test` takes them in turn


@triton.jit
def softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    x = tl.load(x_ptr + row + place, mask=place < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + place, e / tl.sum(e, 0), mask=place < columns)


@triton.jit
def far(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    from_end = (n - 1 - place) * stride.to(tl.int64)
    value = tl.load(x_ptr + from_end, mask=from_end >= 0)
    tl.store(y_ptr + place, value * 3 - (value >> 2), mask=place < n)


@triton.jit
def product(a_ptr, b_ptr, y_ptr, N: tl.constexpr, K: tl.constexpr):
    n, k = tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((N, N), tl.float32)
    for turn in range(2):
        a = tl.load(a_ptr + n[:, None] * 2 * K + turn * K + k[None, :])
        b = tl.load(b_ptr + (turn * K + k[:, None]) * N + n[None, :])
        total = tl.dot(a, b, total)
    tl.store(y_ptr + n[:, None] * N + n[None, :], total.to(y_ptr.dtype.element_ty))


@triton.jit
def collatz(count_ptr, most_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.where(place < n, place + 1, 1)
    turns = tl.zeros((BLOCK,), tl.int32)
    while tl.max(value, 0) > 1:
        going = value > 1
        tl.atomic_add(count_ptr + value % 7, 1, mask=going)
        value = tl.where(going, tl.where(value % 2 == 0, value // 2, 3 * value + 1), value)
        turns += going.to(tl.int32)
    tl.atomic_max(most_ptr, tl.max(turns, 0))


@triton.jit
def masked(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    odd = place % 3 != 1
    x = tl.load(x_ptr + place, mask=odd & (place < n), other=-1)
    x = tl.where(x > 40, x.to(tl.int8).to(tl.int32), tl.cumsum(x, 0))
    tl.store(y_ptr + place, x.to(tl.int16), mask=(place % 5 < 3) & (place < n))


@triton.jit
def one_place(y_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(y_ptr + place, tl.program_id(0) * place)


@triton.jit
def beyond(x_ptr, y_ptr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + place, tl.load(x_ptr + place) * 2)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(dtype)


def whole(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.int32) * 37 % 113 - 20


def of_dot(dtype: torch.dtype):
    a, b = normal(32, 64, dtype=dtype), normal(64, 32, dtype=dtype)
    return product, (1,), lambda: (a, b, torch.zeros(32, 32, dtype=dtype)), {"N": 32, "K": 32}


CASES = {  # kernel, grid, makes its arguments, constexprs
    "softmax with a tail": (softmax, (5,), lambda: (normal(5, 200), torch.zeros(5, 200), 200), {"BLOCK": 256}),
    "softmax of bfloat16": (
        softmax,
        (3,),
        lambda: (normal(3, 77, dtype=torch.bfloat16), torch.zeros(3, 77, dtype=torch.bfloat16), 77),
        {"BLOCK": 128},
    ),
    "64-bit addresses": (far, (3,), lambda: (whole(900), torch.zeros(300, dtype=torch.int32), 3, 300), {"BLOCK": 128}),
    "dot of float16": of_dot(torch.float16),
    "dot of bfloat16": of_dot(torch.bfloat16),
    "loop with atomics": (
        collatz,
        (2,),
        lambda: (torch.zeros(7, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), 20),
        {"BLOCK": 16},
    ),
    "masks": (masked, (2,), lambda: (whole(200), torch.zeros(200, dtype=torch.int16), 200), {"BLOCK": 128}),
    "stores of several programs": (one_place, (3,), lambda: (torch.zeros(128, dtype=torch.int32),), {"BLOCK": 128}),
}


def told(run: Run) -> dict:
    """What a launch counted and found."""
    facts = {"executed": run.executed.tolist(), "wrong": run.wrong}
    if (profile := run.profile) is None:
        return facts
    return facts | {
        "lanes": np.asarray(profile.lanes).tolist(),
        "traffic": {str(i): dataclasses.astuple(one) for i, one in profile.traffic.items()},
        "LDS": {str(i): dataclasses.astuple(one) for i, one in profile.local.items()},
        "slow": run.slow,
    }


def both(monkeypatch, do) -> tuple[list, list]:
    """What `do` gives without the extension, and with it."""
    found = []
    for value in ("0", "1"):
        monkeypatch.setenv(extension.VARIABLE, value)
        found.append(do())
    return found


def everywhere():
    for place, case in enumerate(CASES):
        yield from ((case, arch) for arch in ARCHES)
        for arch in OTHERS:
            yield pytest.param(case, arch, marks=() if arch == OTHERS[place % 3] else pytest.mark.slow)


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize(("case", "arch"), list(everywhere()))
def test_launches(case, arch, counts, monkeypatch):
    kernel, grid, make, sizes = CASES[case]

    def do():
        args = make()
        run = simulate(kernel, grid, args, arch=arch, profile=counts, num_warps=2, **sizes)
        return [one.view(torch.uint8) for one in args if isinstance(one, torch.Tensor)], told(run)

    (memory, facts), (same_memory, same_facts) = both(monkeypatch, do)
    assert same_facts == facts
    assert all(map(torch.equal, memory, same_memory))
    assert bool(facts["wrong"]) == (case == "stores of several programs")


# Each thread writes its word and reads a word of the other wave.
RACE = """# 7
    v_lshlrev_b32 v1, 2, v0
    ds_{write}_b32 v1, v0
    {barrier}
    # 8
    v_xor_b32 v2, {lanes}, v1
    ds_{read}_b32 v3, v2"""


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("barrier", ["", "s_barrier"])
def test_a_race(arch, barrier, monkeypatch):
    names = ("write", "read") if arch == "gfx942" else ("store", "load")
    lanes = 4 * (64 if arch == "gfx942" else 32)
    code = RACE.format(barrier=barrier, lanes=lanes, write=names[0], read=names[1])
    by_numpy, compiled = both(monkeypatch, lambda: told(launch(code, lds=512, waves=2, grid=3, arch=arch)))
    assert compiled == by_numpy
    assert bool(compiled["wrong"]) == (not barrier)


@pytest.mark.parametrize("arch", ARCHES)
def test_out_of_bounds(arch, monkeypatch):
    def do():
        y = torch.zeros(300, dtype=torch.int32)
        with pytest.raises(IllegalAccess) as refused:
            simulate(beyond, (3,), (whole(300), y), arch=arch, BLOCK=128)
        return str(refused.value), y.tolist()

    by_numpy, compiled = both(monkeypatch, do)
    assert compiled == by_numpy
