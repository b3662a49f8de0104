"""Run a job in a child process that may do anything: loop for ever, crash, eat memory, print without end.

A fork server (Python's own, from `multiprocessing`) has imported torch and triton once, so a child costs milliseconds.
The server never touches a GPU, and it is started without TRITON_INTERPRET, so that a child can interpret and compile
whatever the notebook was started with.  The job's name and its input go in; files come out (see `transport`); nothing
that the child wrote is ever executed or unpickled.

    outcome = sandbox.run("gfxlab.code.job:compile_job", {"kernel": ..., "arch": "gfx942"}, time_limit=10)
    outcome.status      # 'ok', 'error' (it raised), 'timeout', 'memory' or 'crash'
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import inspect
import io
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import IO, Any

from gfxlab import confinement, transport

MAX_RESULT = 1 << 30  # bytes of arrays that a child may hand back
_KEEP_HEAD, _KEEP_TAIL = 48 << 10, 16 << 10  # bytes of a child's output that are kept
_SPARE = 128 << 20  # memory above the limit, for saying that the limit was reached
_STANDSTILL = 3.0  # seconds without work, after which a fork server that owes an answer is replaced
_PATIENCE = 4  # so many times its limit a job may take by the clock, where it had to wait for a processor
_LATE = 3.0  # seconds that a child's clock may be behind ours
_LINE = re.compile(r'^\s*File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_MEANING = {"SIGSEGV": " (it touched memory that is not its own)", "SIGABRT": " (it aborted itself)"}
_PR_SET_CHILD_SUBREAPER = 36
_context = multiprocessing.get_context("forkserver")
_preloaded = ["gfxlab.code.job"]  # with it torch and triton
_library = threading.Lock()  # multiprocessing looks after all children whenever one starts, in any thread
_underway: set[str] = set()  # the folders of jobs that have not ended


@dataclass(frozen=True)
class Error:
    """An exception of the job: its type's name, its message, the innermost line."""

    type: str
    message: str
    line: int | None = None


@dataclass(frozen=True)
class Confined:
    """Files that a job may read, where the kernel has Landlock, besides Python's and the system's.

    It writes a folder of its own alone, which goes with it.  hidden: what it may not read, wherever it lies.
    """

    read: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    value: what the job returned (for a generator, the last value it yielded), or None.
    parts: every value of a generator job; those yielded before a crash are there.
    error: for status 'error', the exception; otherwise one sentence saying what happened. None when ok.
    output: what was printed, the middle cut out when it is long.
    stack: (file, line, function) of the code that was running when it went wrong, innermost first.
    """

    status: str
    value: Any = None
    error: Error | None = None
    output: str = ""
    seconds: float = 0.0
    signal: int | None = None
    parts: tuple[Any, ...] = ()
    stack: tuple[tuple[str, int, str], ...] = ()


class NoInput(RuntimeError):
    """The code in a child asked for keyboard input."""


def preload(module: str) -> None:
    """Let the fork server import `module` when it starts, so that a job of this module finds it there.

    Said too late, after the first job, it changes nothing: each child then imports the module itself.  What only some
    jobs need is said with these (`run(..., imports=...)`).
    """
    if module not in _preloaded:
        _preloaded.append(module)


def warm() -> None:
    """Start the fork server without waiting for it, so that the first check finds it ready."""
    with _library, _server_environment(), _somewhere():
        forkserver.ensure_running()


def run(
    job: str,
    payload: dict[str, Any],
    *,
    time_limit: float = 10.0,
    memory_limit: int | None = 4 << 30,
    on_part: Callable[[int], None] | None = None,
    confined: Confined | None = None,
    imports: tuple[str, ...] = (),
    stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run `job` ("package.module:function") on `payload` in a child process and wait for it.

    The function takes the payload and returns a dict, or is a generator of dicts, of what `transport.save` takes.

    Args:
        time_limit: seconds; then the child and all that it started are killed. What counts is the clock without the
            time for which the job stood in the queue for a processor, so that a busy machine rejects nothing that a
            quiet one takes; four times as long by the clock is the end in any case.
        memory_limit: bytes that the child may take beyond what the fork server holds (at most 80 % of what is free);
            None for no limit.
        confined: which files the job may touch besides Python's and the system's; None for all.
        imports: modules that the job needs and that take long to import. A fork server that lacks one is replaced by
            one that has imported it, which takes seconds once, unless another job is under way.
        stopped: asked again and again; once it is true, nobody wants the job any more, which ends as at its time limit.
        on_part: called with the number of values that a generator job has yielded so far, each time that it grows.
    """
    started = time.monotonic()
    temporary = tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True)
    with temporary as name, _server_with(imports, name):
        folder = Path(name)
        transport.save(payload, folder / "payload")
        (folder / "work").mkdir()
        process, reader = _start(job, folder, time_limit, _affordable(memory_limit), confined)
        printed = Printed()
        try:
            finished = _watch(process, reader, printed, time_limit, folder, on_part, stopped)
            if not finished and not stopped():
                _await_stack(process, folder)
        finally:
            _end(process)
        printed.drain(reader)
        exit_code = process.exitcode if finished else None
        process.close()
        return _outcome(folder, exit_code, printed.text(), time_limit, time.monotonic() - started)


def is_out_of_memory(error: BaseException) -> bool:
    """True for Python's MemoryError and for what PyTorch raises instead."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)


# ---- the parent's side ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _server_environment() -> Iterator[None]:
    """What a starting fork server shall see: its modules to import, no TRITON_INTERPRET, no script to run again."""
    _context.set_forkserver_preload(_preloaded)
    interpret = os.environ.pop("TRITON_INTERPRET", None)
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")  # a child would otherwise execute the notebook's script
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret


@contextlib.contextmanager
def _server_with(imports: tuple[str, ...], job: str) -> Iterator[None]:
    """Have the fork server of a job hold these modules, where no other job needs the one that lacks them."""
    with _library:
        if not _underway and not set(imports) <= set(_preloaded):
            _preloaded.extend(module for module in imports if module not in _preloaded)
            _end_server()
        _underway.add(job)
    try:
        yield
    finally:
        _underway.discard(job)


def _end_server() -> None:
    """The library starts another with the next job."""
    if pid := getattr(forkserver._forkserver, "_forkserver_pid", None):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        try:
            forkserver._forkserver._stop()
        except ChildProcessError:  # someone else has collected its exit status
            forkserver._forkserver.__init__()


def _start(job: str, folder: Path, time_limit: float, memory_limit: int | None, confined: Confined | None):
    """A running child and the end of the pipe from which its output is read."""
    deadline = time.monotonic() + 5
    while True:
        reader, writer = _context.Pipe(duplex=False)
        args = (job, str(folder), writer, time_limit, memory_limit, confined)
        process = _context.Process(target=_child, args=args, daemon=True, name="course sandbox")
        try:
            with _library, _server_environment(), _somewhere(), _server_that_answers():
                process.start()
            return process, reader
        except (EOFError, OSError) as error:
            reader.close()
            if time.monotonic() > deadline:
                raise RuntimeError("the fork server does not start; restart the notebook's kernel") from None
            if isinstance(error, ChildProcessError):  # it is dead, and someone else has collected its exit status
                forkserver._forkserver.__init__()
            time.sleep(0.05)  # it is dying: once it is dead, the library starts another
        finally:
            writer.close()


@contextlib.contextmanager
def _somewhere() -> Iterator[None]:
    """In a folder that exists: the notebook's own may have been deleted, and multiprocessing asks for its name."""
    here = None
    try:
        os.getcwd()
    except FileNotFoundError:
        here = os.open(".", os.O_RDONLY)
        os.chdir("/")
    try:
        yield
    finally:
        if here is not None:
            os.fchdir(here)
            os.close(here)


@contextlib.contextmanager
def _server_that_answers() -> Iterator[None]:
    """End the fork server if it stands still while it is asked: then the library starts another."""
    answered = threading.Event()
    threading.Thread(target=_watch_server, args=(answered,), daemon=True).start()
    try:
        yield
    finally:
        answered.set()


def _watch_server(answered: threading.Event) -> None:
    still, before = 0, None
    while not answered.wait(0.5):
        pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
        now = _activity(pid) if pid else None
        still, before = still + 1 if now is not None and now == before else 0, now
        if still * 0.5 >= _STANDSTILL:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return


def _activity(pid: int) -> tuple[int, str, int] | None:
    """The processor time that a process has used, unless it waits for the disk (it may be importing)."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "D" else (pid, fields[0], int(fields[11]) + int(fields[12]))
    return None


def _affordable(memory_limit: int | None) -> int | None:
    if memory_limit is None:
        return None
    with contextlib.suppress(OSError):
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        if match:
            return min(memory_limit, int(match[1]) * 1024 * 8 // 10)
    return memory_limit


@dataclass
class Printed:
    """A child's output: the first bytes, the last bytes, and how many came between."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def read(self, reader) -> bool:
        """Take what is there; False at the end of the stream."""
        data = os.read(reader.fileno(), 1 << 16)
        room = max(_KEEP_HEAD - len(self.head), 0)
        self.head += data[:room]
        self.tail += data[room:]
        excess = max(len(self.tail) - _KEEP_TAIL, 0)
        del self.tail[:excess]
        self.dropped += excess
        return bool(data)

    def drain(self, reader) -> None:
        """Take what a dead child has left in the pipe."""
        os.set_blocking(reader.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while self.read(reader):
                pass
        reader.close()

    def text(self) -> str:
        gap = f"\n... {self.dropped} bytes left out ...\n".encode() if self.dropped else b""
        return (bytes(self.head) + gap + bytes(self.tail)).decode(errors="replace")


def _watch(process, reader, printed: Printed, time_limit: float, folder: Path, on_part, stopped) -> bool:
    """Read the child's output until it ends; False when its time is up first, or it is stopped."""
    deadline = time.monotonic() + time_limit
    streams, parts, queued = [reader], 0, 0.0
    while True:
        ready = connection.wait([process.sentinel, *streams], 0.05)
        if reader in ready and not printed.read(reader):
            streams.clear()
        while on_part and (folder / f"part{parts}").exists():
            parts += 1
            on_part(parts)
        if process.sentinel in ready:
            return True
        if stopped():
            return False
        late = time.monotonic() - deadline
        queued = max(queued, _queued(process.pid)) if late > 0 else 0.0  # of a job that has just ended nothing is left
        if late > min(queued, (_PATIENCE - 1) * time_limit):
            return False


def _queued(supervisor: int) -> float:
    """Seconds for which the process that does the job was ready to run while others ran; 0 where nobody counts them."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        worker = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[0]
        return int(Path(f"/proc/{worker}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _await_stack(process, folder: Path) -> None:
    """Have the child write where it is, and wait until it has: a busy machine lets it wait."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGUSR1)
    deadline = time.monotonic() + _LATE
    while not (folder / "stack.txt").exists() or not (folder / "stack.txt").stat().st_size:
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _end(process) -> None:
    """End the child, its process group, and (see `_supervise`) whatever else it started."""
    if process.exitcode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGTERM)
        with _library:
            process.join(2)
    for kill in (lambda: os.killpg(process.pid, signal.SIGKILL), process.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill()
    with _library:
        process.join(10)


def _outcome(folder: Path, exit_code: int | None, output: str, time_limit: float, seconds: float) -> Outcome:
    status, error, killed_by, stack = "crash", None, None, _stack(folder)
    parts: list[Any] = []
    try:
        while os.path.lexists(folder / f"part{len(parts)}"):
            parts.append(transport.load(folder / f"part{len(parts)}", limit=MAX_RESULT))
        if exit_code is None:
            status, error = "timeout", Error("TimeoutError", f"not finished after {time_limit:g} seconds")
        elif os.path.lexists(folder / "end"):
            status, error, stack = last_word(transport.load(folder / "end"))
        else:
            killed_by = -exit_code if exit_code < 0 else None
            status, error = death(exit_code, output)
    except (transport.TransportError, KeyError, TypeError, ValueError) as problem:
        status, error = "crash", Error("Crash", f"its result cannot be read ({problem})")
    value = parts[-1] if parts else None
    return Outcome(status, value, error, output, seconds, killed_by, tuple(parts), stack)


def last_word(end: dict[str, Any]) -> tuple[str, Error | None, tuple[tuple[str, int, str], ...]]:
    """What the child itself said about its end: status, error, where the error came from."""
    if end["status"] == "ok":
        return "ok", None, ()
    if end["status"] not in ("error", "memory"):
        raise transport.TransportError(f"unknown status {end['status']!r}")
    stack = tuple((str(name), int(line), str(function)) for name, line, function in end["stack"])
    return end["status"], Error(str(end["type"]), str(end["message"]), end["line"]), stack


def death(exit_code: int, output: str) -> tuple[str, Error]:
    """Why a child ended without saying so."""
    if exit_code == -signal.SIGKILL or "std::bad_alloc" in output:
        return "memory", Error("MemoryError", "the process was killed, most likely because it used too much memory")
    if exit_code < 0:
        name = signal.Signals(-exit_code).name if -exit_code in set(signal.Signals) else f"signal {-exit_code}"
        return "crash", Error("Crash", f"the process was ended by {name}{_MEANING.get(name, '')}")
    return "crash", Error("Crash", f"the process ended early with exit status {exit_code}, without a result")


def _stack(folder: Path) -> tuple[tuple[str, int, str], ...]:
    with contextlib.suppress(OSError):
        return read_stack((folder / "stack.txt").read_text(errors="replace"))
    return ()


def read_stack(text: str) -> tuple[tuple[str, int, str], ...]:
    """(file, line, function) of each frame that `faulthandler` wrote down, innermost first."""
    return tuple((name, int(line), function) for name, line, function in _LINE.findall(text))


# ---- the child's side ----------------------------------------------------------------------------------------------


class _ClosedInput(io.TextIOBase):
    def readline(self, *_):
        raise NoInput("input() has nobody to ask: your code runs in the background. Write the value into the code.")

    read = readline


def _child(
    job: str, folder_name: str, writer, time_limit: float, memory_limit: int | None, confined: Confined | None
) -> None:
    folder = Path(folder_name)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until there is a stack to write
    os.setsid()  # a process group of its own, so that one kill reaches nearly everything it starts
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if worker := os.fork():
        _supervise(worker)
    stack_file = open(folder / "stack.txt", "w")  # noqa: SIM115  open until the process dies
    redirect(writer)
    limit_resources(_PATIENCE * time_limit, memory_limit)
    os.environ.pop("TRITON_INTERPRET", None)
    os.chdir(folder / "work")
    note_stack(stack_file)
    try:
        payload = transport.load(folder / "payload", limit=1 << 40)
        if confined:
            _confine(folder, confined)
        module, _, function = job.partition(":")
        _deliver(getattr(importlib.import_module(module), function)(payload), folder)
        end: dict[str, Any] = {"status": "ok"}
    except BaseException as error:  # SystemExit and KeyboardInterrupt are answers too
        end = describe(error)
    if end["status"] == "memory":
        make_room()
    transport.save(end, folder / "end")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(0)  # the job's threads and exit handlers have no say


def note_stack(file: IO[str] | int) -> None:
    """Write this thread's stack into the file at a crash, and at SIGUSR1.

    A thread that wrote it at a certain time would walk frames that are changing under it, and crash.
    """
    faulthandler.enable(file)
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)


def _supervise(worker: int) -> None:
    """Wait for the process that does the job, end all that it leaves behind, and end as it did.

    Orphans come to this process, however they left their group; SIGTERM ends all of them at once, and SIGUSR1 is passed
    on.
    """

    def pass_on(*_) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGUSR1)

    signal.signal(signal.SIGUSR1, pass_on)
    signal.signal(signal.SIGTERM, lambda *_: (_kill_children(), os._exit(0)))
    while (ended := os.waitpid(-1, 0))[0] != worker:
        pass
    _kill_children()
    code = os.waitstatus_to_exitcode(ended[1])
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _kill_children() -> None:
    """Kill and collect until there is nobody: the children of a killed child become this process's own."""
    with contextlib.suppress(ChildProcessError):
        for _ in range(1000):
            for pid in _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found


def _confine(folder: Path, confined: Confined) -> None:
    """What Triton compiles goes there too: the cache of the notebook holds code that others will run."""
    os.environ["TMPDIR"], tempfile.tempdir = str(folder / "work"), None
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    confinement.confine(write=[folder], read=map(Path, confined.read), hidden=map(Path, confined.hidden))


def _deliver(result: Any, folder: Path) -> None:
    parts = result if inspect.isgenerator(result) else [result]
    for number, part in enumerate(parts):
        transport.save(part, folder / f"part{number}")


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as the child's last word: see `last_word`."""
    frames = traceback.extract_tb(error.__traceback__)
    stack = [[frame.filename, frame.lineno or 0, frame.name] for frame in reversed(frames)]
    about: dict[str, Any] = {"line": frames[-1].lineno if frames else None, "stack": stack}
    if is_out_of_memory(error):
        error.__traceback__ = None  # its frames hold the memory
        return about | {"status": "memory", "type": "MemoryError", "message": "it asked for too much memory"}
    return about | {"status": "error", "type": type(error).__name__, "message": str(error)[:10_000]}


def redirect(writer) -> None:
    """Make `writer` (an open end of a pipe) this process's output, and nothing its input."""
    os.dup2(writer.fileno(), 1)
    os.dup2(writer.fileno(), 2)
    writer.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.stdin = _ClosedInput()
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


def limit_resources(time_limit: float, memory_limit: int | None) -> None:
    """Bound this process: seconds, sizes of files, and bytes of memory beyond what it holds already."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_RESULT, MAX_RESULT))
    signal.setitimer(signal.ITIMER_REAL, time_limit + 5)  # ends this process even when its parent has died
    if memory_limit is not None:
        held = int(re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
        _, most = resource.getrlimit(resource.RLIMIT_DATA)  # an account's own limit may be lower
        most = (
            held + memory_limit + _SPARE if most == resource.RLIM_INFINITY else min(most, held + memory_limit + _SPARE)
        )
        resource.setrlimit(resource.RLIMIT_DATA, (min(held + memory_limit, most), most))


def make_room() -> None:
    """After memory ran out: give this process the little that it needs for saying so."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    gc.collect()
