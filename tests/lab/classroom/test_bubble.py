"""What no job in a sandbox takes from the one after it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from course_lab.classroom import bubble


def test_a_python_below_tmp_is_there_for_every_job(tmp_path: Path, monkeypatch, sandbox):
    """A user may have put the course into /tmp: neither emptying nor a learner moves what is mounted there."""
    library = tmp_path / "a venv"
    library.mkdir()
    folders = (*bubble._pythons(), library)
    monkeypatch.setattr(bubble, "_pythons", lambda: folders)
    top = next(parent for parent in library.parents if parent.parent == Path("/tmp"))
    with bubble.Bubble() as held:
        for call in (f"rename({str(top)!r}, '/tmp/elsewhere')", f"mkdir({str(top / 'mine')!r})"):
            done = held.run("builtins:eval", f"__import__('os').{call}")
            assert done.status == "error" and done.error.type == "OSError", done
        for _ in range(2):
            assert held.run("os.path:isdir", str(library)).value is True


def test_threads_take_turns_and_nothing_starts_after_the_block(sandbox):
    with bubble.Bubble() as held, ThreadPoolExecutor(4) as threads:
        lengths = list(threads.map(lambda text: held.run("builtins:len", text).value, ["a" * n for n in range(8)]))
    assert lengths == [*range(8)] and held.starts == 1
    after = held.run("builtins:len", "text")
    assert after.status == "crash" and "closed" in after.error.message and held.starts == 1
