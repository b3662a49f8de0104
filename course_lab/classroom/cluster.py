"""The same grading on many machines: each submission is one task of a Dask cluster, in a sandbox on its worker.

What learners wrote never is a Dask task: a task is our `grade_one`, which starts the sandbox.  Results come back as
JSON text and are stored by the one who asked, in the same form as everywhere.  Only a few submissions are with the
cluster at a time, so the scheduler holds as much for ten thousand as for ten.  A worker that dies loses its submission
to another (Dask's own doing); what a worker sits on for too long is given to another one as well, and the first result
counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from course_lab.classroom.failures import ClassroomError
from course_lab.classroom.one import grade_one
from course_lab.classroom.submissions import Submission
from course_lab.classroom.verdicts import Assignment, abandoned

_EACH = 60.0  # seconds that an exercise may take on a busy worker
_START = 180.0  # and an import, on a machine that has not read PyTorch yet
_AHEAD = 2  # submissions with the cluster, for each thread of its workers
_TRIES = 3
_LOOK = 0.05
CONNECT = 20.0

Tell = Callable[[Submission, str, dict[str, Any] | None], object]
Work = Callable[[Submission, Assignment], str]


def at(address: str, tls: tuple[str, str, str] | None = None) -> Callable[..., Iterator[dict[str, Any]]]:
    """A function like `pool.grade_all` whose graders are the workers of the scheduler at `address`.

    tls: paths of the authority, the certificate and the key, for an address that begins with tls://.

    Raises:
        ClassroomError: Dask is not installed, or nobody answers there.
    """
    try:
        from distributed import Client, Security
    except ImportError:
        raise ClassroomError(
            "--scheduler needs Dask: install the extra `workshop` (pip install -e '.[workshop]')."
        ) from None
    if address.startswith("tls://") != (tls is not None):
        raise ClassroomError(
            f"{address}: an address that begins with tls:// needs --tls CA CERTIFICATE KEY, and no other takes it."
        )
    names = ("tls_ca_file", "tls_client_cert", "tls_client_key")
    security = Security(require_encryption=True, **dict(zip(names, tls))) if tls else None
    try:
        client = Client(address, security=security, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = str(error).partition("\n")[0]
        raise ClassroomError(
            f"No Dask scheduler answers at {address} ({why}): start one with `dask scheduler`."
        ) from None

    def grade_all(
        submissions: Iterable[Submission], assignment: Assignment, jobs: int = 0, tell: Tell = lambda *_: None
    ) -> Iterator[dict[str, Any]]:
        with client:
            yield from spread_out(client, submissions, assignment, tell)

    return grade_all


@dataclass
class _Sent:
    """A submission that is with the cluster: the attempts at it, the time of the last, and how many have failed."""

    submission: Submission
    futures: list[Any] = field(default_factory=list)
    since: float = 0.0
    failed: int = 0


def spread_out(
    client: Any,
    submissions: Iterable[Submission],
    assignment: Assignment,
    tell: Tell = lambda *_: None,
    work: Work = grade_one,
    patience: float | None = None,
) -> Iterator[dict[str, Any]]:
    """Results as they come, at most `_AHEAD` submissions for each thread of the cluster under way.

    client: a `distributed.Client`.  work: what a worker does with a submission.  patience: seconds for one of them.
    """
    patience = patience or _START + _EACH * len(assignment.exercises)
    sender = _Sender(client, assignment, work)
    coming, under_way, exhausted = iter(submissions), list[_Sent](), False
    while under_way or not exhausted:
        while not exhausted and len(under_way) < _AHEAD * max(sum(client.nthreads().values()), 1):
            submission = next(coming, None)
            if submission is None:
                exhausted = True
            else:
                under_way.append(sender.send(_Sent(submission)))
        done = [sent for sent in under_way if any(future.done() for future in sent.futures)]
        for sent in done:
            if (result := sender.result(sent)) is not None:
                under_way.remove(sent)
                for number, verdict in result["exercises"].items():
                    tell(sent.submission, number, verdict)
                yield result
        if not done:
            time.sleep(_LOOK)
            sender.send_elsewhere([sent for sent in under_way if time.monotonic() - sent.since > patience])


@dataclass
class _Sender:
    client: Any
    assignment: Assignment
    work: Work

    def send(self, sent: _Sent, workers: list[str] | None = None) -> _Sent:
        """Give a submission to the cluster, or to these workers of it."""
        sent.since = time.monotonic()
        # no `retries`: an exception of ours comes again; a dead worker's task is given to another by the scheduler
        future = self.client.submit(self.work, sent.submission, self.assignment, pure=False, workers=workers)
        sent.futures.append(future)
        return sent

    def send_elsewhere(self, late: list[_Sent]) -> None:
        """Give what has taken too long to workers that do not sit on it; where there are none, go on waiting."""
        processing = self.client.processing() if late else {}
        for sent in late:
            keys = {future.key for future in sent.futures}
            others = sorted(worker for worker, its in processing.items() if not keys & set(its))
            sent.since = time.monotonic()
            if others:
                self.send(sent, others)

    def result(self, sent: _Sent) -> dict[str, Any] | None:
        """What came of a submission; None where it is tried once more, or another attempt is still under way."""
        from distributed.scheduler import KilledWorker

        future = next(future for future in sent.futures if future.done())
        sent.futures.remove(future)
        text, error = None, None
        if future.status == "finished":
            text = future.result()
        elif future.status == "error":
            error = future.exception()
        future.release()
        if text is not None:
            for other in sent.futures:
                other.cancel()
            return json.loads(text)
        if isinstance(error, ClassroomError):
            raise error
        sent.failed += 1
        if sent.futures:
            return None
        if isinstance(error, KilledWorker) or sent.failed >= _TRIES:
            why = f"every worker that tried it died ({type(error).__name__})"
            return abandoned(sent.submission, self.assignment, why)
        self.send(sent)
        return None
