"""The first process of a sandbox: it imports torch and Triton once, and forks a child for each job that it is sent.

It is process 1 of its own process namespace, so nothing in there can kill or stop it; it gives up being traced, so
nothing can write into its memory either.  Between two jobs it kills every other process and empties the folders that
can be written.  What a child says is passed on as it came: nothing of it is read in here.

    stdin    frames: b"J" and the job's terms as JSON, then b"A" and its argument (`transport.to_bytes`)
    stdout   frames: b"R" ready; b"P" a value of the job; b"L" the child's last word; b"E" how it ended, as JSON
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import inspect
import json
import multiprocessing
import os
import re
import resource
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lab.classroom.frames import MOST, read_frame, write_frame
from gfxlab import sandbox, transport

PRELOADED = ("course_lab.check.measured", "gfxlab.code.job")
_PR_SET_DUMPABLE = 4
_LOOK = 0.1  # seconds between two looks at the memory of everything in here
_LEAST_FREE = 256 << 20  # bytes that a machine must have left, whoever took the rest
_RESIDENT = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", re.MULTILINE)
_AVAILABLE = re.compile(r"MemAvailable:\s+(\d+) kB")
_WRITABLE = ("/tmp", "/dev/shm")
_MOVED = ".to-be-removed-"


@dataclass(frozen=True)
class Terms:
    """How a job is run: "module:function", seconds of wall and CPU time, bytes, processes."""

    function: str
    seconds: float
    cpu_seconds: float
    memory: int
    together: int
    processes: int
    file_size: int


def main() -> None:
    """Serve jobs until stdin ends."""
    jobs, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    _become_unreachable()
    for module in PRELOADED:
        importlib.import_module(module)
    multiprocessing.current_process().daemon = True  # a child of this process is a sandbox's child: it compiles itself
    gc.collect()
    gc.freeze()
    write_frame(answers, b"R", b"")
    while (frame := read_frame(jobs)) is not None:
        terms = Terms(**json.loads(frame[1]))
        argument = read_frame(jobs)
        if argument is None:
            return
        _serve(terms, argument[1], answers)


def _become_unreachable() -> None:
    """Nobody traces this process or opens its memory and its pipes; Python's own handlers for signals go."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # which process 1 does not get from anybody in here


# ---- one job ---------------------------------------------------------------------------------------------------------


@dataclass
class _Heard:
    """What came out of a child: its printing, bytes of values passed on, and why it was ended, if it was."""

    printed: sandbox.Printed = field(default_factory=sandbox.Printed)
    values: int = 0
    ended: str = ""


def _serve(terms: Terms, argument: bytes, answers: int) -> None:
    started = time.monotonic()
    values, values_in = os.pipe()
    output, output_in = os.pipe()
    stack = os.memfd_create("stack")
    child = os.fork()
    if child == 0:
        os.close(answers)
        os.close(values)
        os.close(output)
        _work(terms, argument, values_in, output_in, stack)
    os.close(values_in)
    os.close(output_in)
    heard = _Heard()
    exit_code = _listen(child, values, output, terms, heard, answers, started)
    _kill_everything_else()
    for pipe in (values, output):
        os.close(pipe)
    os.lseek(stack, 0, os.SEEK_SET)
    frames = os.read(stack, 1 << 16).decode(errors="replace")
    os.close(stack)
    _empty_folders()
    end = {"exit": exit_code, "ended": heard.ended, "output": heard.printed.text(), "stack": frames}
    end |= {"seconds": time.monotonic() - started, "cpu": _cpu()}
    write_frame(answers, b"E", json.dumps(end).encode())


def _cpu() -> float:
    """CPU seconds of this process and of every one that it has collected."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def _listen(
    child: int, values: int, output: int, terms: Terms, heard: _Heard, answers: int, started: float
) -> int | None:
    """Pass on what the child says until it ends or is ended; its exit code, None where it was ended."""
    relay = _Relay(answers, heard)
    with selectors.DefaultSelector() as selector:
        pidfd = os.pidfd_open(child)
        for stream in (pidfd, values, output):
            selector.register(stream, selectors.EVENT_READ)
        try:
            while True:
                ready = {key.fd for key, _ in selector.select(_LOOK)}
                if values in ready and not relay.take(values):
                    selector.unregister(values)
                if output in ready and not heard.printed.read(_Reader(output)):
                    selector.unregister(output)
                if pidfd in ready:
                    _, status = os.waitpid(child, 0)
                    _drain(values, output, relay, heard)
                    return os.waitstatus_to_exitcode(status)
                if why := relay.wrong or _over(terms, started):
                    heard.ended = why
                    _let_it_say_where(child)
                    return None
        finally:
            os.close(pidfd)


def _let_it_say_where(child: int) -> None:
    os.kill(child, signal.SIGUSR1)
    time.sleep(_LOOK)  # a signal is handled at once, if there is a processor for it


def _over(terms: Terms, started: float) -> str:
    """Which limit of the whole job is passed: "time", "memory", or "" for none."""
    if time.monotonic() - started > terms.seconds:
        return "time"
    return "memory" if _held() > terms.together or _free() < _LEAST_FREE else ""


def _held() -> int:
    """Bytes of memory of every process in here beyond what each was born with, and of the files in memory."""
    own, held = _resident(Path("/proc/1")), 0
    for process in Path("/proc").glob("[0-9]*"):
        held += max(_resident(process) - own, 0)
    for folder in _WRITABLE:
        place = os.statvfs(folder)
        held += (place.f_blocks - place.f_bfree) * place.f_frsize
    return held


def _resident(process: Path) -> int:
    with suppress(OSError):
        status = (process / "status").read_text()
        return sum(int(kilobytes) << 10 for kilobytes in _RESIDENT.findall(status))
    return 0


def _free() -> int:
    """Bytes that the whole machine has left."""
    return int(_AVAILABLE.search(Path("/proc/meminfo").read_text())[1]) << 10


@dataclass
class _Reader:
    """A pipe as `Printed` reads it."""

    number: int

    def fileno(self) -> int:
        return self.number


@dataclass
class _Relay:
    """Takes frames out of a child's bytes and passes them on; `wrong` says why no more is taken."""

    answers: int
    heard: _Heard
    held: bytearray = field(default_factory=bytearray)
    wrong: str = ""

    def take(self, pipe: int) -> bool:
        """Read what is there; False at the end of the stream."""
        data = os.read(pipe, 1 << 20)
        self.heard.values += len(data)
        if self.heard.values > MOST:
            self.wrong = "result"
        if self.wrong:
            return bool(data)
        self.held += data
        while len(self.held) >= 9 and len(self.held) >= 9 + (size := int.from_bytes(self.held[1:9], "little")):
            kind, body = bytes(self.held[:1]), bytes(self.held[9 : 9 + size])
            del self.held[: 9 + size]
            if kind not in (b"P", b"L"):
                self.wrong = "result"
                break
            write_frame(self.answers, kind, body)
        return bool(data)


def _drain(values: int, output: int, relay: _Relay, heard: _Heard) -> None:
    """What a child that has ended left in its pipes; a process that it left behind may hold them open."""
    for pipe, take in ((values, relay.take), (output, lambda pipe: heard.printed.read(_Reader(pipe)))):
        os.set_blocking(pipe, False)
        deadline = time.monotonic() + 1
        with suppress(BlockingIOError):
            while take(pipe) and time.monotonic() < deadline:
                pass
    heard.ended = relay.wrong


def _kill_everything_else() -> None:
    """End and collect every process but this one."""
    with suppress(ChildProcessError):
        while True:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)


def _empty_folders() -> None:
    """Remove all that a job left, also what it locked or nested by the thousand."""
    for folder in _WRITABLE:
        with suppress(OSError):
            os.chmod(folder, 0o1777)  # it is this user's
            _empty(folder)


def _empty(top: str) -> None:
    """Folders are moved up before they are emptied, so no path grows long, however deep they lie.

    What is mounted in there was there before the job: Python and the instruments, where they lie in /tmp.
    """
    folders, count = [top], 0
    while folders:
        folder = folders.pop()
        if folder != top:
            os.chmod(folder, 0o700)
        for entry in list(os.scandir(folder)):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
            elif os.path.ismount(entry.path):
                continue
            elif folder == top and entry.name.startswith(_MOVED):
                folders.append(entry.path)
            else:
                count += 1
                moved = f"{top}/{_MOVED}{time.monotonic_ns()}-{count}"
                os.chmod(entry.path, 0o700)  # a folder that is moved is written: its ".." changes
                os.rename(entry.path, moved)
                folders.append(moved)
        if folder != top:
            os.rmdir(folder)


# ---- the child -------------------------------------------------------------------------------------------------------


def _work(terms: Terms, argument: bytes, values: int, output: int, stack: int) -> None:
    """Do the job and leave; what a learner wrote runs in here."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    sandbox.redirect(os.fdopen(output, "wb", buffering=0))
    _limit(terms)
    os.chdir(tempfile.mkdtemp(prefix="work-", dir="/tmp"))
    sandbox.note_stack(stack)
    try:
        payload = transport.from_bytes(argument)
        module, _, function = terms.function.partition(":")
        for part in _parts(getattr(importlib.import_module(module), function)(payload)):
            write_frame(values, b"P", transport.to_bytes(part))
        end: dict[str, Any] = {"status": "ok"}
    except BaseException as error:  # SystemExit and KeyboardInterrupt are answers too
        end = sandbox.describe(error)
    if end["status"] == "memory":
        sandbox.make_room()
    write_frame(values, b"L", transport.to_bytes(end))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)


def _parts(result: Any) -> Iterator[Any]:
    yield from result if inspect.isgenerator(result) else [result]


def _limit(terms: Terms) -> None:
    sandbox.limit_resources(terms.seconds, terms.memory)
    cpu = int(terms.cpu_seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (terms.file_size, terms.file_size))
    resource.setrlimit(resource.RLIMIT_NPROC, (terms.processes, terms.processes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


if __name__ == "__main__":
    main()
