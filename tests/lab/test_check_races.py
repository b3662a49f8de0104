"""Programs and waves that depend on each other fail an answer; those that only look as if they did do not."""

from dataclasses import replace

import pytest
import torch
from small_exercises import DOUBLE, DOUBLE_SOLUTION, HINTS, IN_PLACE

from course_lab.authoring.exercise import Case, Exercise
from course_lab.check import client, grade, simulated
from course_lab.check.protocol import Job, LaunchSeen


def reverse_in_place(x):
    x.copy_(x.flip(0))


REVERSE = Exercise(
    "91.21",
    "Reverse in place",
    1,
    5,
    "reverse",
    reverse_in_place,
    (Case("512 elements", lambda g: (torch.randn(512, generator=g),), 0.0, 0.0),),
    HINTS,
    inplace=(0,),
)
REVERSE_ONE_PROGRAM = """\
@triton.jit
def reverse_kernel(x_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + N - 1 - i)
    tl.store(x_ptr + i, x)


def reverse(x):
    reverse_kernel[(1,)](x, N=len(x), num_warps=4)
"""
REVERSE_PAIRS = REVERSE_ONE_PROGRAM.replace("tl.arange(0, N)", "tl.arange(0, N // 2)").replace(
    "    tl.store(x_ptr + i, x)",
    "    y = tl.load(x_ptr + i)\n    tl.store(x_ptr + i, x)\n    tl.store(x_ptr + N - 1 - i, y)",
)

TOTAL = Exercise(
    "91.22",
    "Add up",
    1,
    5,
    "total",
    lambda x: x.double().sum().reshape(1).to(x.dtype),
    (Case("1000 elements", lambda g: (torch.randn(1000, generator=g),), 1e-3, 1e-3),),
    HINTS,
)
HEAD = """\
@triton.jit
def total_kernel(x_ptr, parts_ptr, count_ptr, y_ptr, n, P: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + offs, mask=offs < n, other=0.0), axis=0)
"""
TAIL = """

def total(x):
    programs = triton.cdiv(len(x), 64)
    parts, y, count = torch.zeros(programs), torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    total_kernel[(programs,)](x, parts, count, y, len(x), P=triton.next_power_of_2(programs), BLOCK=64)
    return y
"""
LAST_ADDS = """\
    p = tl.arange(0, P)
    if done == tl.num_programs(0) - 1:
        tl.store(y_ptr, tl.sum(tl.load(parts_ptr + p, mask=p < tl.num_programs(0), other=0.0), axis=0))
"""
COUNTER = "    tl.store(parts_ptr + pid, part)\n    done = tl.atomic_add(count_ptr, 1)\n" + LAST_ADDS
NO_COUNTER = "    tl.store(parts_ptr + pid, part)\n    done = pid\n" + LAST_ADDS
LOCK = """\
    while tl.atomic_cas(count_ptr, 0, 1) == 1:
        pass
    tl.store(y_ptr, tl.load(y_ptr) + part)
    tl.debug_barrier()
    tl.atomic_xchg(count_ptr, 0)
"""
ATOMIC = "    tl.atomic_add(y_ptr, part)\n"
PLAIN = "    tl.store(y_ptr, tl.load(y_ptr) + part)\n"


def code(middle: str) -> str:
    return HEAD + middle + TAIL


def launch_of(answer: str, exercise=TOTAL) -> LaunchSeen:
    case = tuple(exercise.cases[0].make(torch.Generator().manual_seed(1)))
    return client.run_cases(Job("91.22", answer, exercise.entry, (case,)), time_limit=10).seen[0].launches[-1]


@pytest.mark.parametrize("middle", [COUNTER, ATOMIC, LOCK], ids=["counter", "atomic", "lock"])
def test_what_an_atomic_orders_is_no_race(middle, monkeypatch):
    assert launch_of(code(middle)).race is None
    monkeypatch.setattr(simulated, "second_opinion", lambda *_: simulated.Opinion())  # a lock takes it long
    assert grade(TOTAL, code(middle)).passed


def test_a_counter_that_is_not_asked_orders_nothing():
    report = grade(TOTAL, code(NO_COUNTER))
    assert report.diagnosis.code == "race" and "of parts_ptr" in report.diagnosis.sentence
    early = code(
        COUNTER.replace("    tl.store(parts_ptr + pid, part)\n", "").replace(
            "tl.atomic_add(count_ptr, 1)\n", "tl.atomic_add(count_ptr, 1)\n    tl.store(parts_ptr + pid, part)\n"
        )
    )
    assert launch_of(early).race is not None, "the counter must come after the store"


@pytest.mark.parametrize(
    "middle",
    [
        "    if pid == 0:\n        tl.store(y_ptr, 0.0)\n" + ATOMIC,
        ATOMIC + "    tl.store(parts_ptr + pid, tl.load(y_ptr))\n",
    ],
    ids=["cleared by one", "read at once"],
)
def test_an_atomic_orders_no_plain_access_to_what_it_adds_to(middle):
    assert launch_of(code(middle)).race.tensor == "y_ptr"
    found = grade(TOTAL, code(middle)).diagnosis
    assert found is None or found.code == "race"
    if "pid == 0" in middle:
        assert found and found.code == "race", "the sum of those that came before is lost"


def test_an_unordered_sum_is_a_race_even_where_every_order_gives_the_sum():
    seen = launch_of(code(PLAIN))
    assert seen.race.kind == "load" and seen.race.tensor == "y_ptr"
    assert not grade(TOTAL, code(PLAIN)).passed


def test_what_programs_load_add_to_and_store_is_a_race_where_the_sum_is_wrong_too():
    """Each program's store lies over the one before, which looks as if they had been given one place."""
    found = grade(TOTAL, code(PLAIN.replace("+ part", "+ 2 * part")), search=False).diagnosis
    assert found.code == "race" and "of y_ptr" in found.sentence


def test_programs_that_store_the_same_value_are_right():
    twice = DOUBLE_SOLUTION.replace("(triton.cdiv(x.numel(), 128),)", "(triton.cdiv(x.numel(), 128), 2)")
    report = grade(DOUBLE, twice)
    assert report.passed and "8 elements" not in str(report.diagnosis)
    seen = launch_of(twice, DOUBLE)
    assert seen.race is None and seen.alike == 1024


def test_a_last_block_that_overlaps_the_one_before_is_right():
    back = DOUBLE_SOLUTION.replace(
        "offs = tl.program_id(0) * BLOCK", "offs = tl.minimum(tl.program_id(0) * BLOCK, tl.maximum(n - BLOCK, 0))"
    )
    assert grade(DOUBLE, back).passed


def test_loads_that_reach_no_store_do_no_harm():
    curious = """\
@triton.jit
def double_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x_ptr + offs - 1, mask=(offs > 0) & (offs < n), other=0.0)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(x_ptr + offs, tl.where(offs < 0, left, x * 2), mask=offs < n)


def double_(x):
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, x.numel(), BLOCK=64)
"""
    assert grade(IN_PLACE, curious).passed


def test_waves_that_swap_through_memory_are_found_out():
    report = grade(REVERSE, REVERSE_ONE_PROGRAM)
    assert report.diagnosis.code == "wave-race" and "x_ptr" in report.diagnosis.sentence
    assert report.cases[-1].name == "512 elements, on a simulated MI300X, one wave after the other"
    assert grade(REVERSE, REVERSE_PAIRS).passed


# ---- what a text may ask for besides numbers -------------------------------------------------------------------------


def test_idle_programs_cost_the_score_where_each_has_a_block_of_its_own():
    wasteful = DOUBLE_SOLUTION.replace("(triton.cdiv(x.numel(), 128),)", "(x.numel(),)")
    report = grade(replace(DOUBLE, no_idle=True), wasteful, card=True)
    assert report.passed, "the numbers are right"
    assert "1,016 of 1,024 programs have nothing to do: a score of 1%" in report.card.text
    assert "a score of 100%" in grade(replace(DOUBLE, no_idle=True), DOUBLE_SOLUTION, card=True).card.text
    assert "a score of 100%" in grade(DOUBLE, wasteful, card=True).card.text


WASTEFUL = DOUBLE_SOLUTION.replace("(triton.cdiv(x.numel(), 128),)", "(x.numel(),)")


def test_idle_programs_are_a_remark_elsewhere():
    wasteful = grade(DOUBLE, WASTEFUL)
    assert wasteful.passed
    assert wasteful.remark.startswith("1,016 of 1,024 programs of double_kernel have nothing to do (case “1024 elem")
    assert wasteful.remark in str(wasteful) and wasteful.remark in wasteful._repr_html_()
    a_few = grade(DOUBLE, DOUBLE_SOLUTION.replace("(triton.cdiv(x.numel(), 128),)", "(x.numel() // 64,)"))
    assert a_few.passed and not a_few.remark, "half of them idle is a grid of another block"


def test_a_demand_sees_what_was_loaded_and_with_which_constants():
    def once(args, launches):
        (launch,) = launches
        loads = launch.loaded("x_ptr")
        assert launch.constant("BLOCK") == 128 and loads.elements == len(args[0])
        return "" if loads.lanes == loads.elements else "x was loaded more than once."

    demanding = replace(DOUBLE, demand=once)
    assert grade(demanding, DOUBLE_SOLUTION).passed
    twice = DOUBLE_SOLUTION.replace("x * 2", "x + tl.load(x_ptr + offs, mask=mask)")
    assert grade(DOUBLE, twice).passed
    assert grade(demanding, twice).diagnosis == ("demand-not-met", "x was loaded more than once.")
    assert not grade(DOUBLE, WASTEFUL, solution=WASTEFUL).remark, "the solution has as many"


BY_LANES = DOUBLE_SOLUTION.replace("    tl.store(", "    {before}\n    tl.store(", 1)


@pytest.mark.parametrize(
    "before, passes",
    [
        ("tl.store(y_ptr + offs, x, mask=mask)", True),  # each lane stores twice
        ("tl.store(y_ptr + offs + 1, x, mask=offs + 1 < n)", False),  # which the next lane stores too
        ("tl.store(y_ptr + offs + 1, x, mask=offs + 1 < n)\n    tl.debug_barrier()", True),
    ],
)
def test_two_lanes_of_one_program_do_not_store_different_numbers(before, passes):
    """One program has all elements of a case: no other one races with it."""
    report = grade(DOUBLE, BY_LANES.format(before=before).replace("128)", "1024)").replace("BLOCK=128", "BLOCK=1024"))
    assert report.passed == passes, report
    if not passes:
        assert report.diagnosis.code == "race" and "different lanes" in report.diagnosis.sentence
