"""What the hub's configuration is made of: folders, names of groups, what must be so before it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

LEARNERS, INSTRUCTORS = "course-learners", "course-instructors"
BOARD, BOARD_URL = "board", "http://127.0.0.1:8899"


def check(root: Path, state: Path) -> None:
    """End with a sentence where learners could not be served."""
    if os.geteuid() != 0:
        sys.exit("The hub starts servers of other accounts, so root must start it: sudo make hub")
    if not (state / "node_modules" / ".bin" / "configurable-http-proxy").exists():
        sys.exit(f"{state} has no configurable-http-proxy: npm install --prefix {state} configurable-http-proxy")
    for path in (root, Path(sys.executable).resolve()):
        for folder in (path, *path.parents):
            if not folder.stat().st_mode & 0o001:
                sys.exit(f"Other accounts cannot enter {folder}, and {path} is in it: put the course into /opt, say.")


def folders(state: Path) -> tuple[Path, Path]:
    """The hub's own folder, and the one from which learners read: the weights, and the queue of checks."""
    private, shared = state / "private", state / "shared"
    queue = shared / "queue"
    for folder, mode in ((private, 0o700), (shared, 0o755), (queue, 0o1777)):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
    return private, shared


def add_board(c, root: Path, private: Path) -> None:
    """Let the hub run the board, learners' servers speak to it, and everybody see it."""
    c.JupyterHub.services = [
        {
            "name": BOARD,
            "url": os.environ.get("COURSE_BOARD_BIND", BOARD_URL),
            "command": [sys.executable, str(root / "workshop" / "board.py"), str(private / "board.sqlite")],
            "oauth_no_confirm": True,
        }
    ]
    entering = f"access:services!service={BOARD}"
    reading = ["users:activity!user", "access:servers!server", entering, "read:users:name!user"]
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": ["self", entering]},
        {"name": "server", "scopes": reading},
    ]
    public = c.JupyterHub.bind_url.replace("0.0.0.0", "127.0.0.1").rstrip("/")
    c.Spawner.environment["COURSE_BOARD_URL"] = f"{public}/services/{BOARD}/"
