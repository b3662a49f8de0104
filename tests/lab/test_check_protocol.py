"""What parent and child tell each other: it arrives as it was sent, and nothing else is believed."""

import pytest
import torch

from course_lab.check import client
from course_lab.check.protocol import (
    Change,
    Definition,
    Event,
    FaultSeen,
    Job,
    LaunchSeen,
    Overlap,
    Problem,
    ProtocolError,
    Seen,
    clean,
    read,
    wire,
)
from gfxlab import sandbox, transport

FAULT = FaultSeen("load", (1, 0, 0), "x_ptr", 10, 10, 6, 5, True, "program 1 ...")
WHOLE = Seen(
    problem=Problem("ValueError", "no", 3),
    outputs=(torch.ones(2, dtype=torch.bfloat16),),
    writers=(torch.zeros(2, dtype=torch.int32), None),
    events=(Event(0, (1, 2, 3), 5),),
    launches=(LaunchSeen("k", (4, 1, 1), True, ((0, 0, 0), (1, 0, 0)), (3,)),),
    overlap=Overlap("y_ptr", 4, 7, ((0, 0, 0), (1, 0, 0))),
    wrong=("a race",),
    faults=(FAULT,),
    modified=(Change(0, 3, -1),),
)


def sent(value, folder):
    transport.save(wire(value), folder / "message")
    return transport.load(folder / "message")


@pytest.mark.parametrize("message", [Definition(Problem("A", "b"), ("f", "g")), FAULT, *WHOLE.events, *WHOLE.modified])
def test_a_message_arrives_as_it_was_sent(message, tmp_path):
    assert read(type(message), sent(message, tmp_path)) == message


def test_tensors_arrive_and_arguments_keep_their_types(tmp_path):
    seen = read(Seen, sent(WHOLE, tmp_path))
    assert seen.launches == WHOLE.launches and seen.overlap == WHOLE.overlap and seen.faults == WHOLE.faults
    assert torch.equal(seen.outputs[0], WHOLE.outputs[0]) and seen.writers[1] is None
    (tmp_path / "job").mkdir()
    args = (torch.ones(3), None, 2, [1, 2], (3, 4), torch.bfloat16, "silu")
    job = read(Job, sent(Job("91.1", "a\r\n\f", "f", (args,)), tmp_path / "job"))
    assert job.code == "a\r\n\f" and job.cases[0][1:] == args[1:]


@pytest.mark.parametrize(
    "damage",
    [
        {"outputs": "x"},
        {"outputs": (1,)},
        {"launches": (7,)},
        {"events": ({"launch": 0, "program": (0, 0), "line": 1},)},
        {"damaged": 1},
        {"returned": None},
        {"more": 1},
    ],
    ids=lambda damage: "-".join(damage),
)
def test_a_record_of_another_form_is_refused(damage):
    with pytest.raises(ProtocolError):
        read(Seen, {**wire(WHOLE), **damage})


@pytest.mark.parametrize("parts", [(1,), ({"problem": None, "defined": ()}, {"returned": 3})], ids=["cell", "case"])
def test_a_child_that_lies_is_a_child_that_died(parts, monkeypatch):
    monkeypatch.setattr(sandbox, "run", lambda *_, **__: sandbox.Outcome("ok", parts=parts))
    attempt = client.run_cases(Job("91.1", "", "f", ((),)), time_limit=1)
    assert (attempt.definition, attempt.seen, attempt.outcome.status) == (None, (), "crash")
    assert attempt.silence.startswith("its result cannot be read")


def test_text_for_a_page_has_no_escapes_and_no_half_characters():
    assert clean("a\tb\r\nc é") == "a\tb\nc é"
    assert clean("\x1b[2J\x07 \ud800 \x9b") == "\\x1b[2J\\x07 ? \\x9b"
