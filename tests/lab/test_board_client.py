"""What a learner's side sends to the live board: nothing, unless there is one and the learner has joined."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from course_lab import board


@pytest.fixture
def received(course_home, monkeypatch):
    """What a board in this process gets: (method, path, token, content)."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.command, self.path, self.headers["Authorization"], body))
            self.send_response(204)
            self.end_headers()

        do_DELETE = do_POST
        log_message = print

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("COURSE_BOARD_URL", f"http://127.0.0.1:{server.server_port}/services/board/")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "mine")
    yield got
    server.shutdown()
    server.server_close()


def test_nothing_is_sent_before_joining_and_after_leaving(received):
    assert board.post("2.1", 1, 7, "missing-other") is None
    assert "Your code stays here" in board.join()
    board.post("2.1", 1, 7, "missing-other").join(10)
    ((method, path, token, body),) = received
    assert (method, path, token) == ("POST", "/services/board/api/result", "token mine")
    assert json.loads(body) == {"exercise": "2.1", "passed": 1, "cases": 7, "diagnosis": "missing-other"}
    assert "your row is gone" in board.leave()
    assert received[1][:2] == ("DELETE", "/services/board/api/mine")
    assert board.post("2.1", 7, 7, None) is None and len(received) == 2


def test_without_a_board_there_is_nothing_to_join(course_home, monkeypatch):
    monkeypatch.delenv("COURSE_BOARD_URL", raising=False)
    with pytest.raises(board.BoardError, match="No board is run here"):
        board.join()
    assert board.leave() == "Nothing is sent."


def test_a_board_that_is_away_costs_nothing(course_home, monkeypatch):
    monkeypatch.setenv("COURSE_BOARD_URL", "http://127.0.0.1:9/")
    board.join()
    board.post("2.1", 1, 7, None).join(10)
    with pytest.raises(board.BoardError, match="did not take your row away"):
        board.leave()
    assert not board.joined()
