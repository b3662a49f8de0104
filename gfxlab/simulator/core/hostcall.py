"""The host's side of device_print and device_assert: packets that waves leave in a buffer, and the text in them.

A wave takes a packet from the free stack, fills a payload of 64 lanes x 8 words, pushes it on the ready stack and waits
until the host clears the packet's ready flag.  A message comes in pieces of up to 7 words a lane; its first word says
where to print (0: standard output), then come a format string as in C and the values.
Layout and protocol: ROCm's device libraries (`ockl/src/hostcall_impl.cl`, `ockl/src/services.cl`) and its runtime
(`rocclr/device/devhostcall.cpp`, `devhcmessages.cpp`, `devhcprintf.cpp`).
"""

from __future__ import annotations

import re
import struct
import sys
from dataclasses import dataclass, field
from typing import TextIO

import numpy as np

from gfxlab.simulator.core.memory import GlobalMemory

KIND = "hidden_hostcall_buffer"
WAVES = 256  # that run at a time, so that each finds a free packet
_PACKETS = 1 << 12
_MASK = _PACKETS - 1  # the bits of a packet's pointer that are its number; those above make it another each time
_HEADER, _PAYLOAD, _WORDS = 24, 64 * 8 * 8, 8
_FREE, _READY = 24, 32  # of the buffer
_PRINT = 2  # the service's number
_BEGIN, _END = 1, 2  # flags of a message's first word; bits 5 to 7 count its words, from 8 on stands its number

_CONVERSION = re.compile(rb"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|L|q|j|z|t)?([diouxXeEfFgGaAcsp%])")
_PROGRAM = re.compile(r"pid \((\d+), (\d+), (\d+)\)")


@dataclass
class HostCalls:
    """A buffer for packets, and what was printed so far: (stream, text) of each message."""

    memory: GlobalMemory
    printed: list[tuple[TextIO, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._headers = np.zeros(_PACKETS * _HEADER, np.uint8)
        self._payloads = np.zeros(_PACKETS * _PAYLOAD, np.uint8)
        self._buffer = np.zeros(64, np.uint8)
        self._signal = np.zeros(64, np.uint8)  # without a mailbox: nobody needs to be woken
        self._messages: dict[int, list[int]] = {}
        self._count = 0
        headers, payloads, signal = (
            self.memory.add_bytes("the buffer of device_print", data)
            for data in (self._headers, self._payloads, self._signal)
        )
        self.address = self.memory.add_bytes("the buffer of device_print", self._buffer)
        numbers = self._headers.view(np.uint64).reshape(_PACKETS, 3)
        numbers[1:, 0] = _PACKETS | np.arange(_PACKETS - 1, dtype=np.uint64)  # each points to the one before it
        self._buffer[:48].view(np.uint64)[:] = (headers, payloads, signal, _PACKETS | _MASK, 0, _MASK)

    def serve(self) -> None:
        """Take every packet that is ready, in the order in which they came."""
        ready = self._buffer[_READY : _READY + 8].view(np.uint64)
        if not ready[0]:
            return
        pointers = []
        numbers = self._headers.view(np.uint64).reshape(_PACKETS, 3)
        pointer, ready[0] = int(ready[0]), 0
        while pointer:
            pointers.append(pointer & _MASK)
            pointer = int(numbers[pointer & _MASK, 0])
        for packet in reversed(pointers):
            self._take(packet)

    def finish(self) -> None:
        """Print what came, in the order of the programs."""
        for stream, text in sorted(self.printed, key=lambda message: _place(message[1])):
            stream.write(text)
        self.printed.clear()

    def _take(self, packet: int) -> None:
        header = self._headers[packet * _HEADER : (packet + 1) * _HEADER]
        active, service = int(header[8:16].view(np.uint64)[0]), int(header[16:20].view(np.uint32)[0])
        payload = self._payloads[packet * _PAYLOAD : (packet + 1) * _PAYLOAD].view(np.uint64).reshape(64, _WORDS)
        for lane in range(64):
            if active >> lane & 1:
                self._part(payload[lane], service)
        header[20:24].view(np.uint32)[0] &= np.uint32(0xFFFFFFFE)  # no longer ready: the wave goes on

    def _part(self, words: np.ndarray, service: int) -> None:
        """A piece of a lane's message; the answer stands where the piece stood."""
        if service != _PRINT:
            raise NotImplementedError(f"the simulator does not offer the host's service {service} to a kernel")
        first = int(words[0])
        if first & _BEGIN:
            self._count += 1
            number, first = self._count, (first & 0xFE) | self._count << 8
            self._messages[number] = []
        else:
            number = first >> 8
        message = self._messages[number]
        message += [int(word) for word in words[1 : 1 + (first >> 5 & 7)]]
        words[0] = first
        if first & _END:
            del self._messages[number]
            self._print(message)
            words[0] = 0

    def _print(self, message: list[int]) -> None:
        where, *words = message
        text = formatted(struct.pack(f"<{len(words)}Q", *words))
        self.printed.append((sys.stderr if where else sys.stdout, text))


def formatted(data: bytes) -> str:
    """A format string as in C and the values behind it, each in words of 8 bytes, as text."""
    pattern, data = _string(data)
    parts, at = [], 0
    for found in _CONVERSION.finditer(pattern):
        parts.append(pattern[at : found.start()].decode(errors="replace"))
        at = found.end()
        text, data = _value(found, data)
        parts.append(text)
    return "".join([*parts, pattern[at:].decode(errors="replace")])


def _value(found: re.Match, data: bytes) -> tuple[str, bytes]:
    """One conversion's text, and the data that are left."""
    flags, width, precision, length, kind = (group.decode() if group is not None else None for group in found.groups())
    if kind == "%":
        return "%", data
    sizes = []
    for size in (width, precision):
        if size == "*":
            size, data = str(struct.unpack_from("<i", data)[0]), data[8:]
        sizes.append(size)
    form = f"%{flags}{sizes[0] or ''}{'.' + sizes[1] if sizes[1] else ''}"
    if kind == "s":
        text, data = _string(data)
        return (form + "s") % text.decode(errors="replace"), data
    word, data = data[:8].ljust(8, b"\0"), data[8:]
    if kind in "eEfFgGaA":
        number = struct.unpack("<d", word)[0]
        return (number.hex() if kind in "aA" else (form + kind) % number), data
    bits = {"hh": 8, "h": 16, None: 32}.get(length, 64)
    number = int.from_bytes(word, "little")
    if kind == "p":
        return f"{number:#x}", data
    number &= (1 << bits) - 1
    if kind in "di" and number >> (bits - 1):
        number -= 1 << bits
    return (form + (kind if kind in "oxXc" else "d")) % number, data


def _string(data: bytes) -> tuple[bytes, bytes]:
    """The string at the beginning, which ends with a zero and fills whole words, and what follows it."""
    text = data.split(b"\0", 1)[0]
    return text, data[(len(text) // 8 + 1) * 8 :]


def _place(text: str) -> tuple[int, ...]:
    """Programs in the order of the grid; what names none comes first."""
    found = _PROGRAM.search(text)
    return tuple(int(n) for n in found.groups()[::-1]) if found else ()
