"""Streams and events of a pretended GPU: everything is done in order and at once, and no time passes."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import torch

from gfxlab.pretended.attaching import index

_numbers = itertools.count(0)
_here = threading.local()


class Stream:
    """torch.cuda.Stream. What is put into it is done when it is put there."""

    def __init__(self, device: Any = None, priority: int = 0, **options: Any):
        index(device)
        self.device = torch.device("cuda", 0)
        self.device_index, self.priority = 0, priority
        self.stream_id = self.cuda_stream = options.get("stream_ptr", next(_numbers))

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest; here no stream goes before another."""
        return 0, -1

    def synchronize(self) -> None: ...
    def wait_stream(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Stream:
        self._scope = Scope(self)
        self._scope.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.stream_id == other.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"


class External(Stream):
    """torch.cuda.ExternalStream: a stream that somebody else has made, by its address."""

    def __init__(self, stream_ptr: int, device: Any = None, **options: Any):
        super().__init__(device, stream_ptr=stream_ptr)


DEFAULT = Stream()  # its number is 0


def current() -> Stream:
    """The stream of this thread."""
    return getattr(_here, "stream", DEFAULT)


def set_current(stream: Stream | None) -> None:
    """Make this the stream of this thread; None changes nothing."""
    if stream is not None:
        _here.stream = stream


class Scope:
    """torch.cuda.stream(s): inside the block `s` is the current stream."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> Stream | None:
        self._before = current()
        set_current(self.stream)
        return self.stream

    def __exit__(self, *error: Any) -> None:
        set_current(self._before)


class Device:
    """torch.cuda.device(0): there is one."""

    def __init__(self, device: Any = None):
        self.idx = index(device)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: Any) -> None: ...


class Event:
    """torch.cuda.Event. Between two of them lies NaN: a pretended GPU has no clock."""

    def __init__(self, enable_timing: bool = False, **options: Any):
        self._timed, self._recorded = enable_timing, False
        self.device, self.cuda_event = torch.device("cuda", 0), 0

    def record(self, stream: Any = None) -> None:
        self._recorded = True

    def wait(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        """NaN, in milliseconds.

        Raises:
            ValueError: an event without timing, or one that was not recorded.
        """
        if not (self._timed and end._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self._recorded and end._recorded):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float("nan")
