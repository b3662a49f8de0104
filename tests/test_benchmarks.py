"""The benchmarks, without timing: every case runs, figures become tables and verdicts, no GPU is said so."""

from __future__ import annotations

import dataclasses
import importlib

import pytest
import torch
from triton.runtime.jit import JITFunction

from benchmarks import FAMILIES, __main__, contest, dropout, flashinfer, report, search, tried
from benchmarks.contest import COPY, OURS, Case, Contest
from benchmarks.machine_code import contests, page
from benchmarks.machine_code import figures as contests_figures
from course_kernels import launch
from course_lab import bench
from course_lab.bench.standings import ALLOCATIONS, BARE
from gfxlab.engine import dual_mode

MACHINE = bench.Machine("Test GPU", "sm_90", "cuda", "2.13", "3.9", "13.0", "3.11", "2026-01-01", "580.1", "abc1234")
TINY = [
    case
    for family in FAMILIES
    for case in getattr(importlib.import_module(f"benchmarks.{family}"), "cases", lambda _: [])("tiny")
]


def figure(name, seconds, family="softmax", size="8 x 8", copy=256 << 20, **more) -> bench.Measurement:
    """256 MiB moved; the copy bandwidth is as much in a second."""
    return bench.Measurement(name, seconds, seconds, seconds, 256 << 20, copy=copy, family=family, size=size, **more)


def results(*figures, notes=()) -> bench.Results:
    return bench.Results(MACHINE, list(figures), list(notes))


def line(*figures) -> bench.Line:
    (found,) = bench.lines(results(*figures))
    return found


# ---- cases -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", TINY, ids=lambda case: f"{case.family}, {case.size}")
def test_every_contender_of_a_tiny_case_agrees_with_the_reference(case):
    check = Contest("cpu", timed=False, compiled=False)
    check.run(case)
    assert check.notes == [] and check.measurements == []


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_sizes_to_run_and_its_own_name_for_each(family):
    module = importlib.import_module(f"benchmarks.{family}")
    for sizes in ("every", "short"):
        cases = list(getattr(module, "cases", lambda _: [])(sizes))
        names = [(case.family, case.size) for case in cases]
        assert len(set(names)) == len(names) and (cases or hasattr(module, "measure"))
        assert all(OURS in case.contenders and case.bytes > 0 for case in cases)


def test_the_issue_sizes_are_there():
    assert {(1, 576), (16384, 8192), (4096, 16384), (2048, 65536)} <= set(contest.ROWS) and len(contest.ROWS) == 18


def _case(**contenders) -> Case:
    return Case("double", "3", lambda device: (torch.ones(3),), contenders, lambda x: 2 * x, bytes=12)


OURS_DOUBLES = {OURS: lambda x: 2 * x}


def test_a_wrong_rival_is_noted_and_a_wrong_kernel_of_ours_stops_the_run():
    check = Contest("cpu", timed=False)
    check.run(_case(**{"wrong": lambda x: 3 * x, "broken": lambda x: x.no_such_thing, OURS: lambda x: x.mul_(2)}))
    assert "wrong is 0.5 from the reference" in check.notes[0] and "broken fails: AttributeError" in check.notes[1]
    with pytest.raises(AssertionError, match="our result is 0.5 from the reference"):
        check.run(_case(**{OURS: lambda x: 3 * x}))


def test_a_rival_that_is_not_installed_is_named_once_for_all_its_sizes(monkeypatch):
    away = contest.of_liger("no_such_module", "Function")
    monkeypatch.setattr(
        importlib.import_module("benchmarks.softmax"), "cases", lambda _: [_case(**away, **OURS_DOUBLES)] * 2
    )
    notes = __main__.run(MACHINE, ["softmax"], "tiny", timed=False, device="cpu").notes
    assert len(notes) == 1 and notes[0].startswith("double, Liger is left out: No module named 'liger_kernel")


def test_flashinfers_contenders_have_places_for_what_ours_are_given():
    """It runs on CUDA only: here, that each token's page and place are those of its slot."""
    slots = torch.tensor([5, 0, 7])
    table, sequences, place, page, first, last = flashinfer.places_of(slots, 4, torch.zeros(3, 8))
    assert (page * 4 + place).tolist() == slots.tolist() and last.tolist() == [2, 1, 4]
    assert sequences.tolist() == [0, 1, 2] and first.tolist() == [0, 1, 2, 3] and table.dtype == torch.float32


def test_every_change_that_was_tried_launches_in_another_way(monkeypatch):
    """Beside one another stand two ways, not twice the same; nothing runs, and no page of memory is touched."""
    seen, ways = [], {}
    monkeypatch.setattr(
        tried, "draw", lambda device, *shape, dtype=torch.bfloat16, **_: torch.empty(shape, dtype=dtype)
    )
    monkeypatch.setattr(JITFunction, "run", lambda kernel, *args, grid, warmup, **meta: seen.append((grid, meta)))
    with launch.as_on(launch.Gpu("sm_90", 132)):
        for change in tried.changes():
            call = change.call("cpu")
            for name, sizes in ((tried.BEFORE, change.before), (OURS, {})):
                seen.clear()
                with launch.sizes_as(**sizes):
                    call()
                ways[change.size, name] = list(seen)
            assert ways[change.size, tried.BEFORE] != ways[change.size, OURS] != [], change.size


def test_gradients_are_those_of_every_input_but_the_last():
    x, w, dy = torch.randn(3, 4).double().unbind(0)[0:3]
    dx, dw = contest.gradients(lambda x, w: x.square() * w)(x, w, dy)
    assert torch.allclose(dx, 2 * x * w * dy) and torch.allclose(dw, x.square() * dy) and not x.requires_grad


def test_whatever_is_dropped_the_share_and_the_other_elements_must_be_right():
    case = next(dropout.cases("tiny"))
    keep = torch.rand(3, 40) >= dropout.P
    wrong = {
        "drops nothing": lambda x, r: r + x / (1 - dropout.P),
        "drops all": lambda x, r: r,
        "does not scale": lambda x, r: r + x * keep.to(x.dtype),
    }
    check = Contest("cpu", timed=False, compiled=False)
    check.run(dataclasses.replace(case, contenders=wrong, eager=None))
    assert [note.split(" is ")[0] for note in check.notes] == [f"dropout_add, 3 x 40: {name}" for name in wrong]


def test_distance_sees_nan_and_shapes():
    ones = torch.ones(4)
    assert contest.distance(ones, [ones]) == 0
    nan = torch.full((4,), torch.nan)
    for result in ([nan, ones], [ones, nan]):
        assert not contest.distance(result, [ones, ones]) <= 1
    with pytest.raises(AssertionError, match=r"shape \(2, 2\), not \(4,\)"):
        contest.distance(ones.view(2, 2), [ones])
    with pytest.raises(AssertionError, match="1 results, not 2"):
        contest.distance(ones, [ones, ones])


# ---- verdicts and tables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([figure(OURS, 1.0), figure("Liger", 0.99), figure(COPY, 0.96)], []),  # within the noise
        ([figure(OURS, 1.0), figure("Liger", 0.8), figure("torch", 0.9), figure(COPY, 1.0)], ["Liger is 1.25 times"]),
        (
            [figure(OURS, 1.25), figure("Liger", 2.0), figure(COPY, 1.0)],
            ["copy bandwidth (of which a copy of this size reaches 100%): 80% instead of 95%"],
        ),
        ([figure(OURS, 1.0, "matmul"), figure("torch", 0.85, "matmul")], ["speed of torch.matmul: 85% instead of 90%"]),
        ([figure(OURS, 1.17, "paged_decode_attention")], []),
        ([figure(OURS, 1.25, "paged_decode_attention")], ["copy bandwidth: 80% instead of 85%"]),
        (
            [figure(OURS, 1.0, "flash_attention")]
            + [figure(name, 1.2, "flash_attention") for name in ("torch flash", "torch cuDNN")],
            ["torch's flash: 120% instead of 150%"],
        ),
        ([figure(OURS, 2.0, "call"), figure(BARE, 1.0, "call")], ["2.00 times its bare launches"]),
        ([figure(OURS, 2.0, "call"), figure(BARE, 1.0, "call"), figure(ALLOCATIONS, 0.8, "call")], []),
    ],
)
def test_a_missed_target_is_named_with_its_gap(figures, expected):
    missed = report.misses(line(*figures))
    assert len(missed) == len(expected) and all(part in text for part, text in zip(expected, missed))


def test_below_128_mib_only_rivals_count():
    small = [dataclasses.replace(item, bytes=1 << 20) for item in (figure(OURS, 1.0), figure(COPY, 0.5))]
    assert report.misses(line(*small)) == []


def test_the_page_has_every_time_the_verdicts_and_the_machine():
    text = report.markdown(
        results(
            figure(OURS, 70e-6, copy=4e12, graph="cold"),
            figure("eager", 160e-6, copy=4e12, graph="cold"),
            figure(COPY, 68e-6, copy=4e12, graph="cold"),
            figure(OURS, 2e-6, size="1 x 8", copy=4e12, graph="warm"),
            figure("eager", 1e-6, size="1 x 8", copy=4e12, graph="warm"),
            notes=["softmax, 8 x 8: Liger fails: no"],
        ),
        {"softmax": "results/x.svg"},
    )
    assert "Test GPU (sm_90), driver 580.1, CUDA 13.0, PyTorch 2.13, Triton 3.9, Python 3.11, 2026-01-01" in text
    assert "commit abc1234" in text and "moves 4.00 TB/s" in text and "](results/x.svg)" in text
    assert "| 8 x 8 | 160 us | **70 us** | 68 us | 2.29 x | 96% |" in text
    assert "| 1 x 8 * | **1 us** | 2 us |  | 0.50 x |  |" in text
    assert "| `softmax` | 2 | 1 | 0.50 x | 1.39 x | 2.29 x |" in text
    assert "- `softmax`, 1 x 8: eager is 2.00 times as fast" in text and "- softmax, 8 x 8: Liger fails: no" in text


def test_the_middle_of_an_even_number_of_sizes_lies_between_two():
    """The upper of the two would flatter: 3.00 of the ratios 0.5, 1, 3 and 4."""
    lines = [line(figure("ours", 1.0, size=str(r)), figure("torch", r, size=str(r))) for r in (0.5, 1.0, 3.0, 4.0)]
    assert "| 0.50 x | 2.00 x | 4.00 x |" in report.summary_table(lines)


def test_figures_of_one_family_replace_those_of_an_older_run(tmp_path):
    path = tmp_path / "new" / "gpu.json"
    report.merge(results(figure(OURS, 1.0), figure(OURS, 1.0, "rope"), notes=["rope, 1: x"]), path)
    report.merge(results(figure(OURS, 2.0, "rope")), path)
    found = bench.Results.load(path)
    assert [(item.family, item.seconds) for item in found.measurements] == [("softmax", 1.0), ("rope", 2.0)]
    assert found.notes == []


def test_the_generated_part_of_a_page_is_replaced_and_the_rest_stays():
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    assert report.replaced(page, "new") == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    with pytest.raises(ValueError, match="lacks the lines"):
        report.replaced("nothing", "new")


def test_the_stored_page_is_what_the_stored_figures_give(tmp_path, monkeypatch):
    assert report.stored(), "no figures are stored"
    monkeypatch.setattr(report, "plot", lambda *_: None)
    page = tmp_path / "README.md"
    page.write_text(report.README.read_text())
    monkeypatch.setattr(report, "README", page)
    report.write()
    assert page.read_text() == (report.FOLDER / "README.md").read_text()


def test_a_plot_names_the_machine_and_is_the_same_every_time(tmp_path):
    figures = results(*(figure(name, 1e-4, size=size) for name in (OURS, COPY) for size in ("a", "b")))
    for name in ("one.svg", "two.svg"):
        report.plot(figures, "softmax", tmp_path / name)
    text = (tmp_path / "one.svg").read_text()
    assert "Test GPU" in text and text == (tmp_path / "two.svg").read_text()


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(bench.available(), reason="there is a GPU here")
def test_without_a_gpu_the_command_refuses_and_shows_what_is_stored(capsys):
    assert __main__.main(["--short"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("nothing is timed here: this machine has no GPU")
    assert "Stored: NVIDIA H200" in out and "| `rms_norm` |" in out
    assert "MI300X       RMSNorm of 16384 x 4096 in bf16: 50.6 us by memory, 65.3 us at the copy bandwidth" in out


def test_the_command_runs_its_families_prints_and_saves(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench.Machine, "here", lambda: dataclasses.replace(MACHINE, commit=""))
    ran = []

    def run(machine, families, sizes, timed):
        ran.append((list(families), sizes, timed))
        return bench.Results(machine, [figure(OURS, 2.0, graph="cold"), figure(COPY, 1.0, graph="cold")])

    monkeypatch.setattr(__main__, "run", run)
    path = tmp_path / "r.json"
    assert __main__.main(["softmax", "--short", "--save", str(path), "--commit", "fff"]) == 0
    assert ran == [(["softmax"], "short", True)] and bench.Results.load(path).machine.commit == "fff"
    out = capsys.readouterr().out
    assert "50% of copy bandwidth" in out and "MISSED copy bandwidth" in out and "50% instead of 95%" in out


# ---- the search for a tile -------------------------------------------------------------------------------------------


def test_every_configuration_of_the_search_has_a_name_of_its_own():
    for configs in (search.CONFIGS, search.GROUPS):
        names = {search.name_of(config) for config in configs}
        assert len(names) == len(configs) and "128 x 128 x 64, 4 warps, 3 stages, groups of 8" in names


@pytest.mark.skipif(bench.available(), reason="it would search")
def test_the_search_refuses_to_time_without_a_gpu(capsys, tmp_path):
    assert search.main(["--save", str(tmp_path / "search.json")]) == 0
    assert "no GPU" in capsys.readouterr().out and not list(tmp_path.iterdir())


# ---- AMD's machine code ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")
def test_machine_code_is_executed_and_counted_and_who_is_wrong_or_absent_is_named(monkeypatch):
    rivals = {"wrong": lambda: lambda x, y: x - y, "away": lambda: importlib.import_module("no_such_package")}
    monkeypatch.setitem(contests.RIVALS, "vector_add", rivals)
    size = dataclasses.replace(contests.contests()[0], inputs=lambda: (torch.ones(4096, device="cuda"),) * 2)
    ours, plain, wrong, away = contests.run(size, "gfx942")
    assert (ours.name, ours.loaded, ours.stored, ours.lines) == (OURS, 2 * 4 * 4096, 4 * 4096, 3 * 4 * 4096 // 128)
    assert ours.instructions == sum(ours.kinds.values()) > 0 and ours.spills == 0 and ours.floor == ours.memory > 0
    assert plain.name == "plain" and "from the reference" in wrong.reason and "no_such_package" in away.reason


def test_who_is_ahead_of_ours_is_said():
    figures, _ = contests_figures.stored()
    groups = page.groups(figures)
    assert {arch for _, _, arch in groups} == set(contests.ARCHS) and all(OURS in group for group in groups.values())
    ours = next(iter(groups.values()))[OURS]
    better = dataclasses.replace(ours, name="better", instructions=ours.instructions // 2)
    assert page.behind({OURS: ours, "better": better}) == ["better executes 50% fewer instructions"]
