"""Programs that wait for each other: locks, flags, barriers; and those that wait for ever."""

import io
import time

import pytest
import torch
import triton
import triton.language as tl
from assembly import launch

from gfxlab.engine import dual_mode
from gfxlab.simulator import SimulationError, simulate
from gfxlab.simulator.core import progress

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")


@triton.jit
def locked_kernel(lock_ptr, x_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(x_ptr, tl.load(x_ptr) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("num_warps", [1, 4])
def test_a_lock_goes_from_program_to_program(arch, num_warps):
    lock, x = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    run = simulate(locked_kernel, (12,), (lock, x), arch=arch, num_warps=num_warps)
    assert (x.item(), lock.item(), run.wrong) == (12, 0, ())


@triton.jit
def rounds_kernel(lock_ptr, x_ptr, rounds, STEP: tl.constexpr):
    i = 0
    while i < rounds:
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
        tl.store(x_ptr, tl.load(x_ptr) + 1)
        tl.debug_barrier()
        tl.atomic_xchg(lock_ptr, 0)
        i += STEP


@triton.jit
def queue_kernel(next_ptr, x_ptr, tasks, STEP: tl.constexpr):
    task = tl.atomic_add(next_ptr, STEP)
    while task < tasks:
        tl.store(x_ptr, task + 1)
        task = tl.atomic_add(next_ptr, STEP)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("kernel", [rounds_kernel, queue_kernel])
@pytest.mark.parametrize("step", [1, 0])
def test_many_turns_round_a_lock_are_no_deadlock_if_they_come_to_an_end(arch, kernel, step, monkeypatch):
    """Though no wave ends in many times the limit; the same turns without an end are given up."""
    monkeypatch.setattr("gfxlab.simulator.core.executor._POLLS_A_RUN", 20)
    first, x = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    how = {"arch": arch, "num_warps": 1, "profile": False, "max_seconds": 0.02}
    if step:
        simulate(kernel, (2,), (first, x, 600, step), **how)
        assert x.item() == (1200 if kernel is rounds_kernel else 600)
    else:
        with pytest.raises(SimulationError, match=r"(for 0.02 seconds|nothing changes any more), and whoever is left"):
            simulate(kernel, (2,), (first, x, 600, step), **how)


@triton.jit
def last_first_kernel(flag_ptr, x_ptr):
    pid, last = tl.program_id(0), tl.num_programs(0) - 1
    if pid < last:
        while tl.atomic_add(flag_ptr, 0) != last - pid:
            pass
    tl.store(x_ptr + pid, tl.atomic_add(flag_ptr, 1))


def test_a_program_waits_for_one_of_a_later_batch(monkeypatch):
    monkeypatch.setattr("gfxlab.simulator.core.launch._BATCH_BYTES", 1)  # one workgroup a batch
    x = torch.zeros(5, dtype=torch.int32)
    simulate(last_first_kernel, (5,), (torch.zeros(1, dtype=torch.int32), x), num_warps=1)
    assert x.tolist() == [4, 3, 2, 1, 0]


@triton.jit
def crossed_kernel(locks_ptr):
    pid = tl.program_id(0)
    tl.atomic_xchg(locks_ptr + pid, 1)
    while tl.atomic_cas(locks_ptr + 1 - pid, 0, 1) != 0:
        pass


def test_a_deadlock_says_who_waits_for_what_and_soon():
    start = time.process_time()
    says = (
        r"nothing changes any more.*program 0 waits for element 1 of locks_ptr \(line \d+: while tl.*\), which "
        r"program 1 changed last; program 1 waits for element 0 of locks_ptr .*which program 0 changed last\."
    )
    with pytest.raises(SimulationError, match=says):
        simulate(crossed_kernel, (2,), (torch.zeros(2, dtype=torch.int32),), num_warps=1)
    assert time.process_time() - start < 10  # of this process: others may keep the machine busy


@triton.jit
def endless_kernel(x_ptr, n):
    i, total = 0, 0.0
    while i < n:
        total += tl.load(x_ptr)
    tl.store(x_ptr, total)


def test_a_loop_that_never_ends_is_given_up_after_some_seconds(monkeypatch):
    monkeypatch.setattr("gfxlab.simulator.core.executor._ROUNDS", 500)
    with pytest.raises(
        SimulationError, match=r"program 0 .*does not end: .*rounds of one loop in 0.5 seconds.*line \d+"
    ):
        simulate(endless_kernel, (1,), (torch.ones(1), 5), num_warps=1, max_seconds=0.5)


def test_waves_may_meet_at_different_barriers():
    """As in ping-pong schedules: half of the waves pass one barrier more at first, the others at the end."""
    code = """v_readfirstlane_b32 s4, v0
        s_cmp_lt_u32 s4, 64
        s_cbranch_scc0 .LBB0_1
        s_barrier
        .LBB0_1:
        s_barrier
        s_cmp_lt_u32 s4, 64
        s_cbranch_scc1 .LBB0_2
        s_barrier
        .LBB0_2:
        s_nop 0"""
    assert launch(code, waves=2, grid=3).wrong == ()


SPLIT = """v_readfirstlane_b32 s4, v0
    v_mov_b32 v1, 64
    v_mov_b32 v2, 1.0
    v_mov_b32 v3, 0
    s_cmp_lt_u32 s4, 32
    s_cbranch_scc0 .LBB0_2
    {first}
    s_branch .LBB0_3
    .LBB0_2:
    {second}
    .LBB0_3:
    s_nop 0"""
SIGNAL, WAIT = "s_barrier_signal -1", "s_barrier_wait 0xffff"
STORE, LOAD = "ds_store_b32 v1, v2", "ds_load_b32 v3, v1"
UNTIL_STORED = f""".LBB0_4:
    {LOAD}
    s_wait_dscnt 0x0
    v_readfirstlane_b32 s5, v3
    s_cmp_lg_u32 s5, 1.0
    s_cbranch_scc1 .LBB0_4"""


def split_barrier(*waves: list[str]):
    first, second = map("\n".join, waves)
    return launch(SPLIT.format(first=first, second=second), arch="gfx1201", waves=2, grid=2, lds=1024)


def test_a_wave_that_has_signalled_lets_others_through_and_goes_on():
    assert split_barrier([STORE, SIGNAL, WAIT], [SIGNAL, WAIT, LOAD]).wrong == ()
    assert split_barrier([SIGNAL, WAIT, LOAD], [STORE, SIGNAL]).wrong == ()
    split_barrier([SIGNAL, WAIT, STORE], [SIGNAL, UNTIL_STORED, WAIT])  # a race, and no deadlock


def test_a_split_barrier_orders_nothing_unless_both_halves_are_there():
    for waves in ([STORE, SIGNAL], [LOAD, SIGNAL]), ([STORE, WAIT], [WAIT, LOAD]):
        assert "with no barrier between" in split_barrier(*waves).wrong[0]


def test_a_split_barrier_that_one_wave_never_signals():
    with pytest.raises(SimulationError, match="not all waves of program 0 reach the same barrier: .*1 of its 2 waves"):
        split_barrier([SIGNAL, WAIT], ["s_nop 0"])


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_long_launch_says_how_far_it_is_on_a_terminal_only(monkeypatch):
    monkeypatch.setattr(progress, "_SILENCE", 0)
    monkeypatch.setattr("gfxlab.simulator.core.launch._BATCH_BYTES", 1)
    for stream in (Terminal(), io.StringIO()):
        with progress.line_on(stream):
            simulate(locked_kernel, (2,), (torch.zeros(1, dtype=torch.int32), torch.zeros(1)), num_warps=1)
        shown = stream.getvalue()
        assert shown.startswith("\rlocked_kernel: 0 of 2 programs, 0.0 million") == stream.isatty()
        assert shown.endswith("\r") == stream.isatty() == bool(shown)


def test_the_line_of_a_launch_is_gone_when_the_script_prints(monkeypatch):
    monkeypatch.setattr(progress, "_SILENCE", 0)
    stream = Terminal()
    with progress.line_on(stream):
        simulate(locked_kernel, (2,), (torch.zeros(1, dtype=torch.int32), torch.zeros(1)), num_warps=1)
        *_, line, gone, rest = stream.getvalue().split("\r")
        assert "million" in line and gone.strip() == rest == "" and len(gone) >= len(line)


@triton.jit
def heavy_kernel(x_ptr, n, STEP: tl.constexpr, B: tl.constexpr):
    offs = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    total = tl.zeros((B, B), tl.float32)
    i = 0
    while i < n:
        a = tl.load(x_ptr + offs, mask=offs >= i, other=0.0)
        total += tl.dot(a, a)
        i += STEP
    tl.store(x_ptr + offs, total)


@pytest.mark.parametrize("arch, step", [("gfx942", 0), ("gfx1201", -1)])
def test_a_long_round_that_comes_no_nearer_to_its_end_is_given_up_after_few(arch, step, monkeypatch):
    monkeypatch.setattr("gfxlab.simulator.core.executor._ROUNDS", 10**9)
    with pytest.raises(SimulationError, match=r"does not end: [\d,]+ rounds of one loop in 0.2 seconds"):
        simulate(heavy_kernel, (64,), (torch.zeros(32, 32), 10, step, 32), arch=arch, num_warps=1, max_seconds=0.2)


def test_a_long_loop_that_comes_nearer_to_its_end_goes_on():
    run = simulate(heavy_kernel, (64,), (torch.zeros(32, 32), 150, 1, 32), num_warps=1, max_seconds=0.03)
    assert run.instructions > 64 * 150 * 10


@triton.jit
def rows_kernel(x_ptr, rows, columns, last):
    total = 0
    for row in range(rows):
        for column in range(columns):
            total += tl.load(x_ptr + (row * columns + column) % 64)
        if row == last:
            total += 1000
    tl.store(x_ptr, total)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("rows, columns", [(4000, 1), (3, 1500), (60, 40)])
def test_a_long_loop_is_never_called_endless(arch, rows, columns, monkeypatch):
    """Neither by its rounds, nor while an outer loop's round takes long, nor for a branch that is hardly ever taken."""
    monkeypatch.setattr("gfxlab.simulator.core.executor._ROUNDS", 500)
    monkeypatch.setattr("gfxlab.simulator.core.executor._PAUSE", 0)
    x = torch.ones(64, dtype=torch.int32)
    simulate(rows_kernel, (1,), (x, rows, columns, rows - 1), arch=arch, num_warps=1, max_seconds=0.01, profile=False)
    assert x[0] == rows * columns + 1000


@triton.jit
def search_kernel(x_ptr, goal, B: tl.constexpr):
    offs = tl.arange(0, B)
    number, rounds = tl.load(x_ptr + offs), tl.zeros((B,), tl.int32)
    while tl.sum((number == goal).to(tl.float32)) == 0:
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF
        rounds += 1
    tl.store(x_ptr + offs, rounds)


class BusyMachine:
    """A clock on a machine that others keep busy: a tenth of the time is this process's."""

    def __init__(self):
        self._worked = self._gone = 0.0

    def process_time(self) -> float:
        self._worked += 0.001
        return self._worked

    def monotonic(self) -> float:
        self._gone += 0.01
        return self._gone


@pytest.mark.parametrize("rounds", [3200, 50_000])
def test_a_search_whose_end_nobody_can_foresee_has_all_its_processor_time(rounds, monkeypatch):
    monkeypatch.setattr("gfxlab.simulator.core.executor._ROUNDS", 500)
    monkeypatch.setattr("gfxlab.simulator.core.executor.time", BusyMachine())
    goal = 17
    for _ in range(rounds):
        goal = (goal * 1103515245 + 12345) & 0x7FFFFFFF
    x = torch.full((64,), 17, dtype=torch.int32)
    if rounds == 3200:
        simulate(search_kernel, (1,), (x, goal, 64), num_warps=1, max_seconds=1.0, profile=False)
        assert (x == rounds).all()
    else:
        with pytest.raises(SimulationError, match="the loop's condition never becomes false, or it takes long"):
            simulate(search_kernel, (1,), (x, goal, 64), num_warps=1, max_seconds=1.0, profile=False)


def test_a_loop_that_would_take_hours_says_how_long():
    with pytest.raises(
        SimulationError, match=r"has not ended yet: at this rate its loop takes [\d,]+ minutes more.*max"
    ):
        simulate(rows_kernel, (1,), (torch.ones(64, dtype=torch.int32), 2**31 - 5, 2, 0), num_warps=1, max_seconds=0.3)
