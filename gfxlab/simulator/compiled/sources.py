"""Tells whether a compiled part was made of these sources. Standard library only: the build runs it too."""

from __future__ import annotations

import hashlib
from pathlib import Path


def files(folder: Path) -> list[Path]:
    """The files that the compiled part is made of; none where they were not installed."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".c", ".h", ".inc"))


def stamp(folder: Path) -> str:
    """A hash of these files; empty where there are none."""
    digest = hashlib.sha256()
    found = files(folder)
    for path in found:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16] if found else ""
