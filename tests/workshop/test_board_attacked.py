"""The board as a service, and learners who mean harm: strange posts, others' rows, old tokens, wrong methods, floods.

The hub beside it is a stand-in that knows a few tokens; the real one is in test_hub.py.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

import pytest
from guide_text import ROOT

pytest.importorskip("jupyterhub", reason="pip install '.[workshop]'")
requests = pytest.importorskip("requests")
PREFIX = "/services/board/"
EVIL = "<img src=x onerror=alert(1)>"
GOOD = {"exercise": "2.1", "passed": 1, "cases": 7, "diagnosis": "missing-other"}


class Hub(http.server.BaseHTTPRequestHandler):
    """Says whose a token is; `users` may change while it runs."""

    users: dict[str, dict] = {}

    def do_GET(self):
        user = self.users.get(self.headers.get("Authorization", "").removeprefix("token "))
        body = json.dumps(user or {"message": "no"}).encode()
        self.send_response(200 if user else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def person(name: str, admin: bool = False, scopes: tuple[str, ...] = ("access:services",)) -> dict:
    return {"kind": "user", "name": name, "admin": admin, "scopes": list(scopes)}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """The address of a board, started as the hub starts it, for thirty learners and an instructor."""
    hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    Hub.users = {f"token-{n}": person(f"learner{n:02}") for n in range(30)}
    Hub.users |= {"token-evil": person(EVIL), "token-ada": person("ada", admin=True)}
    Hub.users |= {"token-foreign": person("foreign", scopes=("read:users",))}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {**os.environ, "JUPYTERHUB_SERVICE_PREFIX": PREFIX, "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}"}
    env |= {"JUPYTERHUB_API_URL": f"http://127.0.0.1:{hub.server_port}/hub/api", "JUPYTERHUB_API_TOKEN": "own"}
    env |= {"JUPYTERHUB_CLIENT_ID": "service-board", "JUPYTERHUB_OAUTH_ACCESS_SCOPES": '["access:services"]'}
    base = tmp_path_factory.mktemp("board") / "board.sqlite"
    process = subprocess.Popen([sys.executable, str(ROOT / "workshop" / "board.py"), str(base)], env=env)
    address = f"http://127.0.0.1:{port}{PREFIX}"
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        try:
            requests.get(address, timeout=5, allow_redirects=False)
            break
        except requests.RequestException:
            time.sleep(0.1)
    yield address
    process.terminate()
    process.wait()
    hub.shutdown()


def ask(method: str, address: str, token: str | None, path: str = "api/result", **more):
    headers = more.pop("headers", {}) | ({"Authorization": f"token {token}"} if token else {})
    return requests.request(method, f"{address}{path}", headers=headers, timeout=30, allow_redirects=False, **more)


def seen_by(address: str, token: str) -> str:
    return ask("GET", address, token, "").text


def test_a_post_counts_for_whose_token_it_is_whatever_it_says(service):
    for more in ({}, {"learner": "learner05"}, {"name": "ada", "user": {"name": "ada"}}):
        assert ask("POST", service, "token-0", json=GOOD | more).status_code == 204
    assert ask("POST", service, "token-0", path="api/result?learner=learner05&token=token-5", json=GOOD).ok
    assert "<td>learner00</td>" in seen_by(service, "token-0")
    assert "Nobody is here yet" in seen_by(service, "token-5")
    assert "<td>learner00</td>" in seen_by(service, "token-ada")


def test_a_learner_sees_and_takes_away_no_row_but_their_own(service):
    for token in ("token-1", "token-2"):
        assert ask("POST", service, token, json=GOOD).status_code == 204
    assert "learner02" not in seen_by(service, "token-1")
    for path in ("api/mine", "api/mine?learner=learner02", "api/mine?token=token-2"):
        assert ask("DELETE", service, "token-1", path, data=b'{"learner": "learner02"}').status_code == 204
    assert "<td>learner02</td>" in seen_by(service, "token-2")


@pytest.mark.parametrize(
    "token", [None, "", "token-31", "token-foreign", "own", "x" * 8000, "token-1\t", "ünï".encode()]
)
def test_nobody_without_a_token_of_the_hub_gets_in(service, token):
    if isinstance(token, bytes) or token and not token.isprintable():
        headers = {"Authorization": b"token " + (token if isinstance(token, bytes) else token.encode())}
        answers = [ask("POST", service, None, json=GOOD, headers=headers)]
    else:
        answers = [
            ask(method, service, token, path) for method, path in (("POST", "api/result"), ("DELETE", "api/mine"))
        ]
        answers += [ask("GET", service, token, "")]
    codes = {answer.status_code for answer in answers}
    assert codes <= {302, 400, 403, 431} if token != "token-1\t" else codes <= {204, 400, 403}
    assert "learner" not in answers[-1].text


def test_a_cookie_does_not_post_even_beside_a_header(service):
    for header in ({}, {"Authorization": "token wrong"}, {"Authorization": "Basic YTpi"}, {"Authorization": "token"}):
        cookies = {"service-board": "token-3", "jupyterhub-session-id": "x", "_xsrf": "y"}
        assert ask("POST", service, None, json=GOOD, headers=header, cookies=cookies).status_code == 403


@pytest.mark.slow
def test_a_token_that_was_taken_back_is_refused_soon(service):
    Hub.users["token-late"] = person("late")
    assert ask("POST", service, "token-late", json=GOOD).status_code == 204
    del Hub.users["token-late"]
    deadline = time.monotonic() + 45
    while ask("POST", service, "token-late", json={}).status_code in (400, 429):
        assert time.monotonic() < deadline
        time.sleep(5)
    assert ask("POST", service, "token-late", json=GOOD).status_code == 403


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_do_nothing(service, method):
    for path in ("api/result", "api/mine"):
        assert ask(method, service, "token-4", path, data=json.dumps(GOOD)).status_code in (403, 404, 405)
    assert ask("POST", service, "token-4", "", data=json.dumps(GOOD)).status_code in (403, 405)
    assert "Nobody is here yet" in seen_by(service, "token-4")


@pytest.mark.parametrize(
    "body",
    [
        b'{"exercise": "2.1", "passed": NaN, "cases": 7, "diagnosis": null}',
        b'{"exercise": "2.1", "passed": 1e0, "cases": Infinity, "diagnosis": null}',
        b'{"exercise": "2.1", "passed": 1, "cases": ' + b"9" * 1900 + b', "diagnosis": null}',
        '{"exercise": "٢.١", "passed": 1, "cases": 7, "diagnosis": null}'.encode(),
        json.dumps(GOOD | {"diagnosis": "missing-other\u202e"}).encode(),
        json.dumps(GOOD | {"diagnosis": "a\x00b"}).encode(),
        json.dumps(GOOD | {"diagnosis": {}}).encode(),
        json.dumps(GOOD | {"diagnosis": False}).encode(),
        json.dumps(GOOD | {"diagnosis": "<script>alert(1)</script>"}).encode(),
        json.dumps(GOOD | {"exercise": "2.1'; DROP TABLE results; --"}).encode(),
        json.dumps([GOOD] * 3).encode(),
        b'{"a":' * 300,
        b"\x00" * 100,
        b"x" * 3000,
    ],
)
def test_what_is_no_post_is_refused_with_a_sentence(service, body):
    token = f"token-{6 + random.randrange(10)}"
    answer = ask("POST", service, token, data=body)
    assert answer.status_code in (400, 429)
    assert "Traceback" not in answer.text


def test_a_huge_post_ends_at_its_sender(service):
    for more in ({"data": b"x" * (8 << 20)}, {"data": iter([b"x" * (1 << 20)] * 8)}):
        with contextlib.suppress(requests.ConnectionError):  # closed before all of it was sent
            assert ask("POST", service, "token-16", **more).status_code in (400, 413)
    assert ask("POST", service, "token-16", json=GOOD).status_code == 204


def test_a_name_that_is_a_script_is_text(service):
    assert ask("POST", service, "token-evil", json=GOOD).status_code == 204
    for token in ("token-evil", "token-ada"):
        answer = ask("GET", service, token, "")
        assert "&lt;img src=x" in answer.text and "<img" not in answer.text
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_one_who_posts_by_the_hundred_is_stopped_and_the_others_are_served(service):
    codes = [ask("POST", service, "token-20", json=GOOD | {"exercise": f"77.{n % 99}"}).status_code for n in range(300)]
    assert codes.count(204) == 30 and set(codes) == {204, 429}
    began = time.monotonic()
    assert ask("POST", service, "token-21", json=GOOD).status_code == 204 and time.monotonic() - began < 10
    visits = [ask("GET", service, "token-20", "").status_code for _ in range(70)]
    assert visits.count(200) == 60 and set(visits) == {200, 429}


def test_thirty_learners_at_once_lose_nothing(service):
    def learner(n: int) -> None:
        for exercise in range(1, 5):
            posted.append(ask("POST", service, f"token-{n}", json=GOOD | {"exercise": f"8.{exercise}"}).status_code)

    posted: list[int] = []
    people = [threading.Thread(target=learner, args=(n,)) for n in range(22, 30)]
    for one in people:
        one.start()
    for one in people:
        one.join()
    assert posted == [204] * 32
    room = seen_by(service, "token-ada")
    assert all(f"<td>learner{n}</td>" in room for n in range(22, 30))


def test_a_slow_sender_holds_nobody_up(service):
    host, port = service.split("/")[2].split(":")
    held = [socket.create_connection((host, int(port))) for _ in range(50)]
    for one in held:
        one.sendall(f"POST {PREFIX}api/result HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n".encode())
    assert ask("POST", service, "token-17", json=GOOD).status_code == 204
    for one in held:
        one.close()
