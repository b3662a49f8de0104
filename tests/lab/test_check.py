"""The check from end to end: right answers pass, wrong ones are explained, hostile ones do no harm."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_exercises import (
    COPY,
    DOUBLE,
    DOUBLE_SOLUTION,
    DOUBLE_STUB,
    HINTS,
    IN_PLACE,
    IN_PLACE_SOLUTION,
    ROW_SUM,
    ROW_SUM_SOLUTION,
    SOLUTIONS,
)

from course_lab.authoring import lessons, source
from course_lab.authoring.exercise import Case, Exercise, Tolerance
from course_lab.authoring.far_rows import at_the_end, counted_from, spread
from course_lab.check import ExerciseFailed, Report, client, grade, grading
from course_lab.check.protocol import Job
from gfxlab import confinement, sandbox
from gfxlab.engines import Gpu


def edited(*edits: tuple[str, str], exercise: Exercise = DOUBLE) -> str:
    code = SOLUTIONS[exercise]
    for old, new in edits:
        assert old in code, old
        code = code.replace(old, new)
    return code


def before_return(statement: str) -> str:
    return edited(("    return y", f"    {statement}\n    return y"))


# ---- right, empty and untouched ------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", SOLUTIONS, ids=lambda exercise: exercise.entry)
def test_a_right_answer_passes(exercise):
    report = grade(exercise, SOLUTIONS[exercise])
    assert report.passed, report
    assert [case.name for case in report.cases] == [case.name for case in exercise.cases]
    assert all(case.passed for case in report.cases) and report.diagnosis is None


def test_a_reference_without_a_signature_is_no_obstacle():
    exercise = replace(DOUBLE, reference=torch.tanh, suspects=())
    report = grade(exercise, DOUBLE_SOLUTION, solution=DOUBLE_SOLUTION.replace("x * 2", "2 * tl.sigmoid(2 * x) - 1"))
    assert exercise.arguments == () and report.diagnosis.code == "unknown"


def test_a_warm_check_takes_less_than_a_second():
    """Processor time, of this process and all that it started: what else a machine does is no fault of the check's."""
    grade(DOUBLE, DOUBLE_SOLUTION)
    before = processor_time()
    grade(DOUBLE, DOUBLE_SOLUTION)
    assert 0 < processor_time() - before < 1.0


def processor_time() -> float:
    """Seconds that this process and those below it took, also of those that ended and were waited for."""
    tree, times = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            tree[int(stat.parent.name)] = int(fields[1])
            times[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    below, left = {os.getpid()}, {os.getpid()}
    while left := {process for process, parent in tree.items() if parent in left}:
        below |= left
    return sum(times.get(process, 0) for process in below) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    "code",
    [DOUBLE_STUB, f"%%exercise 91.1\n\n{DOUBLE_STUB}\n   \n", DOUBLE_STUB.replace(")\n", ")   \n"), "", "\n  \n"],
)
def test_an_untouched_stub_is_not_attempted(code):
    report = grade(DOUBLE, code, stub=DOUBLE_STUB)
    assert report.status == "not-attempted" and "not attempted yet" in str(report) and report.diagnosis is None


def test_the_broken_code_of_a_repair_is_shown_at_work_but_is_no_attempt():
    repair = dataclasses.replace(DOUBLE, kind="repair")
    broken = DOUBLE_SOLUTION.replace("x * 2", "x * 3")
    assert broken != DOUBLE_SOLUTION
    report = grade(repair, broken, stub=broken)
    assert report.status == "not-attempted" and report.diagnosis and any(not case.passed for case in report.cases)
    assert "not attempted yet" in str(report) and "elements of the output are wrong" in str(report)
    with pytest.raises(ExerciseFailed):
        grade(repair, broken, stub=broken, strict=True)


@pytest.mark.parametrize("code", [DOUBLE_STUB, "def double(x):\n    return x\n"])
def test_strict_raises_unless_right(code):
    with pytest.raises(ExerciseFailed) as failure:
        grade(DOUBLE, code, stub=DOUBLE_STUB, strict=True)
    assert isinstance(failure.value.report, Report)
    assert grade(DOUBLE, DOUBLE_SOLUTION, strict=True).passed


# ---- the report ----------------------------------------------------------------------------------------------------


def test_the_report_names_the_first_wrong_element_its_program_and_its_line():
    text = str(grade(DOUBLE, edited(("x * 2", "tl.where(offs == 300, 7.0, x * 2)"))))
    assert "1 of 1024 elements of the output are wrong" in text
    assert "first wrong: [300]" in text and "got 7" in text
    assert "program 2 of double_kernel wrote it, in line 6" in text
    assert "tl.store(y_ptr + offs, tl.where(offs == 300, 7.0, x * 2), mask=mask)" in text


def test_lines_are_counted_as_in_the_cell():
    code = edited(("x * 2", "z * 2"))
    assert "line 6: " in str(grade(DOUBLE, code)) and "line 7: " in str(grade(DOUBLE, "%%exercise 91.1\n" + code))


def test_a_syntax_error_shows_its_line_and_a_caret():
    report = grade(DOUBLE, edited(("    mask = offs < n", "    mask = offs <) n")))
    assert report.diagnosis.code == "syntax-error" and "line 4" in report.diagnosis.sentence
    line, caret = report.excerpt
    assert line[caret.index("^")] == ")"


def test_an_exception_shows_the_learners_line_and_a_plain_sentence():
    report = grade(DOUBLE, edited(("tl.arange(0, BLOCK)", "tl.arange(0, 100)")))
    assert report.diagnosis == ("exception", "Line 3: tl.arange only makes lengths that are a power of two.")
    assert report.excerpt[0].endswith("tl.program_id(0) * BLOCK + tl.arange(0, 100)")
    assert "ValueError" in report.excerpt[1] and "InterpreterError" not in str(report)


def test_printed_text_is_shown_once():
    report = grade(DOUBLE, before_return("print('size', x.numel())"))
    assert report.printed == "size 1024"


def test_printed_text_of_the_failing_case_is_shown():
    code = edited(
        ("cdiv(x.numel(), 128)", "cdiv(x.numel() - 127, 128)"), ("    return y", "    print(len(x))\n    return y")
    )
    assert grade(DOUBLE, code).printed == "1000"


def test_learners_text_is_escaped_in_html():
    html = grade(DOUBLE, before_return("print('<script>alert(1)</script>')"))._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_a_report_repeats_exactly():
    code = edited(("x * 2", "x * 2.5"))
    one, two = grade(DOUBLE, code), grade(DOUBLE, code)
    assert str(one) == str(two) and one._repr_html_() == two._repr_html_()


# ---- evidence ------------------------------------------------------------------------------------------------------


def test_a_store_into_an_input_fails_even_when_the_answer_is_right():
    report = grade(
        DOUBLE, edited(("x * 2, mask=mask)", "x * 2, mask=mask)\n    tl.store(x_ptr + offs, x * 2, mask=mask)"))
    )
    assert report.diagnosis == (
        "input-modified",
        "The argument x was changed, in line 7. An answer must leave its inputs as they are.",
    )


def test_an_argument_to_be_written_may_be_written():
    assert grade(IN_PLACE, IN_PLACE_SOLUTION).passed
    report = grade(IN_PLACE, IN_PLACE_SOLUTION.replace("x * 2", "x * 3"))
    assert report.diagnosis.code == "constant-factor" and "argument 1 after the call" in str(report)


def test_an_argument_that_stays_as_it_is_need_not_be_written():
    nothing = replace(IN_PLACE.cases[0], name="zeros", make=lambda generator: (torch.zeros(40),))
    exercise = replace(IN_PLACE, cases=(*IN_PLACE.cases, nothing))
    careful = IN_PLACE_SOLUTION.replace("mask=offs < n)\n\n", "mask=(offs < n) & (x != 0))\n\n")
    assert careful != IN_PLACE_SOLUTION
    report = grade(exercise, careful)
    assert report.passed, str(report)


def test_inputs_keep_their_strides():
    case = Case("slice", lambda generator: (torch.zeros(4, 20)[:, :7],), 0, 0)
    about = {"title": "t", "stars": 1, "minutes": 1, "hints": ("", "", ""), "torch_may_finish": True}
    exercise = Exercise(
        number="91.5", entry="strides", reference=lambda x: torch.tensor(x.stride()), cases=(case,), **about
    )
    code = """
@triton.jit
def touch_kernel(x_ptr):
    tl.load(x_ptr)

def strides(x):
    touch_kernel[(1,)](x)
    return torch.tensor(x.stride())
"""
    assert grade(exercise, code).passed


def test_float64_references_ask_for_the_inputs_dtype():
    exercise = Exercise("91.6", "t", 1, 1, "double", lambda x: 2 * x.double(), DOUBLE.cases, ("", "", ""))
    assert grade(exercise, DOUBLE_SOLUTION).passed


# ---- what an answer may do to us -----------------------------------------------------------------------------------

SEGFAULT = "import ctypes; ctypes.string_at(8)"


@pytest.mark.parametrize(
    "code, diagnosis, words",
    [
        (before_return("while True: pass"), "timeout", "in line 12"),
        ("while True: print('x' * 99)", "timeout", "in line 1"),
        (before_return("import os; os._exit(0)"), "crash", "exit status 0"),
        (before_return(SEGFAULT), "crash", "in line 12: the process was ended by SIGSEGV"),
        (before_return("torch.ones(10 << 30, dtype=torch.uint8)"), "memory", "in line 12"),
        (before_return("[bytes(1 << 20) for _ in range(10 << 10)]"), "memory", "in line 12"),
        (before_return("input('name')"), "exception", "input() has nobody to ask"),
        (before_return("exit()"), "exception", "ends Python"),
        (edited(("tl.store(y_ptr + offs", "tl.store(y_ptr + offs + (1 << 30)")), "out-of-bounds", "Line 6"),
        ("double = 3", "no-entry", "does not define double"),
        ("raise KeyError('a')", "exception", "Line 1 raised KeyError"),
    ],
)
def test_the_check_survives(code, diagnosis, words):
    started = time.monotonic()
    report = grade(replace(DOUBLE, time_limit=2.0), code)
    assert report.status == "failed"
    assert report.diagnosis.code == diagnosis and words in report.diagnosis.sentence, report
    assert time.monotonic() - started < 10  # two seconds of its own, the rest for a machine with other work


def test_a_crash_in_one_case_leaves_the_others_their_ticks():
    report = grade(DOUBLE, before_return(f"if len(x) == 1000: {SEGFAULT}"))
    assert [case.status for case in report.cases] == ["passed", "failed", "passed"]


@pytest.mark.parametrize(
    "trick",
    [
        "torch.allclose = torch.equal = torch.Tensor.equal = lambda *a, **k: True",
        "import numpy; numpy.isclose = numpy.array_equal = numpy.allclose = lambda *a, **k: True",
        "from course_lab.check import verdict; verdict.close = lambda e, g, *r: g == g",
        "import course_lab.check.verdict as v; v.CaseRun.passed = True",
    ],
)
def test_patching_the_comparison_does_not_help(trick):
    assert grade(DOUBLE, f"{trick}\n" + edited(("x * 2", "x * 3"))).diagnosis.code == "constant-factor"


def test_the_child_has_no_expected_values():
    spy = """
    import gc
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor) and thing.shape == x.shape:
            print("tensor", [round(v, 3) for v in thing.flatten()[:2].tolist()])
        if isinstance(thing, dict) and ("cases" in thing or "expected" in thing):
            print("keys", sorted(map(str, thing)))
"""
    run = grading.make_runs(DOUBLE)[0]
    job = grading.make_job(DOUBLE, edited(("    return y", spy + "    y = None\n    return y")), [run])
    printed = client.run_cases(job, time_limit=10).outcome.output
    expected = [round(v, 3) for v in run.expected[0][:2].tolist()]
    given = [round(v, 3) for v in run.args[0][:2].tolist()]
    assert f"tensor {given}" in printed
    assert printed.count(f"tensor {expected}") == 1  # the answer's own y
    fields = sorted(field.name for field in dataclasses.fields(Job))
    assert f"keys {fields}" in printed and "expected" not in fields


# ---- other engines -------------------------------------------------------------------------------------------------


@pytest.fixture
def fake_gpu(monkeypatch):
    """A GPU that is the interpreter in disguise; `fake_gpu["error"]` is added to what it returns."""
    settings = {"error": 0.0}
    real = client.run_cases

    def run(job, **options):
        if job.device != "cuda":
            return real(job, **options)
        assert options["memory_limit"] is None
        attempt = real(replace(job, device="cpu"), **options)
        for seen in attempt.seen:
            seen.outputs[0].add_(settings["error"])
        seen = tuple(replace(one, launches=(), writers=(None,)) for one in attempt.seen)
        return replace(attempt, seen=seen)

    monkeypatch.setattr(client, "run_cases", run)
    monkeypatch.setattr(grading.engines, "gpu", lambda: Gpu("Imaginary MI300X", "gfx942", "hip", 64))
    monkeypatch.setattr(grading.engines, "device", lambda: "cuda")
    return settings


def test_a_gpu_that_agrees_is_not_mentioned(fake_gpu):
    report = grade(DOUBLE, DOUBLE_SOLUTION)
    assert report.passed and len(report.cases) == len(DOUBLE.cases)


def test_a_gpu_that_disagrees_is_named(fake_gpu):
    fake_gpu["error"] = 1.0
    report = grade(DOUBLE, DOUBLE_SOLUTION)
    assert report.status == "failed" and report.diagnosis.code == "gpu-differs"
    assert "Imaginary MI300X" in report.diagnosis.sentence
    assert report.cases[-1].name == "bfloat16, on Imaginary MI300X" and not report.cases[-1].passed


def test_too_many_launches_and_a_grid_of_two_axes():
    twice = edited(
        ("    return y", "    copy_kernel[grid](x, y, M, N, N, 1, N, 1, BLOCK=16)\n    return y"), exercise=COPY
    )
    report = grade(COPY, twice)
    assert report.diagnosis.code == "too-many-launches" and "2 kernels" in report.diagnosis.sentence


# ---- cases of other kinds --------------------------------------------------------------------------------------------


def test_a_second_call_has_other_numbers_and_leaves_the_first_result():
    twice = replace(DOUBLE, cases=(replace(DOUBLE.cases[0], name="once", again=True),))
    assert [case.name for case in grade(twice, DOUBLE_SOLUTION).cases] == ["once", "once, called again"]
    cached = "KEPT = {}\n" + edited(("y = torch.empty_like(x)", "y = KEPT.setdefault(len(x), torch.empty_like(x))"))
    report = grade(twice, cached)
    assert [case.passed for case in report.cases] == [True, False]
    assert report.diagnosis.code == "result-reused" and "the result of the call before was changed" in str(report)
    stale = "KEPT = {}\n" + edited(
        ("    y = torch", "    if len(x) in KEPT:\n        return KEPT[len(x)]\n    y = torch"),
        ("    return y\n", "    KEPT[len(x)] = y\n    return y\n"),
    )
    assert not grade(twice, stale.replace("return KEPT[len(x)]\n    return y", "return y")).passed
    by_address = stale.replace("len(x)", "x.data_ptr()")
    assert grade(twice, by_address).diagnosis.code == "not-always-launched", "the second call has the same memory"


def test_a_result_in_the_memory_of_an_argument_is_no_new_tensor():
    alias = edited(("    return y\n", "    x[:] = y\n    return x\n"))
    assert not grade(DOUBLE, alias).passed
    one = replace(DOUBLE, reference=lambda x: x * 1.0)
    kept = edited(("x * 2", "x"), ("    return y\n", "    return x.view(-1)\n"))
    report = grade(one, kept)
    assert report.diagnosis.code == "input-returned" and "argument x" in report.diagnosis.sentence


def test_each_output_may_have_a_tolerance_of_its_own():
    coarse, fine = Tolerance(1.0, 0.0), Tolerance(1e-6, 0.0)
    pair = Exercise("91.7", "t", 1, 1, "pair", lambda x: (x, x), DOUBLE.cases, HINTS)
    code = edited(("def double(x)", "def pair(x)"), ("x * 2", "x + 0.5"), ("    return y", "    return y, y.clone()"))
    cases = tuple(replace(case, tolerances=(coarse, fine)) for case in DOUBLE.cases[:1])
    finished = replace(pair, cases=cases, torch_may_finish=True)
    assert "output 2" in str(grade(finished, code)) and "of output 1" not in str(grade(finished, code))


WIDE = Exercise(
    "91.5",
    "Rows far apart",
    1,
    5,
    "first",
    lambda x: x[:, :8].clone(),
    (Case("three rows", lambda g: (spread(torch.randn(3, 8, generator=g).half(), (1 << 30, 1)),), 0.0, 0.0),),
    HINTS,
)
WIDE_SOLUTION = """\
@triton.jit
def first_kernel(x_ptr, y_ptr, stride_xm):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, 8)
    tl.store(y_ptr + row * 8 + cols, tl.load(x_ptr + row * stride_xm + cols))


def first(x):
    y = torch.empty((3, 8), dtype=x.dtype)
    first_kernel[(3,)](x, y, x.stride(0))
    return y
"""


def test_rows_may_be_further_apart_than_32_bits_can_count():
    assert grade(WIDE, WIDE_SOLUTION).passed
    report = grade(WIDE, WIDE_SOLUTION.replace(".to(tl.int64)", ""))
    assert report.diagnosis.code == "missing-int64" and "Line 4" in report.diagnosis.sentence, report


def _last_rows(generator: torch.Generator) -> tuple:
    x, index = torch.randn(4, 8, generator=generator).half(), torch.tensor([3, -1, 0])
    return at_the_end(x, 1 << 28), counted_from(index, 1 << 28)


VAST = replace(
    WIDE,
    reference=lambda x, index: torch.where(index[:, None] < 0, 0.0, x[index]),
    cases=(Case("the last rows", _last_rows, 0.0, 0.0),),
)
VAST_SOLUTION = """\
@triton.jit
def first_kernel(x_ptr, index_ptr, y_ptr):
    row, cols = tl.program_id(0), tl.arange(0, 8)
    i = tl.load(index_ptr + row)
    x = tl.load(x_ptr + i * 8 + cols, mask=(cols < 8) & (i >= 0), other=0.0)
    tl.store(y_ptr + row * 8 + cols, x)


def first(x, index):
    y = torch.empty((3, 8), dtype=x.dtype)
    first_kernel[(3,)](x, index, y)
    return y
"""


def test_a_dense_tensor_may_have_more_elements_than_32_bits_can_count():
    assert grade(VAST, VAST_SOLUTION).passed
    report = grade(VAST, VAST_SOLUTION.replace("index_ptr + row)", "index_ptr + row).to(tl.int32)"))
    assert report.diagnosis.code == "missing-int64" and "of x_ptr" in report.diagnosis.sentence, report


# ---- what may go wrong around an answer ------------------------------------------------------------------------------


def test_a_cell_that_behaves_otherwise_the_next_time_is_a_report():
    fickle = f"import os, tempfile\nif os.getpid() % 2:\n    raise KeyError('odd')\n{DOUBLE_SOLUTION}"
    statuses = {grade(DOUBLE, fickle).status for _ in range(4)}
    assert statuses <= {"passed", "failed"}


def test_a_second_opinion_that_cannot_define_the_cell_is_a_quiet_line(monkeypatch):
    real = client.run_cases

    def run(job, **options):
        broken = replace(job, code="raise KeyError('later')") if job.simulate else job
        return real(broken, **options)

    monkeypatch.setattr(client, "run_cases", run)
    report = grade(DOUBLE, DOUBLE_SOLUTION)
    assert report.passed and report.note == "Not tried on a simulated MI300X: KeyError: 'later'."


def test_a_full_disk_is_a_report(monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sandbox, "run", full)
    report = grade(DOUBLE, DOUBLE_SOLUTION)
    assert report.status == "failed" and report.diagnosis.code == "crash"
    assert "could not write its files below" in report.diagnosis.sentence and "No space left" in str(report)


@pytest.mark.parametrize(
    "code, words",
    [
        ("x = '\ud800'\n" + DOUBLE_SOLUTION, "surrogates not allowed"),
        ("x = " + "(" * 5000 + ")" * 5000, "nested"),
        ("x = " + "-" * 100_000 + "1", "nested too deeply"),
        ("x\0 = 1", "null bytes"),
    ],
    ids=["half-a-character", "parentheses", "signs", "null"],
)
def test_code_that_python_cannot_take_in_is_a_report(code, words):
    report = grade(DOUBLE, code)
    assert report.diagnosis.code == "syntax-error" and words in report.diagnosis.sentence
    (str(report) + report._repr_html_()).encode()
    assert source.fingerprint(code)


def test_what_an_answer_prints_cannot_move_the_cursor():
    odd = (
        "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe\\x1b[2Jhe\\x07llo\\x1e7\\n')\nprint('\\ud800', flush=True)\n"
    )
    report = grade(DOUBLE, odd + DOUBLE_SOLUTION)
    assert report.passed and "\\x1b[2Jhe\\x07llo" in report.printed
    assert "\x1b" not in str(report) and "\x1b" not in report._repr_html_()
    (str(report) + report._repr_html_()).encode()


@pytest.mark.skipif(not confinement.version(), reason="this kernel has no Landlock")
def test_an_answer_reaches_neither_the_journal_nor_the_solutions(course_home):
    spy = (
        f"for path in ({str(course_home)!r}, {os.path.expanduser('~')!r}):\n    try:\n        print(os.listdir(path))\n"
    )
    spy = "import os\n" + spy + "    except OSError as error:\n        print(type(error).__name__)\n"
    report = grade(DOUBLE, spy + DOUBLE_SOLUTION)
    assert report.passed and report.printed.split() == ["PermissionError"] * 2


@pytest.mark.skipif(not confinement.version(), reason="this kernel has no Landlock")
def test_what_lies_beside_python_is_read_but_for_the_solutions_and_the_journal(course_home):
    """Installed without `-e`, the lessons lie among Python's packages; and a home may be a folder of PYTHONPATH."""
    lesson = lessons.lesson("00_start_here").path
    places = [str(lesson / "exercises.py"), str(course_home / "progress.jsonl"), torch.__file__]
    (course_home / "progress.jsonl").write_text("{}\n")
    child = "import sys, torch\nfrom pathlib import Path\nfrom course_lab.check import client\n"
    child += f"sys.path += [{str(lesson.parent.parent)!r}, {str(course_home.parent)!r}]\n"
    child += "from gfxlab import confinement\nfiles = client._files()\n"
    child += "confinement.confine(write=[], read=map(Path, files.read), hidden=map(Path, files.hidden))\n"
    child += f"for place in {places!r}:\n    try:\n        print(bool(open(place).read()))\n"
    child += "    except OSError as error:\n        print(type(error).__name__)\nimport course_lab.check.outside\n"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
    assert done.stdout.split() == ["PermissionError", "PermissionError", "True"], done.stderr


@pytest.mark.parametrize(
    "result, words",
    [
        ("y.to_sparse()", "a tensor of layout torch.sparse_coo"),
        ("torch.empty_like(y, device='meta')", "without memory"),
        ("torch.quantize_per_tensor(y.float(), 1.0, 0, torch.qint8)", "a tensor of torch.qint8"),
        ("torch.nested.nested_tensor([y, y])", "a nested tensor"),
        ("type('X', (), {'__str__': lambda self: 1 / 0})()", "raises ZeroDivisionError"),
        ("type('X', (tuple,), {'__iter__': lambda self: 1 / 0})([y])", "raises ZeroDivisionError"),
    ],
)
def test_a_result_of_another_kind_is_said_in_words(result, words):
    changed = DOUBLE_SOLUTION.replace("return y", f"return {result}")
    assert changed != DOUBLE_SOLUTION
    report = grade(DOUBLE, changed)
    assert report.diagnosis.code == "wrong-type" and words in report.diagnosis.sentence


def test_a_tensor_of_a_class_of_its_own_counts_as_a_tensor():
    evil = "class Evil(torch.Tensor):\n    def numel(self):\n        raise SystemExit\n"
    assert grade(DOUBLE, evil + DOUBLE_SOLUTION.replace("return y", "return y.as_subclass(Evil)")).passed


@pytest.mark.parametrize("odd", ["\x0c\n", "s = '\u2028 \x85 \x1c'\n"])
def test_a_line_ends_where_python_ends_it(odd):
    report = grade(DOUBLE, f"{odd}{DOUBLE_SOLUTION}\nraise ValueError")
    assert report.diagnosis.sentence.startswith(f"Line {len(f'{odd}{DOUBLE_SOLUTION}'.split(chr(10))) + 1} raised")
    assert grade(DOUBLE, f"{odd}{DOUBLE_SOLUTION}").passed


def test_a_compiler_that_cannot_write_says_nothing_about_the_answer():
    emptied = "import os, shutil\nshutil.rmtree(os.path.dirname(os.getcwd()), ignore_errors=True)\n"
    report = grade(DOUBLE, emptied + DOUBLE_SOLUTION)
    assert report.passed and report.note.startswith("Not tried")


@pytest.fixture(params=["torch.set_default_dtype(torch.float64)", "torch.set_default_device('meta')", "no folder"])
def odd_process(request, tmp_path):
    """This process as a notebook may have left it."""
    before, folder = os.getcwd(), tmp_path / "gone"
    if request.param == "no folder":
        folder.mkdir()
        os.chdir(folder)
        folder.rmdir()
    else:
        exec(request.param)
    yield
    os.chdir(before)
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


def test_what_the_notebook_was_told_reaches_no_check(odd_process):
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    assert grade(ROW_SUM, ROW_SUM_SOLUTION).passed and grade(DOUBLE, "").status == "not-attempted"
    assert (torch.get_default_dtype(), torch.get_default_device()) == (dtype, device)


@pytest.mark.parametrize("wrong_at, statuses", [(500, "failed passed not-run"), (4000, "passed passed failed")])
def test_what_takes_long_is_tried_only_where_all_else_is_right(wrong_at, statuses):
    first, *others = DOUBLE.cases[:2]
    long = replace(first, name="4096 elements", make=lambda g: (torch.randn(4096, generator=g),), last=True)
    exercise = replace(DOUBLE, cases=(long, first, *others[:1]))
    assert grade(exercise, DOUBLE_SOLUTION).passed
    wrong = DOUBLE_SOLUTION.replace("x * 2", f"tl.where((offs == {wrong_at}) & (n != 1000), 7, x * 2)")
    wrong = wrong.replace("return y", "print(len(x))\n    return y")
    found = {case.name: case for case in grade(exercise, wrong, search=False).cases}
    assert " ".join(found[case.name].status for case in (first, *others[:1], long)) == statuses
    assert ("once the others are right" in str(found[long.name])) == (wrong_at == 500)
