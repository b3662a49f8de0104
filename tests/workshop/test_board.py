"""The live board by itself: what it takes, what it shows to whom, a restart. With the hub: test_hub.py."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys

import pytest
from guide_text import ROOT

pytest.importorskip("jupyterhub", reason="pip install '.[workshop]'")
sys.path.insert(0, str(ROOT / "workshop"))
import board

NOW = 1_000_000.0
EXERCISES = ("0.1", "0.a", "1.1", "1.2", "2.2", "10.1")


def post(**changed) -> bytes:
    return json.dumps({"exercise": "2.1", "passed": 1, "cases": 7, "diagnosis": "missing-other", **changed}).encode()


def test_a_post_is_read():
    assert board.read_post(post()) == ("2.1", 1, 7, "missing-other")
    assert board.read_post(post(exercise="10.a", passed=7, diagnosis=None)) == ("10.a", 7, 7, "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 2000,
        b"x" * 5000,
        post(exercise="<b>"),
        post(exercise="2.1\n"),
        post(exercise=["2.1"]),
        post(exercise="222.1"),
        post(passed=8),
        post(passed=-1),
        post(passed=True),
        post(passed=1.5),
        post(cases=10**9),
        post(diagnosis="<script>"),
        post(diagnosis="a" * 41),
        post(diagnosis=7),
    ],
)
def test_what_is_no_post_is_refused(body):
    with pytest.raises(board.Refused):
        board.read_post(body)


def test_each_learner_has_so_many_posts_a_minute():
    clock = [0.0]
    rate = board.Rate(board.POSTS_A_MINUTE, lambda: clock[0])
    assert [rate.allows("ann") for _ in range(31)].count(True) == board.POSTS_A_MINUTE
    assert rate.allows("ben") and not rate.allows("ann")
    clock[0] = 61.0
    assert rate.allows("ann")


@pytest.fixture
def room(tmp_path):
    """Thirty learners an hour into a workshop; what they do is drawn, and the same each time."""
    drawn, store = random.Random(24), board.Store(str(tmp_path / "board.sqlite"))
    for learner in range(30):
        name, at = f"learner{learner:02}", NOW - 3600
        for exercise in EXERCISES[: drawn.randint(1, 6)]:
            for _ in range(drawn.choice((0, 0, 1, 2, 5))):
                at += drawn.uniform(20, 200)
                code = drawn.choice(("missing-store-mask",) * 3 + ("grid-floor-division", "divides-by-block"))
                store.add(name, exercise, drawn.randint(0, 5), 6, code, at)
            if drawn.random() < 0.8:
                store.add(name, exercise, 6, 6, "", at + 30)
    store.add("stuck", "1.2", 2, 6, "missing-store-mask", NOW - 900)
    for second in range(12):
        store.add("stuck", "1.2", 2, 6, "missing-store-mask", NOW - 60 + second)
    return store, tmp_path / "board.sqlite"


def test_thirty_learners_who_is_stuck_first(room):
    html = board.page(room[0].results(), True, NOW)
    rows = [row.partition("</td>")[0].removeprefix("<td>") for row in html.split("<tr>")[2:]]
    assert len(rows) == 31 and rows[0] == "stuck" and "12 wrong" not in rows[1]
    heads = [part.partition("<")[0] for part in html.split("<th>")[2:]]
    assert html.count(" right</small>") == 6
    assert heads == ["0.a", "0.1", "1.1", "1.2", "2.2", "10.1"]
    assert "Most common now: <code>missing-store-mask</code>" in html and "13 wrong, 15 min" in html


def test_a_learner_sees_one_row_and_nothing_of_the_room(room):
    html = board.page(room[0].results("stuck"), False, NOW)
    assert html.count("<tr>") == 2 and "learner0" not in html and "Most common" not in html


def test_everything_shown_is_escaped(tmp_path):
    store = board.Store(str(tmp_path / "b"))
    store.add("<img src=x>", "2.1", 0, 3, '"><script>alert(1)</script>', NOW)
    html = board.page(store.results(), True, NOW)
    assert "<img" not in html and "<script" not in html and "&lt;img src=x&gt;" in html


def test_a_mistake_that_was_mended_or_is_old_is_not_made_now(tmp_path):
    store = board.Store(str(tmp_path / "b"))
    store.add("ann", "2.1", 0, 3, "divides-by-block", NOW - board.NOW - 1)
    store.add("ben", "2.1", 0, 3, "missing-other", NOW - 9)
    store.add("ben", "2.1", 3, 3, "", NOW)
    assert "No mistake" in board.page(store.results(), True, NOW)


def test_one_learner_alone_makes_no_common_mistake_and_no_endless_table(tmp_path):
    store = board.Store(str(tmp_path / "b"))
    for exercise in range(board.MOST_ROWS):
        store.add("mallory", f"{exercise // 99}.{exercise % 99}", 0, 3, "a-rude-word", NOW)
    with pytest.raises(board.Refused, match="at most"):
        store.add("mallory", "99.9", 0, 3, "a-rude-word", NOW)
    store.add("mallory", "0.1", 1, 3, "a-rude-word", NOW)  # what is there may change
    for name in ("ann", "ben"):
        store.add(name, "12.z", 0, 3, "missing-other", NOW)
    html = board.page(store.results(), True, NOW)
    assert "Most common now: <code>missing-other</code>, by 2 learners" in html
    assert html.count("<th>") == 1 + board.COLUMNS and "<th>12.z" in html


def test_it_survives_a_restart_and_forgets_who_leaves(room):
    before = board.page(room[0].results(), True, NOW)
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'workshop')!r}); import board\n"
    code += f"s = board.Store({str(room[1])!r}); s.add('late', '0.1', 0, 6, 'x', 1.0); import os; os._exit(9)"
    subprocess.run([sys.executable, "-c", code], check=False, timeout=120)  # dies right after its post
    again = board.Store(str(room[1]))
    assert [result.learner for result in again.results("late")] == ["late"]
    again.forget("late")
    assert board.page(again.results(), True, NOW) == before


@pytest.mark.browser
def test_its_look_with_thirty_learners(room, tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("no chromium: apt-get install chromium")
    (tmp_path / "board.html").write_text(board.page(room[0].results(), True, NOW))
    shots = ROOT / "build" / "screenshots"
    shots.mkdir(parents=True, exist_ok=True)
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for scheme, name in (("light", "board.png"), ("dark", "board-dark.png")):
            page = started.new_page(viewport={"width": 1366, "height": 900}, color_scheme=scheme)
            page.goto((tmp_path / "board.html").as_uri())
            page.screenshot(path=shots / name, full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") <= 1366
        started.close()
