"""The hub with real accounts, over HTTP and in a browser: `make test-hub`, as root.

What a learner can do is tried, and what a learner must not do is tried from that learner's own kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from guide_text import ROOT

pytestmark = [pytest.mark.hub, pytest.mark.timeout(1800)]
hub_client = pytest.importorskip("hub_client", reason="the hub's client needs requests and tornado")
PROXY = ROOT / "build" / "hub" / "node_modules"
SHOTS = ROOT / "build" / "screenshots"
MUST = [
    (os.geteuid() == 0, "real accounts need root: sudo make test-hub"),
    (shutil.which("unshare") is not None, "accounts of its own need unshare (util-linux)"),
    ((PROXY / ".bin" / "configurable-http-proxy").exists(), "npm install --prefix build/hub configurable-http-proxy"),
]
for present, why in MUST:
    if not present:
        pytest.skip(why, allow_module_level=True)
pytest.importorskip("jupyterhub", reason="pip install '.[workshop]'")


def free_ports(count: int) -> list[int]:
    opened = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in opened]
    for one in opened:
        one.close()
    return ports


@pytest.fixture(scope="module")
def hub():
    """(address, passwords by name, folder) of a running hub with its board."""
    state = Path(tempfile.mkdtemp(prefix="course-hub-", dir="/tmp"))
    state.chmod(0o755)
    (state / "node_modules").symlink_to(PROXY)
    public, inner, proxy, board = free_ports(4)
    env = {**os.environ, "COURSE_HUB_URL": f"http://127.0.0.1:{public}", "COURSE_HUB_PORTS": f"{inner},{proxy}"}
    env |= {"COURSE_BOARD": "yes", "COURSE_BOARD_BIND": f"http://127.0.0.1:{board}"}
    env["PYTHONPATH"] = str(ROOT)
    passwords, room = state / "passwords", Path(__file__).with_name("hub_room.py")
    command = ["unshare", "--mount", sys.executable, str(room), str(state), str(passwords)]
    with open(state / "log", "w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(public, process, state / "log")
        yield f"http://127.0.0.1:{public}", json.loads(passwords.read_text()), str(state)
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            print((state / "log").read_text()[-4000:])
            shutil.rmtree(state, ignore_errors=True)


def wait_for(port: int, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + 180
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if hub_client.requests.get(f"http://127.0.0.1:{port}/hub/login", timeout=10).ok:
                return
        except hub_client.requests.RequestException:
            pass
        time.sleep(0.5)
    pytest.fail(log.read_text()[-4000:])


@pytest.fixture(scope="module")
def alice(hub):
    return entered(hub, "alice")


@pytest.fixture(scope="module")
def bob(hub):
    return entered(hub, "bob")


def entered(hub, name):
    address, passwords, _ = hub
    user = hub_client.User(address, name)
    assert user.enter(passwords[name]).ok
    user.start()
    return user


def test_who_is_no_learner_and_who_mistypes_stays_outside(hub):
    address, passwords, _ = hub
    assert hub_client.User(address, "alice").enter("wrong").status_code == 403
    assert hub_client.User(address, "stranger").enter(passwords["stranger"]).status_code == 403
    assert hub_client.User(address, "root").enter("").status_code == 403


def test_a_learner_checks_an_answer_and_gets_the_diagnosis(alice):
    notebook = alice.get("/user/alice/api/contents/work/exercises/00_start_here.ipynb").json()
    cells = [cell["source"] for cell in notebook["content"]["cells"]]
    (stub,) = [cell for cell in cells if cell.startswith("%%exercise 0.1\n")]
    placeholder = next(line for line in stub.splitlines() if "# your code here" in line)
    wrong = alice.run(stub.replace(placeholder, "    tl.store(y_ptr + offs, 2 * x)"))
    assert "missing-store-mask" in wrong and "not right yet" in wrong
    assert "right" in alice.run(stub.replace(placeholder, "    tl.store(y_ptr + offs, 2 * x, mask=mask)"))


def test_each_server_is_its_own_account_within_limits(alice, bob):
    names = [user.run("import getpass, os; print(getpass.getuser(), os.getuid())").split() for user in (alice, bob)]
    assert [name for name, _ in names] == ["alice", "bob"] and len({uid for _, uid in names} - {"0"}) == 2
    limits = alice.run("import resource as r; print(r.getrlimit(r.RLIMIT_NPROC), r.getrlimit(r.RLIMIT_CORE))")
    assert limits.strip() == "(400, 400) (0, 0)"
    group = alice.run("print(open('/proc/self/cgroup').read())")
    data = alice.run("print(r.getrlimit(r.RLIMIT_DATA)[0])")
    assert "/course-hub/alice" in group or data.strip() == str(4 << 30)
    assert "800" not in alice.run(
        "import threading, time\nts = []\ntry:\n"
        "    for i in range(800): t = threading.Thread(target=time.sleep, args=(5,)); t.start(); ts.append(t)\n"
        "except RuntimeError: pass\nprint(len(ts))"
    )


@pytest.mark.parametrize(
    "code",
    [
        "open('/home/{0}/work/exercises/00_start_here.ipynb').read()",
        "import os; os.listdir('/home/{0}')",
        "open('/home/{0}/stolen', 'w')",
        "open('/proc/{1}/environ').read()",
        "open('/proc/{1}/mem', 'rb').read(1)",
        "import os; os.kill({1}, 9)",
        "import os; os.kill({1}, 19)",
        "import os; os.setpriority(os.PRIO_PROCESS, {1}, 19)",
        "import os; os.setuid({2})",
        "import os; os.listdir('{3}/private')",
        "open('{3}/shared/mine', 'w')",
    ],
)
def test_a_learner_cannot_read_or_stop_another(alice, bob, code):
    pid, uid = bob.run("import os; print(os.getppid(), os.getuid())").split()
    state = alice.run("import os; print(os.path.dirname(os.environ['COURSE_WEIGHTS']))").strip()
    assert "PermissionError: " in alice.run(code.format("bob", pid, uid, state))


def test_a_learner_listens_to_no_kernel(alice, bob):
    """Kernels speak through sockets in their owner's folder, and no TCP port of bob's processes is a kernel's."""
    pid = bob.run("import os; print(os.getpid())").strip()
    connection = bob.run("import ipykernel; print(ipykernel.get_connection_info())")
    assert '"transport": "ipc"' in connection
    folder = bob.run("import jupyter_core.paths as p; print(p.jupyter_runtime_dir())").strip()
    assert "PermissionError" in alice.run(f"import os; os.listdir({folder!r})")
    assert pid


def test_a_learner_is_nobody_elses_browser(alice, bob, hub):
    assert alice.get("/user/bob/api/contents/work").status_code in (403, 404)
    assert alice.get("/user/bob/lab").status_code in (403, 404)
    assert alice.get("/hub/admin").status_code == 403
    token = alice.run("import os; print(os.environ['JUPYTERHUB_API_TOKEN'])").strip()
    headers = {"Authorization": f"token {token}"}
    ask = hub_client.requests.request
    for method, path in (
        ("GET", "/hub/api/users"),
        ("GET", "/hub/api/users/bob"),
        ("DELETE", "/hub/api/users/bob/server"),
        ("POST", "/hub/api/users/bob/tokens"),
        ("POST", "/hub/api/shutdown"),
        ("GET", "/user/bob/api/contents/work"),
    ):
        assert ask(method, f"{hub[0]}{path}", headers=headers, timeout=60).status_code in (403, 404), path
    assert bob.run("print(6 * 7)").strip() == "42"  # and bob is still there


WRONG = """import course_lab.board as b
b.post("0.1", 3, 7, "missing-store-mask").join()
b.post("0.2", 7, 7, None).join()
"""


def test_the_board_shows_who_joined_and_to_whom(hub, alice, bob):
    address, passwords, _ = hub
    assert bob.run("import course_lab.board as b; print(b.post('0.1', 0, 7, 'race'))").strip() == "None"
    assert "Your code stays here" in alice.run("!course board on")
    alice.run(WRONG)
    teacher = hub_client.User(address, "teacher")
    assert teacher.enter(passwords["teacher"]).ok
    room, own, nobodys = (user.get("/services/board/").text for user in (teacher, alice, bob))
    assert "<td>alice</td>" in room and "Most common now: <code>missing-store-mask</code>" in room
    assert "Your row" in own and "<td>alice</td>" in own and "Most common" not in own
    assert "Nobody is here yet" in nobodys and "alice" not in nobodys


def test_the_board_takes_nothing_from_a_stranger_and_not_everything_from_a_learner(hub, bob):
    where, ask = f"{hub[0]}/services/board/api/result", hub_client.requests.post
    assert ask(where, json={}, timeout=60).status_code == 403
    assert ask(where, json={}, headers={"Authorization": "token wrong"}, timeout=60).status_code == 403
    assert bob.session.post(where, json={}, timeout=60).status_code == 403  # a cookie alone, as another site would send
    token = bob.run("import os; print(os.environ['JUPYTERHUB_API_TOKEN'])").strip()
    headers = {"Authorization": f"token {token}"}
    assert ask(where, data="<script>", headers=headers, timeout=60).status_code == 400
    codes = [ask(where, data="{}", headers=headers, timeout=60).status_code for _ in range(40)]
    assert set(codes) == {400, 429} and codes[-1] == 429


def test_the_board_comes_back_with_its_rows(hub, alice):
    (pid,) = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if hub[2] in path.read_bytes().decode(errors="replace") and b"board.py" in path.read_bytes()
    ]
    os.kill(pid, 9)
    deadline = time.monotonic() + 120
    while not (page := alice.get("/services/board/")).ok or "<td>alice</td>" not in page.text:
        assert time.monotonic() < deadline, page.text
        time.sleep(1)
    assert "your row is gone" in alice.run("!course board off")
    assert "Nobody is here yet" in alice.get("/services/board/").text


def test_in_a_browser_from_the_form_to_the_diagnosis(hub, alice):
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium")
    address, passwords, _ = hub
    SHOTS.mkdir(parents=True, exist_ok=True)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1366, "height": 900})
        page.set_default_timeout(300_000)
        page.goto(f"{address}/hub/login")
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=SHOTS / f"hub-login-{scheme}.png")
        page.fill("#username_input", "alice")
        page.fill("#password_input", passwords["alice"])
        page.click("#login_submit")
        page.wait_for_url("**/user/alice/lab/**")
        page.wait_for_selector(".jp-Notebook .jp-RenderedMarkdown h1")
        assert "00 Start here" in page.locator(".jp-Notebook .jp-RenderedMarkdown h1").first.inner_text()
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(1000)
            page.screenshot(path=SHOTS / f"hub-lesson-{scheme}.png")
        page.goto(f"{address}/user/alice/lab/tree/work/exercises/00_start_here.ipynb?reset")
        cell = page.locator(".jp-Notebook .jp-Cell", has=page.locator(".cm-line", has_text="%%exercise 0.1")).first
        cell.wait_for()
        page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        cell.locator(".cm-content").click()
        text = cell.locator(".cm-content").inner_text()
        placeholder = next(line for line in text.splitlines() if "# your code here" in line)
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(text.replace(placeholder, "    tl.store(y_ptr + offs, 2 * x)"))
        page.keyboard.press("Control+Enter")
        cell.get_by_text("missing-store-mask").first.wait_for()
        cell.scroll_into_view_if_needed()
        page.screenshot(path=SHOTS / "hub-diagnosis.png")
        browser.close()
