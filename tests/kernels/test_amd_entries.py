"""Each number that AMD's launches depend on has figures in AMD's machine code, or a reason."""

import dataclasses

import pytest

from benchmarks.machine_code import entries, figures, page
from course_kernels import launch


def test_every_number_has_figures_or_a_reason():
    measured = {one.number for one in entries.stored()}
    for field in dataclasses.fields(launch.Sizes):
        assert (field.name in measured) != (field.name in entries.WITHOUT_FIGURES), field.name


def test_every_entry_is_stored_with_what_is_there_and_another_value():
    stored = {(one.number, one.call, one.arch, one.value) for one in entries.stored()}
    for entry in entries.entries():
        for arch in entries.ARCHS:
            of_entry = {value for *key, value in stored if key == [entry.name, entry.size, arch]}
            assert entries.AS_IT_IS in of_entry and len(of_entry) > 1, (entry.name, entry.size, arch)


def test_what_is_there_is_best_or_somebody_says_why():
    assert entries.unexplained(entries.stored()) == []


def test_a_number_that_another_value_beats_is_found():
    now = entries.Worth("a call", "gfx942", "tile", entries.AS_IT_IS, 100, 10, 32, 0)
    better = dataclasses.replace(now, value="1", instructions=90)
    spilled = dataclasses.replace(better, spills=4)
    assert len(entries.unexplained([now, better])) == 1 and not entries.unexplained([now, spilled])


def test_every_reason_is_of_an_entry():
    known = {(entry.name, entry.size) for entry in entries.entries()}
    assert entries.WHY.keys() <= known


@pytest.mark.parametrize("key, contenders", page.groups(figures.stored()[0]).items(), ids=str)
def test_where_ours_is_behind_the_page_says_why(key, contenders):
    assert bool(page.behind(contenders)) <= bool(page.because(*key)), page.behind(contenders)


def test_nothing_that_is_there_spills():
    assert [one for one in entries.stored() if one.value == entries.AS_IT_IS and one.spills] == []
