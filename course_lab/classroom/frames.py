"""Messages on a pipe between the grader and a sandbox: a byte that says what it is, its length, the rest."""

from __future__ import annotations

import os
from typing import BinaryIO

MOST = 96 << 20  # bytes of values that a job may hand back


def write_frame(pipe: int, kind: bytes, body: bytes) -> None:
    """Write one message to a file descriptor, all of it."""
    left = memoryview(kind + len(body).to_bytes(8, "little") + body)
    while left:
        left = left[os.write(pipe, left) :]


def read_frame(stream: BinaryIO) -> tuple[bytes, bytes] | None:
    """Read one message; None at the end of the stream."""
    head = stream.read(9)
    if len(head) < 9:
        return None
    size = int.from_bytes(head[1:], "little")
    body = stream.read(size)
    return (head[:1], body) if len(body) == size else None
