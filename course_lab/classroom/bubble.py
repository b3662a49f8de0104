"""One sandbox for one submission: bubblewrap's, with nothing in it but Python, the libraries and the instruments.

In there: no network, a file system that can only be read and holds no lesson, no kernel library, no submission and no
result; a small /tmp in memory; processes of its own, an unprivileged user, no way to more rights.  `Bubble.run` takes
what `gfxlab.sandbox.run` takes and answers as it does, so the check runs in it as it runs anywhere.

Where bubblewrap cannot make one, `why_not` says so, with the fix.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from course_lab.classroom.failures import ClassroomError
from course_lab.classroom.frames import MOST, write_frame
from gfxlab import sandbox, transport
from gfxlab.sandbox import Confined, Error, Outcome

_INSIDE = "course_lab.classroom.inside"
_HOME = "/course"  # where the instruments lie in there
_GIVEN = ("gfxlab", "course_lab")
_HIDDEN = ("course_kernels", "course_lessons")
_SYSTEM = ("/usr", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/opt/rocm")
_LINKS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32")
_START = 120.0  # seconds that importing may take
_GRACE = 20.0  # seconds beyond a job's own, after which the sandbox is given up


class NoSandbox(ClassroomError):
    """No sandbox can be had here; the message says what to install or to set."""


@dataclass(frozen=True)
class Limits:
    """What one answer may take: CPU seconds and wall seconds relative to the check's own limit, bytes, processes.

    slow: wall-clock time is stretched by this much, so that a busy machine fails nobody; CPU time is what counts.
    memory: of one process.  together: of all of them and of the files in /tmp.
    """

    slow: float = 3.0
    memory: int = 2 << 30
    together: int = 3 << 30
    processes: int = 64
    file_size: int = 64 << 20
    tmp: int = 128 << 20


@dataclass
class Bubble:
    """A sandbox that starts with its first job, and anew where it died. Use it in a `with` block.

    It does one job at a time, whichever threads ask; none after the block.
    hidden: folders that must not be seen, should they lie inside one that must be.  starts: how often it was started.
    cpu_seconds: of everything in there, importing included, as far as jobs have come to their end.
    """

    hidden: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=Limits)
    starts: int = 0
    cpu_seconds: float = 0.0
    _counted: float = 0.0
    _process: subprocess.Popen | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _over: bool = False

    def __enter__(self) -> Bubble:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        with self._turn:
            self.close()

    def close(self) -> None:
        """End the sandbox and every process in it."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            process.stdin.close()  # which is what it ends at; and its CPU time is counted, as a killed one's is not
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdout, process.stderr):
            pipe.close()

    def run(
        self,
        job: str,
        payload: dict[str, Any],
        *,
        time_limit: float = 10.0,
        memory_limit: int | None = None,
        on_part: Callable[[int], None] | None = None,
        confined: Confined | None = None,
    ) -> Outcome:
        """Run `job` ("package.module:function") in there; arguments and answer are those of `gfxlab.sandbox.run`."""
        terms = {
            "function": job,
            "seconds": self.limits.slow * time_limit,
            "cpu_seconds": time_limit,
            "memory": min(memory_limit or self.limits.memory, self.limits.memory),
            "together": self.limits.together,
            "processes": self.limits.processes,
            "file_size": self.limits.file_size,
        }
        with self._turn:
            if self._over:
                return Outcome("crash", error=Error("Crash", "the sandbox is closed"))
            try:
                self._ready()
                self._send(b"J", json.dumps(terms).encode())
                self._send(b"A", transport.to_bytes(payload))
                return self._hear(time_limit, terms["seconds"] + _GRACE, on_part)
            except (OSError, EOFError, TimeoutError, transport.TransportError) as error:
                self.close()
                return Outcome("crash", error=Error("Crash", f"the sandbox ended before the answer did ({error})"))

    # ---- the process -------------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        if self._process is None:
            self.starts, self._counted = self.starts + 1, 0.0
            command = _command(self.hidden, self.limits)
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
            )
            try:
                kind, _ = self._frame(time.monotonic() + _START)
            except (EOFError, TimeoutError) as error:
                self._process.kill()
                said = self._process.stderr.read(4000).decode(errors="replace").strip().rpartition("\n")[2]
                self.close()
                raise NoSandbox(f"The sandbox does not start ({said or error}).") from None
            if kind != b"R":
                raise transport.TransportError("the sandbox does not begin as agreed")

    def _send(self, kind: bytes, body: bytes) -> None:
        write_frame(self._process.stdin.fileno(), kind, body)

    def _hear(self, time_limit: float, patience: float, on_part: Callable[[int], None] | None) -> Outcome:
        deadline, parts, last, taken = time.monotonic() + patience, [], None, 0
        while True:
            kind, body = self._frame(deadline)
            taken += len(body)
            if taken > 2 * MOST:
                raise transport.TransportError("more came out of it than is taken")
            if kind == b"P":
                parts.append(body)
                if on_part:
                    on_part(len(parts))
            elif kind == b"L":
                last = body
            elif kind == b"E":
                end = json.loads(body)
                self.cpu_seconds += float(end["cpu"]) - self._counted
                self._counted = float(end["cpu"])
                return _outcome(parts, last, end, time_limit)

    def _frame(self, deadline: float) -> tuple[bytes, bytes]:
        head = self._bytes(9, deadline)
        size = int.from_bytes(head[1:], "little")
        if size > 2 * MOST:
            raise transport.TransportError(f"a message of {size} bytes")
        return head[:1], self._bytes(size, deadline)

    def _bytes(self, count: int, deadline: float) -> bytes:
        pipe, found = self._process.stdout.fileno(), bytearray()
        while len(found) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise TimeoutError("it says nothing any more")
            data = os.read(pipe, min(count - len(found), 1 << 20))
            if not data:
                raise EOFError("it is gone")
            found += data
        return bytes(found)


def _outcome(parts: list[bytes], last: bytes | None, end: dict[str, Any], time_limit: float) -> Outcome:
    """What `gfxlab.sandbox.run` would have said of this child."""
    output, seconds, stack = str(end["output"]), float(end["seconds"]), sandbox.read_stack(str(end["stack"]))
    values: list[Any] = []
    killed_by = -end["exit"] if end["exit"] is not None and end["exit"] < 0 else None
    try:
        values = [transport.from_bytes(part) for part in parts]
        if end["ended"] == "time" or killed_by in (9, 14, 24) and end["seconds"] >= time_limit:
            status, error = "timeout", Error("TimeoutError", f"not finished after {time_limit:g} seconds")
        elif end["ended"] == "memory":
            status, error = "memory", Error("MemoryError", "all its processes together used too much memory")
        elif end["ended"] == "result":
            status, error = "crash", Error("Crash", "its result cannot be read (it is too large, or not as agreed)")
        elif last is not None:
            status, error, stack = sandbox.last_word(transport.from_bytes(last))
        else:
            status, error = sandbox.death(end["exit"], output)
    except (transport.TransportError, KeyError, TypeError, ValueError) as problem:
        status, error = "crash", Error("Crash", f"its result cannot be read ({problem})")
    value = values[-1] if values else None
    return Outcome(status, value, error, output, seconds, killed_by, tuple(values), stack)


# ---- the command -----------------------------------------------------------------------------------------------------


def why_not() -> str:
    """One sentence on why there can be no sandbox here, with the fix; "" where there can."""
    if sys.platform != "linux":
        return "A class is graded on Linux, where bubblewrap is: use a Linux machine, or a virtual one."
    if shutil.which("bwrap") is None:
        return "bubblewrap is missing: install it (`apt install bubblewrap`, on Fedora `dnf install bubblewrap`)."
    help_text = subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout
    if "--size" not in help_text or "--disable-userns" not in help_text:
        return "This bubblewrap is too old: version 0.8 or newer is needed (Debian 12, Ubuntu 24.04)."
    tried = subprocess.run(_command((), Limits(), (sys.executable, "-c", "")), capture_output=True, text=True)
    if tried.returncode == 0:
        return ""
    said = (tried.stderr.strip().rpartition("\n")[2] or f"exit status {tried.returncode}").rstrip(".")
    return f"bubblewrap makes no sandbox here ({said}). {_fix()}"


def _fix() -> str:
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    with suppress(OSError):
        if restricted.read_text().strip() == "1":
            return (
                "AppArmor forbids user namespaces: give /usr/bin/bwrap a profile that allows `userns`, or "
                "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`."
            )
    for name, value in (("kernel.unprivileged_userns_clone", 1), ("user.max_user_namespaces", 15000)):
        with suppress(OSError):
            if Path("/proc/sys", *name.split(".")).read_text().strip() == "0":
                return f"User namespaces are switched off: `sysctl {name}={value}`."
    return (
        "In a container, user namespaces must be allowed (docker run --security-opt seccomp=unconfined "
        "--security-opt systempaths=unconfined --cap-add SYS_ADMIN), or grade on the machine itself."
    )


def _command(hidden: tuple[Path, ...], limits: Limits, program: tuple[str, ...] = ()) -> list[str]:
    """bubblewrap's command line for one sandbox.

    Root's processes are not counted by the kernel, so root becomes a user without a name first: in a first sandbox,
    which shows that user just the folders that the second one needs.
    """
    program = program or (sys.executable, "-u", "-m", _INSIDE)
    as_root = os.geteuid() == 0
    inner = ["bwrap", "--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session"]
    inner += [
        "--cap-drop",
        "ALL",
        "--uid",
        "65534",
        "--gid",
        "65534",
        "--hostname",
        "class",
        "--as-pid-1",
        "--clearenv",
    ]
    inner += ["--size", str(limits.tmp), "--tmpfs", "/tmp"]  # before the rest: a Python may lie below the real one
    inner += [
        *_shown(hidden, moved=as_root),
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--size",
        str(1 << 20),
        "--tmpfs",
        "/dev/shm",
    ]
    inner += ["--remount-ro", "/dev", "--remount-ro", "/"]
    for name, value in _environment().items():
        inner += ["--setenv", name, value]
    inner += ["--chdir", "/tmp", "--", *program]
    if not as_root:
        return inner
    user = str(random.randint(1 << 20, 1 << 30))
    outer = [
        "bwrap",
        "--unshare-pid",
        "--die-with-parent",
        *("--perms", "1777", "--tmpfs", "/tmp"),
        *_shown(hidden),
        "--dev-bind",
        "/dev",
        "/dev",
        "--bind",
        "/proc",
        "/proc",
    ]
    drop = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs", "--inh-caps=-all"]
    return [*outer, "--", *drop, "--bounding-set=-all", "--", *inner]


def _environment() -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONPATH": _HOME,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TRITON_CACHE_DIR": "/tmp/triton",
        "MPLCONFIGDIR": "/tmp/matplotlib",
    }


def _shown(hidden: tuple[Path, ...], moved: bool = False) -> Iterator[str]:
    """The folders that are seen in there: the system's, Python's, the instruments; over secrets lies an empty one.

    moved: the instruments are where a first sandbox has put them.
    """
    folders = [folder for folder in (*map(Path, _SYSTEM), *_pythons()) if folder.exists()]
    made: set[Path] = {Path("/tmp")}
    for folder in dict.fromkeys(folders):
        yield from _parents(folder, made)
        yield from ("--ro-bind", str(folder), str(folder))
    for link in map(Path, _LINKS):
        if link.is_symlink():
            yield from ("--symlink", os.readlink(link), str(link))
        elif link.exists():
            yield from ("--ro-bind", str(link), str(link))
    for package in _GIVEN:
        yield from _parents(Path(_HOME, package), made)
        place = f"{_HOME}/{package}"
        yield from ("--ro-bind", place if moved else str(_folder(package)), place)
    for secret in (*_secrets(), *(path.resolve() for path in hidden)):
        if any(secret.is_relative_to(folder) for folder in folders) and secret.is_dir():
            yield from ("--tmpfs", str(secret), "--remount-ro", str(secret))
    for folder in sorted(filter(_in_tmp, made)):
        yield from ("--remount-ro", str(folder))


def _parents(folder: Path, made: set[Path]) -> Iterator[str]:
    """Folders on the way, which everybody may pass; one in /tmp is mounted, so that no job moves or fills it."""
    for parent in reversed(folder.parents[:-1]):
        if parent not in made:
            made.add(parent)
            yield from ("--perms", "0755", "--tmpfs" if _in_tmp(parent) else "--dir", str(parent))


def _in_tmp(folder: Path) -> bool:
    return str(folder.parent) == "/tmp"


@cache
def _pythons() -> tuple[Path, ...]:
    """Where Python and its libraries lie; what a link on the way leads to is there under both names."""
    found = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix), Path(sys.base_exec_prefix)}
    found |= {Path(os.path.realpath(sys.executable)).parents[1]}
    found |= {Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
    found = {path for path in found if path.is_dir()}
    tops = {path for path in found if not any(path != other and path.is_relative_to(other) for other in found)}
    return tuple(sorted(path for path in tops if not path.is_relative_to("/usr")))


@cache
def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    return Path(next(iter(spec.submodule_search_locations))).resolve()


@cache
def _secrets() -> tuple[Path, ...]:
    """Every folder that holds a solution, a reference or a tolerance."""
    from course_lab.authoring import lessons

    found = {_folder(package) for package in _HIDDEN if importlib.util.find_spec(package)}
    found |= {lesson.path.resolve() for lesson in lessons.all()}
    for root in {_folder("course_lab").parent}:
        found |= {root / name for name in ("solutions", "exercises", "notebooks", "work", "tests", "benchmarks")}
    return tuple(sorted(found))
