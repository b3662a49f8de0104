"""Put the tracked notebooks back as they were committed, so that `git pull` finds nothing in its way."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lab.work.copies import FOLDERS, Copy


class RestoreError(Exception):
    """A notebook that was left as it is; the message says what to do."""


def changed(root: Path) -> list[Copy]:
    """Return the tracked notebooks that differ from the last commit; none where git has no say."""
    listed = _git(root, "diff", "--name-only", "--relative", "-z", "HEAD", "--", *FOLDERS)
    names = sorted({name for name in (listed or "").split("\0") if name.endswith(".ipynb")})
    return [Copy(root, name) for name in names]


def obstacle(root: Path) -> str | None:
    """Say what forbids putting notebooks back: a merge under way, or an author at work, whose notebooks are theirs."""
    if _git(root, "rev-parse", "-q", "--verify", "MERGE_HEAD"):
        return "A merge is under way: end it with `git commit`, or with `git merge --abort`."
    if _git(root, "status", "--porcelain", "--", "course_lessons"):
        return "course_lessons/ has changes that are not committed, so the notebooks stay as they are: commit both."
    return None


def restore(copy: Copy) -> None:
    """Put a notebook back to the last commit; what it held must be safe already."""
    if _git(copy.root, "checkout", "HEAD", "--", copy.name) is None:
        raise RestoreError(f"`git checkout HEAD -- {copy.name}` failed: run it to see why.")


def sides_of_conflict(copy: Copy) -> list[NotebookNode]:
    """Return both versions of a notebook in which git has left conflict marks, as after `git stash pop`."""
    found = []
    for stage in (2, 3):
        text = _git(copy.root, "show", f":{stage}:./{copy.name}")
        if text:
            found.append(nbformat.reads(text, as_version=4))
    return found


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints; None where it fails, where it is missing and where the course is no checkout."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
