"""The command `gfxlab`, on a file that launches kernels as its owner does, and in the words that the user sees."""

from __future__ import annotations

import ast
import json
import linecache
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from triton.compiler.errors import CompilationError

from gfxlab import user_errors

SCRIPT = """
import sys
import torch, triton, triton.language as tl
from neighbour import SCALE

@triton.jit
def scale_kernel(x_ptr, y_ptr, alpha, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < (n if MASKED else n + BLOCK)
    tl.store(y_ptr + offs, alpha * tl.load(x_ptr + offs, mask=mask), mask=mask)

@triton.jit
def fill_kernel(y_ptr, value, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), value)

if __name__ == "__main__":
    x, y = torch.full((100,), 7.0), torch.zeros(128)
    fill_kernel[(1,)](y, 5.0, BLOCK=128)
    assert (y == 5.0).all()
    scale_kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, SCALE, 100, BLOCK=64, MASKED=True)
    assert (y[:100] == 7.0 * SCALE).all() and (y[100:] == 5.0).all()
    scale_kernel[(2,)](y, x, SCALE, 100, BLOCK=64, MASKED=MASKED)
    sys.exit(3)
"""


@pytest.fixture
def script(tmp_path):
    """A file that launches kernels as its owner does; script(masked) writes it and gives its path."""

    def write(masked: bool = True) -> str:
        (tmp_path / "neighbour.py").write_text("SCALE = 2.0\n")
        path = tmp_path / "kernels.py"
        path.write_text(SCRIPT.replace("MASKED=MASKED", f"MASKED={masked}"))
        return str(path)

    yield write
    sys.modules.pop("neighbour", None)


def test_simulate_runs_the_launches_of_a_file(gfxlab, script):
    status, output, _ = gfxlab("simulate", f"{script()}:scale_kernel", "--arch", "gfx1100")
    assert status == 0
    assert output.count("scale_kernel on gfx1100, grid 2\n") == 2
    assert "lines of 128" in output  # bytes are counted
    assert "fill_kernel" not in output
    assert "fill_kernel on gfx942, grid 1\n" in gfxlab("simulate", script())[1]


def test_simulate_fails_when_a_launch_did_what_it_may_not(gfxlab, script):
    path = script()
    with open(path) as file:
        clash = file.read().replace("y_ptr + offs, alpha *", "y_ptr + offs % 64, tl.program_id(0) + alpha *")
    with open(path, "w") as file:
        file.write(clash.replace("    assert (y[:100]", "    sys.exit()\n    assert (y[:100]"))
    status, output, _ = gfxlab("simulate", f"{path}:scale_kernel")
    assert status == 1
    assert "  ! " in output


def test_trace_tells_what_the_kernels_of_a_file_read_and_wrote(gfxlab, script, tmp_path):
    page = tmp_path / "page.html"
    status, output, _ = gfxlab("trace", script(), "--html", str(page))
    assert status == 0
    assert output.startswith("fill_kernel, grid 1\n") and "scale_kernel, grid 2\n" in output
    assert "(1 more launch of scale_kernel)" in output
    assert page.read_text().count("<svg") == 2 and "kernels.py" in page.read_text()
    status, output, _ = gfxlab("trace", f"{script()}:scale_kernel")
    assert output.startswith("scale_kernel, grid 2\n") and "fill_kernel" not in output
    assert "y_ptr: 28 elements never written, first element 100." in output


def test_trace_ends_at_an_access_out_of_bounds_with_its_sentence(gfxlab, script):
    status, _, error = gfxlab("trace", script(masked=False))
    assert status == 1 and len(error.splitlines()) == 1
    assert "of program 1 reads element 100 of x_ptr" in error or "element 100 of y_ptr, past the end" in error
    assert "It launches fill_kernel, scale_kernel." in gfxlab("trace", f"{script()}:nothing")[2]


def test_simulate_ends_at_an_illegal_access_with_its_sentence(gfxlab, script):
    status, _, error = gfxlab("simulate", script(masked=False))
    assert status == 1
    assert "element 100 of y_ptr, past the end" in error or "element 100 of x_ptr, past the end" in error
    assert len(error.splitlines()) == 1


def test_step_follows_one_wave(gfxlab, script):
    status, output, _ = gfxlab("step", f"{script()}:scale_kernel", "--program", "1", "--only", "tl.load")
    assert status == 0
    assert output.startswith("scale_kernel on gfx942: program 1, wave 0")
    assert "36 lanes read elements 64 to 99 of x_ptr" in output
    assert "7 in every lane" not in output  # lanes 36 to 63 read 0: the mask
    assert "7, 7, 7 … 0" in output
    output = gfxlab("step", f"{script()}:scale_kernel", "--launch", "2", "--by", "line", "--arch", "gfx1100")[1]
    assert output.startswith("scale_kernel on gfx1100")
    assert "14" in output  # the first launch has run


def test_step_shows_one_step_with_all_that_it_reads(gfxlab, script):
    every = gfxlab("step", f"{script()}:fill_kernel")[1]
    (number,) = re.findall(r"^ +(\d+)  \w+_store_", every, re.MULTILINE)
    status, output, _ = gfxlab("step", f"{script()}:fill_kernel", "--at", number)
    assert status == 0
    assert output.startswith(f"step {number}\n")
    assert "tl.store(y_ptr" in output
    assert "EXEC" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("simulate", "nowhere.py:k"), "There is no file nowhere.py; give FILE:KERNEL"),
        (("simulate", "FILE:no_kernel"), "kernels.py does not launch no_kernel when"),
        (("step", "FILE:no_kernel"), "It launches fill_kernel, scale_kernel."),
        (("step", "FILE:fill_kernel", "--launch", "2"), "does not launch fill_kernel 2 times"),
        (("step", "FILE:fill_kernel", "--arch", "gfx1"), "--arch gfx1 is unknown"),
        (("step", "FILE:fill_kernel", "--program", "4"), "--program (4, 0, 0) is not in the grid (1, 1, 1)"),
        (("step", "FILE:fill_kernel", "--wave", "9"), "got --wave 9"),
        (("step", "FILE:fill_kernel", "--by", "program"), "--by program is unknown"),
        (("trace", "FILE", "--html", "nowhere/ledger.html"), "--html nowhere/ledger.html: there is no folder"),
        (("step", "FILE:fill_kernel", "--program", "x"), "--program takes a number or three"),
        (("step", "FILE:fill_kernel", "--at", "900"), "there is no step 900: this walk has steps 0 to"),
        (("step", "FILE:fill_kernel", "--only", "tl.dot"), "--only tl.dot: no step"),
    ],
)
def test_bad_questions_to_the_simulator_are_answered_in_one_line(gfxlab, script, arguments, expected):
    path = script()
    status, _, error = gfxlab(*(argument.replace("FILE", path) for argument in arguments))
    assert status == 2
    assert error.startswith("gfxlab: ")
    assert expected in error
    assert len(error.splitlines()) == 1


FOR_A_GPU = """
import torch, triton, triton.language as tl

@triton.jit
def turn_kernel(x_ptr, y_ptr, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(y_ptr + j * N + i, tl.load(x_ptr + i * N + j) * 2)

x = torch.ones(16, 16, device="cuda")
for _ in range(2):
    turn_kernel[(1,)](x, torch.empty_like(x), N=16)
"""


def test_every_verb_takes_a_file_that_was_written_for_a_gpu(gfxlab, tmp_path):
    (tmp_path / "turn.py").write_text(FOR_A_GPU)
    found = {}
    for verb in ("report", "simulate", "trace", "counters", "step"):
        status, output, error = gfxlab(verb, f"{tmp_path / 'turn.py'}:turn_kernel", "--arch", "gfx1100", "--json")
        assert status == 0, error
        found[verb] = json.loads(output)
    assert found["report"][0]["kernel"] == "turn_kernel" and found["report"][0]["vgprs"] > 0
    assert len(found["simulate"]) == 2 and found["simulate"][0]["stores"]["bytes"] == 4 * 256
    assert {row["tensor"]: row["least_written"] for row in found["trace"][0]["tensors"]} == {"x_ptr": 0, "y_ptr": 1024}
    ours = found["counters"]["kernels"][0]["ours"]
    assert ours["SQ_WAVES"] == 4 and ours["SQ_INSTS"] == found["simulate"][0]["instructions"]
    assert ours["SQ_INSTS_VALU_MUL_F32"] + ours["SQ_INSTS_VALU_ADD_F32"] > 0  # the product with 2
    assert {one["name"] for one in found["counters"]["definitions"]} == set(ours)
    assert found["step"][0]["step"] == 0
    assert "AMD does not say" in gfxlab("counters", str(tmp_path / "turn.py"), "--explain")[1]


WRONG = {
    "x = 1\ny = x +": "wrong.py, line 2: SyntaxError: ",
    "def f():\n    return {}['a']\n\nf()": "wrong.py, line 2: KeyError: 'a'",
    "import json\njson.loads('{')": "wrong.py, line 2: JSONDecodeError: ",
    "import no_such_module": "wrong.py, line 1: ModuleNotFoundError: No module named 'no_such_module'",
    "%s\nk[(1,)](x)": "wrong.py, line 10: TypeError: k(x_ptr, N): missing a required argument: 'N'",
    "%s\nk[(1,)](x, N=3)": "k does not compile for AMD: line 6, `offs",  # 3 elements
    "%s\nk[(1,)](x, M=2)": "wrong.py, line 10: TypeError: ",
}
KERNEL = """import torch, triton
import triton.language as tl

@triton.jit
def k(x_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(x_ptr + offs, offs)

x = torch.zeros(4)"""


@pytest.mark.parametrize("command", ["trace", "report"])
@pytest.mark.parametrize("code", WRONG)
def test_an_error_in_the_users_file_is_one_sentence(gfxlab, tmp_path, command, code):
    file = tmp_path / "wrong.py"
    file.write_text(code % KERNEL if "%s" in code else code)
    status, _, error = gfxlab(command, str(file))
    assert status == 2 and len(error.splitlines()) == 1
    assert error.startswith(f"gfxlab: {WRONG[code]}")


@pytest.mark.parametrize(("line", "said"), [("1 / 0", None), ("raise ValueError('4 is odd')", "4 is odd")])
def test_a_defect_of_the_instruments_is_no_fault_of_the_file(monkeypatch, tmp_path, line, said):
    name = str(Path(user_errors.__file__).with_name("made_up.py"))
    monkeypatch.setitem(linecache.cache, name, (len(line), None, [line], name))
    with pytest.raises((ZeroDivisionError, ValueError)) as raised:
        exec(compile(line, name, "exec"))
    sentence = user_errors.sentence(raised.value, tmp_path / "mine.py")
    assert sentence is None if said is None else sentence.endswith(said)


def test_of_a_helper_s_compilation_error_its_own_reason_is_said(tmp_path):
    """Triton quotes the helper's call, with nothing below it, and keeps the reason as the cause."""
    called = CompilationError("k(plus(x))", ast.parse("k(plus(x))").body[0].value, None)
    called.__cause__ = CompilationError("a + CONST", ast.parse("a + CONST").body[0].value, "CONST is not defined")
    assert str(called).endswith("^")
    assert user_errors.sentence(called, tmp_path / "mine.py").endswith("CompilationError: CONST is not defined")


def test_the_command_is_a_module_too_and_gives_its_version():
    command = [sys.executable, "-m", "gfxlab", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert re.fullmatch(r"gfxlab \d+\.\d+\.\d+\n", done.stdout), done.stderr


def test_conformance_says_where_triton_is_missing(gfxlab, tmp_path):
    status, _, error = gfxlab("conformance", str(tmp_path), "--arch", "gfx942")
    assert status == 2 and "holds no tests of Triton's language" in error and len(error.splitlines()) == 1
    assert "--arch gfx1 is unknown" in gfxlab("conformance", str(tmp_path), "--arch", "gfx1")[2]


ENDLESS = """
import torch, triton, triton.language as tl

@triton.jit
def endless_kernel(x_ptr, n):
    i = 0
    while i < n:
        tl.store(x_ptr, tl.load(x_ptr) + 1.0)

endless_kernel[(2,)](torch.zeros(1, device="cuda"), 5, num_warps=1)
"""


def test_an_endless_loop_ends_with_its_sentence(gfxlab, tmp_path, monkeypatch):
    from gfxlab.pretended import evidence

    assert evidence.MAX_SECONDS <= 10
    monkeypatch.setattr(evidence, "MAX_SECONDS", 0.3)
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS)
    for name in ("moved.py", "again.py"):  # what Triton has kept was compiled where the file stood before
        path = path.rename(tmp_path / name)
        status, _, error = gfxlab("simulate", str(path))
        assert status == 1 and "program 0 of the launch does not end" in error and "(line 8: tl.store(" in error


def test_ctrl_c_ends_a_launch_without_a_traceback(gfxlab, tmp_path):
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS)
    # of processor time, so that the launch has begun however busy the machine is
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, 1.0)
    try:
        status, output, error = gfxlab("simulate", str(path))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert status == 130 and "Traceback" not in error + output
    assert torch.zeros(1).device.type == "cpu" and not torch.cuda.is_available()  # nothing is left pretended
