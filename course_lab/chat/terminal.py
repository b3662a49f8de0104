"""`course chat`: the conversation in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from course_lab.chat.conversation import Conversation

STOPPED = 130  # the exit status of a command that Ctrl-C ended


def chat(talk: Conversation, message: str = "", max_new_tokens: int = 128) -> int:
    """Answer one message, or, without one, those that are typed until the end of the input; the exit status."""
    status = 0
    try:
        if message:
            status = _answer(talk, message, max_new_tokens)
        else:
            _converse(talk, max_new_tokens)
    except KeyboardInterrupt:  # at the prompt: that is how one leaves
        print()
    print(talk.note(), file=sys.stderr)
    return status


def _converse(talk: Conversation, max_new_tokens: int) -> None:
    """Answer what is typed; a message that cannot be answered ends nothing but itself."""
    for text in _typed():
        try:
            _answer(talk, text, max_new_tokens)
        except ValueError as error:
            print(f"course: {error}", file=sys.stderr)


def _typed() -> Iterator[str]:
    """The messages from the input, a line each."""
    if sys.stdin is None:  # closed by whoever started the command
        return
    asks = sys.stdin.isatty()
    if asks:
        print("Type a message. Ctrl-C stops an answer; an empty line, or Ctrl-D, ends the chat.", file=sys.stderr)
    while True:
        try:
            line = input("> " if asks else "").strip()
        except EOFError:
            return
        if not line and asks:
            return
        if line:
            yield line


def _answer(talk: Conversation, message: str, max_new_tokens: int) -> int:
    """Print the answer as it comes, and its figures behind it."""
    status, pieces = 0, talk.answer(message, max_new_tokens)
    try:
        for piece in pieces:
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        pieces.close()
        status = STOPPED
        print(" [stopped]", end="")
    print()
    print(f"[{talk.said}]", file=sys.stderr)
    return status
