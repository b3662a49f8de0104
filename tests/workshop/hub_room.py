"""A machine of its own for the hub's tests: accounts in a copy of /etc and homes in memory, which only it sees.

    unshare --mount python tests/workshop/hub_room.py STATE PASSWORDS

makes the accounts, writes their passwords as JSON, and becomes the hub. Root starts it. Where Python lies in a folder
that other accounts cannot enter (root's home), that folder is replaced by one that shows the way to Python alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "workshop"))


def main(state: Path, passwords: Path) -> None:
    mount("--make-rprivate", "/")
    open_the_way(Path(sys.executable).resolve())
    in_memory(Path("/etc"), copied=True)
    in_memory(Path("/home"))
    import accounts
    import rooms

    for group in (rooms.LEARNERS, rooms.INSTRUCTORS):
        accounts.run("groupadd", "--force", group)
    made = {name: accounts.make(name, rooms.LEARNERS) for name in ("alice", "bob")}
    made["teacher"] = accounts.make("teacher", rooms.INSTRUCTORS)
    made["stranger"] = accounts.make("stranger", "users")
    passwords.write_text(json.dumps(made))
    config = str(ROOT / "workshop" / "jupyterhub_config.py")
    os.environ["COURSE_HUB_STATE"] = str(state)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterhub", "-f", config])


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def in_memory(folder: Path, copied: bool = False) -> None:
    """A folder in memory in place of this one, with the same files if they are copied."""
    if copied:
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/mnt")
        subprocess.run(["cp", "-a", f"{folder}/.", "/mnt/"], check=True)
        mount("--move", "/mnt", str(folder))
    else:
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(folder))


def open_the_way(file: Path) -> None:
    """Let others reach a file: a closed folder above it becomes one that holds nothing but the way down."""
    for folder in reversed(file.parents):
        if folder.stat().st_mode & 0o001:
            continue
        child = next(path for path in (file, *file.parents) if path.parent == folder)
        mount("--bind", str(child), "/mnt")
        in_memory(folder)
        child.mkdir()
        mount("--move", "/mnt", str(child))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
