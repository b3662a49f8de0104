"""The live board: who is at which exercise, and what the room's most common mistake is. A service of the hub.

    python workshop/board.py board.sqlite

POST api/result takes {"exercise", "passed", "cases", "diagnosis"} from a learner's own server; DELETE api/mine takes
all of it back. The page shows a learner their own row, and everybody's to an administrator of the hub. No code of a
learner comes here. What is sent is read as if it came from somebody who means harm.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from urllib.parse import urlparse

from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated, UserNotAllowed
from jupyterhub.utils import url_path_join
from tornado import httpserver, ioloop, web

POSTS_A_MINUTE = 30  # of one learner
VISITS_A_MINUTE = 60  # of one learner, to the page; and as many withdrawals
LARGEST = 2048  # bytes of a post
MOST_ROWS = 150  # exercises of one learner that are kept
COLUMNS = 40  # exercises that the page shows, those at which most learners are
REMEMBERED = 30  # seconds for which a token is believed without asking the hub again
NOW = 15 * 60  # seconds: how old a mistake may be and still be one that is made now
REFRESH = 10  # seconds after which a page asks again
_EXERCISE = re.compile(r"[0-9]{1,2}\.(?:[0-9]{1,2}|[a-z])")
_MOST_NAMED = 6  # exercises in the line on the most common mistake
LIMITS = {"max_body_size": 1 << 14, "max_header_size": 1 << 15, "body_timeout": 10.0, "idle_connection_timeout": 60.0}
_CODE = re.compile(r"[a-z0-9-]{0,40}")


@dataclass(frozen=True)
class Result:
    """The latest attempt of a learner at an exercise; attempts: how many were wrong; since: when the first came."""

    learner: str
    exercise: str
    passed: int
    cases: int
    diagnosis: str
    attempts: int
    since: float
    at: float

    @property
    def right(self) -> bool:
        return self.cases > 0 and self.passed == self.cases


class Refused(ValueError):
    """A post that is not one; the message says why."""


def read_post(body: bytes) -> tuple[str, int, int, str]:
    """Exercise, cases passed, cases and diagnosis of a post.

    Raises:
        Refused: anything else.
    """
    if len(body) > LARGEST:
        raise Refused(f"a post has at most {LARGEST} bytes")
    try:
        content = json.loads(body)
        exercise, diagnosis = content["exercise"], content["diagnosis"]
        passed, cases = content["passed"], content["cases"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refused("a post is an object with exercise, passed, cases and diagnosis") from None
    if not (isinstance(exercise, str) and _EXERCISE.fullmatch(exercise)):
        raise Refused("exercise is a number such as 2.1")
    diagnosis = "" if diagnosis is None else diagnosis
    if not (isinstance(diagnosis, str) and _CODE.fullmatch(diagnosis)):
        raise Refused("diagnosis is a code such as missing-store-mask")
    if not all(type(number) is int for number in (passed, cases)) or not 0 <= passed <= cases <= 99:
        raise Refused("passed and cases are numbers, at most 99")
    return exercise, passed, cases, diagnosis


class Store:
    """What was posted, in SQLite; a line for each learner and exercise."""

    def __init__(self, path: str) -> None:
        self._base = sqlite3.connect(path)
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute(
            "CREATE TABLE IF NOT EXISTS results (learner TEXT, exercise TEXT, passed INT, cases INT, diagnosis TEXT,"
            " attempts INT, since REAL, at REAL, PRIMARY KEY (learner, exercise))"
        )

    def add(self, learner: str, exercise: str, passed: int, cases: int, diagnosis: str, at: float) -> None:
        """Note an attempt; wrong ones are counted.

        Raises:
            Refused: a learner who has more exercises on the board than there are.
        """
        wrong = int(passed < cases)
        with self._base:
            others = "SELECT count(*) FROM results WHERE learner = ? AND exercise <> ?"
            if self._base.execute(others, (learner, exercise)).fetchone()[0] >= MOST_ROWS:
                raise Refused(f"at most {MOST_ROWS} exercises of a learner are kept")
            self._base.execute(
                "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (learner, exercise) DO UPDATE SET"
                " passed = excluded.passed, cases = excluded.cases, diagnosis = excluded.diagnosis,"
                " attempts = attempts + excluded.attempts, at = excluded.at",
                (learner, exercise, passed, cases, diagnosis, wrong, at, at),
            )

    def forget(self, learner: str) -> None:
        """Take a learner's row off the board."""
        with self._base:
            self._base.execute("DELETE FROM results WHERE learner = ?", (learner,))

    def results(self, learner: str | None = None) -> list[Result]:
        """All results, or those of one learner."""
        rows = self._base.execute("SELECT * FROM results WHERE ?1 IS NULL OR learner = ?1", (learner,))
        return [Result(*row) for row in rows]


class Rate:
    """So many a minute of each learner."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock, self._posts = most, clock, defaultdict(deque)

    def allows(self, learner: str) -> bool:
        """Whether one more is allowed now; it counts if so."""
        posts, now = self._posts[learner], self._clock()
        while posts and now - posts[0] > 60:
            posts.popleft()
        if len(posts) >= self._most:
            return False
        posts.append(now)
        return True


# ---- the page --------------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --soft: #555; --line: #bbb; --right: #d5ecd4;
  --wrong: #fbe0c3 }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --paper: #181818; --soft: #bdbdbd; --line: #555;
  --right: #1d4023; --wrong: #5a3712 } }
body { font: 16px/1.4 system-ui, sans-serif; margin: 1.5rem; color: var(--ink); background: var(--paper) }
table { border-collapse: collapse }
th, td { padding: .25rem .6rem; border: 1px solid var(--line); text-align: center }
th:first-child, td:first-child { text-align: left; max-width: 14rem; overflow-wrap: anywhere }
td.right { background: var(--right) } td.wrong { background: var(--wrong) }
small { color: var(--soft); font-weight: normal } td small { color: inherit }
.most { font-size: 1.3rem; margin: .5rem 0 1.2rem }
"""


def page(results: list[Result], everybody: bool, now: float) -> str:
    """The board as HTML: learner x exercise, who is stuck first."""
    exercises = _columns(results)
    rows = defaultdict(dict)
    for result in results:
        rows[result.learner][result.exercise] = result
    stuck = sorted(rows, key=lambda learner: (*(-part for part in _trouble(rows[learner].values(), now)), learner))
    head = "".join(f"<th>{escape(exercise)}{_solved(exercise, results, everybody)}</th>" for exercise in exercises)
    lines = [
        f"<tr><td>{escape(name)}</td>{''.join(_cell(rows[name].get(exercise), now) for exercise in exercises)}</tr>"
        for name in stuck
    ]
    table = f"<table><tr><th>learner</th>{head}</tr>{''.join(lines)}</table>" if rows else "<p>Nobody is here yet.</p>"
    title = "The room" if everybody else "Your row"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="refresh" content="{REFRESH}"><style>{_STYLE}</style></head><body><h1>{title}</h1>'
        f"{_most_common(results, now) if everybody else ''}{table}"
        "<p><small>Cases passed of all; below, the mistake, wrong attempts and how long since the first. Who is stuck "
        "comes first.</small></p></body></html>"
    )


def _columns(results: list[Result]) -> list[str]:
    """The exercises that are shown: of too many, those at which most learners are."""
    learners = Counter(result.exercise for result in results)
    most = sorted(learners, key=lambda exercise: (-learners[exercise], _order(exercise)))[:COLUMNS]
    return sorted(most, key=_order)


def _solved(exercise: str, results: list[Result], everybody: bool) -> str:
    """How many have solved it, for the room's page."""
    count = sum(result.right for result in results if result.exercise == exercise)
    return f"<br><small>{count} right</small>" if everybody else ""


def _order(exercise: str) -> tuple[int, bool, int, str]:
    """2.a comes before 2.1, 2.2 before 2.10."""
    lesson, _, number = exercise.partition(".")
    return int(lesson), number.isdigit(), int(number) if number.isdigit() else 0, number


def _trouble(results, now: float) -> tuple[int, float]:
    """Of the exercises that are not right yet: most wrong attempts, longest time."""
    wrong = [result for result in results if not result.right]
    return max((r.attempts for r in wrong), default=0), max((now - r.since for r in wrong), default=0.0)


def _cell(result: Result | None, now: float) -> str:
    if result is None:
        return "<td></td>"
    tries = f"{result.attempts} wrong" if result.attempts else ""
    age = "" if result.right else f", {max(now - result.since, 0) / 60:.0f} min"
    kind, code = ("right", "") if result.right else ("wrong", f"<br><small>{escape(result.diagnosis)}</small>")
    return f'<td class="{kind}">{result.passed}/{result.cases}{code}<br><small>{tries}{age}</small></td>'


def _most_common(results: list[Result], now: float) -> str:
    """The mistake that most learners make at this moment."""
    wrong = [r for r in results if not r.right and r.diagnosis and now - r.at < NOW]
    if not wrong:
        return '<p class="most">No mistake is made by anybody now.</p>'
    code, count = Counter(code for _, code in {(r.learner, r.diagnosis) for r in wrong}).most_common(1)[0]
    where = sorted({r.exercise for r in wrong if r.diagnosis == code}, key=_order)[:_MOST_NAMED]
    by = "one learner" if count == 1 else f"{count} learners"
    return f'<p class="most">Most common now: <code>{escape(code)}</code>, by {by}, in {escape(", ".join(where))}</p>'


# ---- the service -----------------------------------------------------------------------------------------------------


class Board(HubOAuthenticated, web.RequestHandler):
    """The page."""

    @web.authenticated
    def get(self) -> None:
        user = self.current_user
        if not self.settings["visits"].allows(user["name"]):
            raise web.HTTPError(429, reason=f"at most {VISITS_A_MINUTE} visits a minute")
        everybody = bool(user.get("admin"))
        self.set_header(
            "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        )
        self.set_header("Cache-Control", "no-store")
        results = self.settings["store"].results(None if everybody else user["name"])
        self.write(page(results, everybody, time.time()))


class ByToken(HubOAuthenticated, web.RequestHandler):
    """What a learner's server sends: its token says whose it is; a browser's cookie does not count."""

    def get_current_user(self) -> dict | None:
        kind, _, token = self.request.headers.get("Authorization", "").partition(" ")
        if kind.lower() not in ("token", "bearer") or not token.strip():
            return None
        user = self.hub_auth.user_for_token(token.strip())
        try:
            return self.check_hub_user(user) if user else None
        except UserNotAllowed:
            return None

    def prepare(self) -> None:
        if not self.current_user:
            raise web.HTTPError(403, reason="a token of the hub is needed")

    def check_xsrf_cookie(self) -> None:
        """No page of another site can set the header that `prepare` asks for."""

    def post(self) -> None:
        name = self.current_user["name"]
        if not self.settings["posts"].allows(name):
            raise web.HTTPError(429, reason=f"at most {POSTS_A_MINUTE} results a minute")
        try:
            self.settings["store"].add(name, *read_post(self.request.body), time.time())
        except Refused as why:
            raise web.HTTPError(400, reason=str(why)) from None
        self.set_status(204)

    def delete(self) -> None:
        name = self.current_user["name"]
        if not self.settings["leavings"].allows(name):
            raise web.HTTPError(429, reason=f"at most {VISITS_A_MINUTE} times a minute")
        self.settings["store"].forget(name)
        self.set_status(204)


def application(path: str, prefix: str) -> web.Application:
    """The service, with its results in the file at `path`."""
    HubOAuth.instance(cache_max_age=REMEMBERED)  # a server that was stopped speaks for nobody after that
    return web.Application(
        [
            (prefix, Board),
            (url_path_join(prefix, "api/result"), ByToken),
            (url_path_join(prefix, "api/mine"), ByToken),
            (url_path_join(prefix, "oauth_callback"), HubOAuthCallbackHandler),
        ],
        store=Store(path),
        posts=Rate(POSTS_A_MINUTE),
        visits=Rate(VISITS_A_MINUTE),
        leavings=Rate(VISITS_A_MINUTE),
        cookie_secret=os.urandom(32),
    )


def main() -> None:
    address = urlparse(os.environ["JUPYTERHUB_SERVICE_URL"])
    app = application(sys.argv[1], os.environ["JUPYTERHUB_SERVICE_PREFIX"])
    httpserver.HTTPServer(app, **LIMITS).listen(address.port, address.hostname)
    ioloop.IOLoop.current().start()


if __name__ == "__main__":
    main()
