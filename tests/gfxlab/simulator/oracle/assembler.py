"""LLVM's assembler: writes a text as the compiler would print it, and says which texts do not exist on a target."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence


def program() -> str | None:
    """llvm-mc of LLVM 19 or later; LLVM_MC names another."""
    names = [f"llvm-mc-{version}" for version in range(25, 18, -1)]
    return os.environ.get("LLVM_MC") or next(filter(None, map(shutil.which, names)), None)


def run(arguments: Sequence[str], text: str) -> str:
    command = [program(), "-triple=amdgcn-amd-amdhsa", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True).stdout


def canonical(texts: Sequence[str], arch: str) -> list[str | None]:
    """Each text as it is printed; None where the target has no such instruction."""
    listing = run([f"-mcpu={arch}"], "".join(f"L{i}:\n\t{text}\n" for i, text in enumerate(texts)))
    found: list[str | None] = [None] * len(texts)
    at = None
    for line in listing.splitlines():
        if label := re.match(r"L(\d+):", line):
            at = int(label[1])
        elif at is not None and line.startswith("\t") and not line.startswith("\t."):
            found[at] = re.sub(r"\blit(?:64)?\(([^)]*)\)", r"\1", line.split(";")[0].strip())
    return found
