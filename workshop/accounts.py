"""Make Unix accounts for a room, and print what to cut into strips: a name and a password each.

    sudo .venv/bin/python workshop/accounts.py learner{01..30}
    sudo .venv/bin/python workshop/accounts.py --instructor ada

An account that is there gets a new password and joins the group; nothing else of it changes.
"""

from __future__ import annotations

import argparse
import pwd
import secrets
import subprocess
import sys
from pathlib import Path

import rooms

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that looks like another


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="+", help="accounts to make")
    parser.add_argument("--instructor", action="store_true", help="they see everybody's row on the board")
    options = parser.parse_args()
    group = rooms.INSTRUCTORS if options.instructor else rooms.LEARNERS
    try:
        run("groupadd", "--force", group)
        for name in options.names:
            print(f"{name}\t{make(name, group)}")
    except (subprocess.CalledProcessError, PermissionError) as error:
        sys.exit(f"No account was made for the rest: {error}. Are you root?")


def make(name: str, group: str) -> str:
    """The account in the group, its home closed to others; returns its new password."""
    try:
        pwd.getpwnam(name)
        run("usermod", "--append", "--groups", group, name)
    except KeyError:
        run("useradd", "--create-home", "--shell", "/bin/bash", "--groups", group, name)
    Path(pwd.getpwnam(name).pw_dir).chmod(0o700)
    password = "-".join("".join(secrets.choice(_LETTERS) for _ in range(4)) for _ in range(3))
    run("chpasswd", text=f"{name}:{password}\n")
    return password


def run(*command: str, text: str | None = None) -> None:
    subprocess.run(command, check=True, input=text, text=True)


if __name__ == "__main__":
    main()
