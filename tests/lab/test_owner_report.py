"""The report that the owner of a GPU can send: what is in it, with and without a GPU, and what must not be in it."""

from __future__ import annotations

import getpass
import json
import re
import socket
import subprocess
import sys

import pytest

from course_lab import bench, cli, doctor
from course_lab.doctor import owner_report
from gfxlab import engines, hardware

GPU = engines.Gpu("AMD Radeon RX 9070 XT", "gfx1201", "hip", 32)
MACHINE = bench.Machine(GPU.name, GPU.arch, "hip", "2.13", "3.9", "7.2", "3.11", "2026-01-01")


@pytest.fixture
def findings(monkeypatch):
    """A doctor that looks at nothing and says what tells on the user."""
    text = f"3.11 in {sys.prefix} of {getpass.getuser()} on {socket.gethostname()}; /dev/kfd may be opened"
    monkeypatch.setattr(doctor, "findings", lambda machine: [doctor.Finding("Python", "ok", text, "")])
    machine = type("Machine", (), {"system": "Linux", "architecture": "x86_64"})()
    monkeypatch.setattr(doctor.Machine, "here", lambda: machine)


@pytest.fixture
def fake_gpu(monkeypatch, findings):
    """A Radeon that runs nothing: kernels stay on the CPU, every timed call takes 2 ms."""
    monkeypatch.setattr(engines, "gpu", lambda: GPU)
    monkeypatch.setattr(engines, "device", lambda: "cpu")
    monkeypatch.setattr(bench, "available", lambda: True)
    monkeypatch.setattr(bench.Machine, "here", lambda: MACHINE)
    timed = []

    def time(call, *, name, bytes):
        timed.append(name)
        return bench.Measurement(name, 2e-3, 1.9e-3, 2.2e-3, bytes, None, 0.5e12)

    monkeypatch.setattr(bench, "time", time)
    calls = owner_report._calls
    monkeypatch.setattr(owner_report, "_calls", lambda rows, device: calls(4, "cpu"))
    return timed


def ended(monkeypatch, status: int, output: str) -> list[list[str]]:
    """Let `make test-gpu` end so; gives the list of commands that were run."""
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, status, output, "")

    monkeypatch.setattr(owner_report.subprocess, "run", run)
    return commands


def test_without_a_gpu_the_report_holds_doctor_and_machine_code(findings, monkeypatch):
    monkeypatch.setattr(engines, "gpu", lambda: None)
    found = owner_report.collect()
    assert found["gpu"] is found["tests"] is found["benchmark"] is None
    assert [kernel["kernel"] for kernel in found["kernels"]][:2] == ["vector_add", "softmax"]
    for kernel in found["kernels"]:
        assert kernel["arch"] == "gfx942" and kernel["error"] < 0.02 and kernel["spills"] == 0
        assert "128-bit" in kernel["loads"]
    assert "mfma" in found["kernels"][-1]["matrix"]
    text = owner_report.as_markdown(found)
    assert "GPU: none that PyTorch can use." in text and "there is no GPU to time" in text
    assert json.loads(re.search(r"```json\n(.*)\n```", text, re.DOTALL)[1]) == found


def test_with_a_gpu_its_own_code_tests_and_times_are_there(fake_gpu, monkeypatch):
    summary = (
        "FAILED tests/kernels/test_rope.py::test_x - AssertionError: /home/me/x.py\n= 1 failed, 700 passed in 9s ="
    )
    commands = ended(monkeypatch, 2, f"....F\n{summary}\n")
    found = owner_report.collect()
    assert commands[0][0] == "make" and commands[0][-1] == "test-gpu"
    assert found["tests"]["summaries"] == ["1 failed, 700 passed in 9s"]
    assert found["tests"]["failed"] == ["FAILED tests/kernels/test_rope.py::test_x - AssertionError: <path>"]
    assert {kernel["arch"] for kernel in found["kernels"]} == {"gfx1201"} and "wmma" in found["kernels"][-1]["matrix"]
    assert fake_gpu[:2] == ["vector_add", "vector_add, PyTorch reference"] and "matmul" not in fake_gpu
    text = owner_report.as_markdown(found)
    assert "GPU: AMD Radeon RX 9070 XT (gfx1201, hip)" in text and "- ended with status 2" in text
    assert "| vector_add |" in text and "of a copy" in text


def test_an_nvidia_gpu_is_shown_the_code_of_an_amd_one(fake_gpu, monkeypatch):
    monkeypatch.setattr(engines, "gpu", lambda: engines.Gpu("H", "sm_90", "cuda", 32))
    assert owner_report.collect(tests=False)["kernels"][0]["arch"] == "gfx942"
    assert "sm_90" not in hardware.LIMITS


def test_tests_can_be_left_out_and_may_be_impossible(fake_gpu, monkeypatch, tmp_path):
    assert owner_report.collect(tests=False)["tests"] is None
    monkeypatch.setattr(owner_report, "ROOT", tmp_path)
    assert owner_report.gpu_tests()["status"].startswith("not run: this needs the course's own folder")


def test_the_file_names_no_user_host_or_path(fake_gpu, monkeypatch, tmp_path, capsys):
    ended(monkeypatch, 0, "= 5 passed in 1s =")
    output = tmp_path / "report.md"
    monkeypatch.setattr(sys, "argv", ["course", "report", "--output", str(output)])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    assert not exit.value.code and "Read it before you send it" in capsys.readouterr().out
    text = output.read_text()
    for secret in (sys.prefix, str(owner_report.ROOT), socket.gethostname(), str(tmp_path)):
        assert secret not in text
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text)
    assert "/dev/kfd may be opened" in text and "- 5 passed in 1s" in text


@pytest.mark.parametrize(
    "text, expected",
    [
        ("weights in /home/ann/.local/share/x.gguf", "weights in <path>"),
        ("run ~/course/.venv/bin/pip install x", "run <path> install x"),
        ("open /dev/kfd and tests/lab/a.py, 3/4 of it", "open /dev/kfd and tests/lab/a.py, 3/4 of it"),
        ("ann@box: ann's annex on box", "<user>@<host>: <user>'s annex on <host>"),
    ],
)
def test_what_is_personal_is_replaced(monkeypatch, text, expected):
    monkeypatch.setattr(owner_report, "_user", lambda: "ann")
    monkeypatch.setattr(owner_report.socket, "gethostname", lambda: "box")
    assert owner_report.anonymous(text) == expected
