"""What is shown while somebody waits: one line, in no saved notebook. An interrupted check; magics before an import."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from course_lab import waiting
from course_lab.waiting import Line, Waiting

JUPYTER = Path(waiting.__file__).parent / "jupyter"
ANSWER = """\
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, 2 * x, mask=mask)


def double(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""


def watched(monkeypatch, wanted: bool) -> None:
    monkeypatch.setattr(waiting, "somebody_watches", lambda: wanted)


def test_the_bar_shows_only_where_somebody_watches(monkeypatch):
    watched(monkeypatch, True)
    assert not waiting.progress_bar(3, "writing", "token", True).disable
    assert waiting.progress_bar(3, "writing", "token", False).disable
    watched(monkeypatch, False)
    assert waiting.progress_bar(3, "writing", "token", True).disable


@pytest.mark.parametrize("allow_stdin", [True, False])
def test_a_notebook_is_watched_when_its_cells_may_ask_for_input(monkeypatch, allow_stdin):
    kernel = SimpleNamespace(get_parent=lambda channel: {"content": {"allow_stdin": allow_stdin}})
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=kernel))
    assert waiting.somebody_watches() is allow_stdin


@pytest.mark.parametrize("terminal", [True, False])
def test_without_a_notebook_a_terminal_decides(monkeypatch, terminal):
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert waiting.somebody_watches() is terminal


def test_a_script_shows_no_line(capsys, monkeypatch):
    monkeypatch.setattr(waiting, "DELAY", 0.0)
    with Waiting("2.1") as tell:
        tell("case 1 of 2")
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


class Page:
    """Takes the place of a cell's output."""

    def __init__(self) -> None:
        self.shown: list[dict] = []

    def display(self, data: dict, raw: bool, display_id: bool) -> Page:
        assert raw and display_id
        return self.update(data, raw)

    def update(self, data: dict, raw: bool) -> Page:
        self.shown.append(data)
        return self


def test_in_a_page_a_bar_is_one_line_that_ends_empty(monkeypatch, capsys):
    page = Page()
    monkeypatch.setattr("IPython.display.display", page.display)
    monkeypatch.setattr(waiting, "notebook_kernel", lambda: page)
    watched(monkeypatch, True)
    with waiting.progress_bar(3, "writing", "token", True) as bar:
        bar.update()
        bar.refresh()
    texts = [data["text/plain"] for data in page.shown[:-1]]
    assert "1/3" in texts[-1] and texts[-1].startswith("writing") and page.shown[-1] == {}
    assert capsys.readouterr() == ("", "")


def test_a_line_that_was_never_shown_leaves_nothing(monkeypatch):
    monkeypatch.setattr("IPython.display.display", lambda *args, **kwargs: pytest.fail("shown"))
    line = Line()
    line.write("\r")
    line.write("\r      \r")
    assert not line.was_shown


# ---- in a kernel as `make lab` starts it -----------------------------------------------------------------------------


class Kernel:
    """A running kernel. `run` gives the messages of a cell's output by type, in order."""

    def __init__(self, client, manager) -> None:
        self.client, self.manager = client, manager

    def run(self, code: str, stop_at: str = "", cell: str = "") -> list[dict]:
        """`stop_at`: interrupt the kernel at the first message that contains this. `cell`: the cell's id."""
        content = {"code": code, "allow_stdin": True, "silent": False, "store_history": True, "stop_on_error": True}
        message = self.client.session.msg("execute_request", content, metadata={"cellId": cell})
        self.client.shell_channel.send(message)
        messages = []
        while True:
            got = self.client.get_iopub_msg(timeout=90)
            if got["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            messages.append(got)
            if stop_at and stop_at in str(got["content"]):
                self.manager.interrupt_kernel()
                stop_at = ""
            if got["msg_type"] == "status" and got["content"]["execution_state"] == "idle":
                return [*messages, self._reply(message)]

    def _reply(self, message: dict) -> dict:
        while (reply := self.client.get_shell_msg(timeout=30))["parent_header"]["msg_id"] != message["msg_id"]:
            pass
        return reply


def text(messages: list[dict]) -> str:
    return "\n".join(str(message["content"]) for message in messages)


def kinds(messages: list[dict]) -> set[str]:
    return {message["msg_type"] for message in messages}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory) -> Iterator[Kernel]:
    home = tmp_path_factory.mktemp("home")
    notebook = home / "exercises.ipynb"
    cells = [{"id": "one", "source": ["%%exercise 0.3\n", "pass"]}, {"id": "two", "source": "%hint"}]
    notebook.write_text(json.dumps({"cells": cells}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(JUPYTER))
        specs = KernelSpecManager()
        assert Path(specs.get_kernel_spec("python3").resource_dir) == JUPYTER / "kernels" / "python3"
        manager = KernelManager(kernel_name="python3", kernel_spec_manager=specs)
        environment = {**os.environ, "COURSE_HOME": str(home), "JPY_SESSION_NAME": str(notebook)}
        environment.pop("COURSE_STRICT", None)
        manager.start_kernel(env=environment)
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        yield Kernel(client, manager)
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_before_the_import_cell_an_answer_is_graded_all_the_same(kernel):
    kernel.client.kernel_info()
    info = kernel.client.get_shell_msg(timeout=30)["content"]
    assert info["language_info"]["version"] == "3"  # or saving a lesson would note the exact one
    assert "torch" not in text(kernel.run("import sys; print(*sys.modules)"))
    messages = kernel.run(f"%%exercise 0.1\n{ANSWER}")
    assert "0.1" in text(messages) and ": right" in text(messages) and "error" not in kinds(messages)
    assert "stream" not in kinds(messages)  # the error stream is pink
    assert "double_kernel" not in text(kernel.run("print([name for name in dir() if 'begin' in name])"))


def test_while_a_check_runs_one_line_says_so_and_is_cleared(kernel):
    messages = kernel.run("%%exercise 0.1\nimport time\ntime.sleep(2.5)\n" + ANSWER)
    order = [message["msg_type"] for message in messages]
    assert "0.1: case 1 of" in text(messages)
    assert order.index("clear_output") > order.index("display_data")
    after = messages[order.index("clear_output") + 1 :]
    assert "display_data" in kinds(after) and "0.1: case" not in text(after) and "stream" not in kinds(messages)


def test_an_interrupted_check_says_one_line_and_records_nothing(kernel):
    kernel.run("from course_lab.journal import events; before = len(list(events()))")
    messages = kernel.run("%%exercise 0.1\nwhile True:\n    pass", stop_at="0.1: case")
    (error,) = [message["content"] for message in messages if message["msg_type"] == "error"]
    assert error["traceback"] == ["Stopped. Nothing was recorded."]
    assert "stream" not in kinds(messages)
    assert "recorded 0" in text(kernel.run("print('recorded', len(list(events())) - before)"))
    assert ": right" in text(kernel.run(f"%%exercise 0.1\n{ANSWER}"))  # the next check works


def test_the_cell_above_says_which_exercise_is_meant(kernel):
    assert "Hint 1 of 3 for 0.3" in text(kernel.run("%hint", cell="two"))
    assert "Hint 1 of 3 for 0.1" in text(kernel.run("%hint 0.1", cell="new"))
    assert "Hint 2 of 3 for 0.1" in text(kernel.run("%hint", cell="new"))  # a cell that is not saved: the last one
    assert "text/markdown" in text(kernel.run("%hint 0.1"))


def test_a_stub_comes_into_a_new_cell(kernel):
    reply = kernel.run("%stub 0.1")[-1]["content"]
    (payload,) = reply["payload"]
    assert payload["source"] == "set_next_input" and not payload["replace"]
    assert payload["text"].startswith("%%exercise 0.1\n") and "# your code here" in payload["text"]
