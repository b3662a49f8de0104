"""Take away what a process need not touch: with Landlock, where Linux has it, a process gives up most of its files.

A process may confine itself, and what it starts, for good; no rights are needed.  Source: the kernel's documentation,
"Landlock: unprivileged access control", and its header linux/landlock.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, the same on every architecture
_PR_SET_NO_NEW_PRIVS = 38
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # from versions 2 and 3 on
_CHANGES = sum(1 << bit for bit in range(4, 13)) | _WRITE_FILE  # remove and make, of every kind
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_SCOPE_SIGNAL = 2  # from version 6 on: no signals to processes outside
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/nix", "/proc", "/sys", "/dev")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")  # and not /dev/shm: what is left there stays


@cache
def version() -> int:
    """Landlock's version; 0 where the kernel has none, or does not let us use it."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(_system_call(_CREATE_RULESET, None, 0, 1), 0)


def open_doors() -> str:
    """One sentence on what code in a child can reach here that it should not; "" where it is confined."""
    if version():
        return ""
    return "This kernel has no Landlock: the code of an answer can read and write every file that you can."


def confine(*, write: Iterable[Path], read: Iterable[Path] = (), hidden: Iterable[Path] = ()) -> bool:
    """From now on this process reads Python, the system's libraries and `read`, and writes below `write` alone.

    hidden: folders and files that stay closed even if they lie in what may be read, as what is installed beside Python.
    Folders that do not exist are left out. Returns False, and nothing is changed, where the kernel has no Landlock.
    """
    if not version():
        return False
    rules = _system_call(_CREATE_RULESET, *_ruleset())
    if rules < 0:
        return False
    look = _EXECUTE | _READ_FILE | _READ_DIR
    hidden = {os.path.realpath(path) for path in hidden}
    for path in {*map(Path, _SYSTEM), *_pythons(), *read}:
        _allow_all_but(rules, path, look, hidden)
    for path in {*map(Path, _DEVICES), *write}:
        _allow(rules, path, _handled())
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    done = _system_call(_RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return done


def _handled() -> int:
    newer = (_REFER if version() >= 2 else 0) | (_TRUNCATE if version() >= 3 else 0)
    return _EXECUTE | _READ_FILE | _READ_DIR | _CHANGES | newer


def _ruleset() -> tuple[ctypes.Array, int, int]:
    """struct landlock_ruleset_attr: what is handled of files, of the network, of other processes; its size; flags."""
    fields = (_handled(), 0, _SCOPE_SIGNAL) if version() >= 6 else (_handled(),)
    data = struct.pack(f"={len(fields)}Q", *fields)
    return ctypes.create_string_buffer(data, len(data)), len(data), 0


def _allow_all_but(rules: int, path: Path, access: int, hidden: set[str]) -> None:
    """Give rights to a folder; where something hidden lies in it, to its list of names and to each of the others."""
    real = os.path.realpath(path)
    if real in hidden:
        return
    if not any(one.startswith(real.rstrip("/") + "/") for one in hidden):
        return _allow(rules, path, access)
    _allow(rules, path, _READ_DIR)
    with contextlib.suppress(OSError):
        for entry in os.scandir(real):
            if not entry.is_symlink():  # what it leads to has rights of its own, or none
                _allow_all_but(rules, Path(entry.path), access, hidden)


def _allow(rules: int, path: Path, access: int) -> None:
    """struct landlock_path_beneath_attr: rights, and a folder or file that they are given for."""
    with contextlib.suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = access if path.is_dir() else access & _OF_A_FILE
        data = struct.pack("=Qi", allowed & _handled(), place)
        _system_call(_ADD_RULE, rules, _PATH_BENEATH, ctypes.create_string_buffer(data, len(data)), 0)
        os.close(place)


def _pythons() -> set[Path]:
    """Where Python and what it can import lie."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()}
    return {Path(folder) for folder in (*folders, *sys.path) if folder and Path(folder) != Path("/")}


def _system_call(number: int, *arguments) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return int(library.syscall(ctypes.c_long(number), *arguments))
