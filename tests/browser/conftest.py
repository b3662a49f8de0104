"""JupyterLab as `make lab` starts it, on copies of the notebooks, in Debian's chromium: `make test-browser`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOTS = ROOT / "build" / "screenshots"
FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update"
TOKEN, PORT = "browser-test", 8917
SECONDS = 240  # a lesson has to run to its end on a slow machine


@pytest.fixture(scope="session")
def work(tmp_path_factory) -> Path:
    """The folder of a learner's copies."""
    return tmp_path_factory.mktemp("learner") / "work"


@pytest.fixture(scope="session")
def server(work, tmp_path_factory) -> Iterator[str]:
    """The address of a running JupyterLab whose root holds work/."""
    home, jupyter = tmp_path_factory.mktemp("home"), str(ROOT / "course_lab" / "jupyter")
    folders = {
        "COURSE_WORK": work,
        "COURSE_HOME": home,
        "JUPYTER_DATA_DIR": home / "data",
        "IPYTHONDIR": home / "ipython",
    }
    environment = {**os.environ, **{name: str(folder) for name, folder in folders.items()}}
    environment |= {
        "JUPYTER_PATH": jupyter,
        "JUPYTER_CONFIG_PATH": jupyter,
        "JUPYTERLAB_SETTINGS_DIR": str(home / "set"),
    }
    environment.pop("COURSE_STRICT", None)
    subprocess.run([sys.executable, "-m", "course_lab", "sync"], env=environment, check=True)
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", f"--port={PORT}"]
    command += [f"--ServerApp.root_dir={work.parent}", f"--IdentityProvider.token={TOKEN}"]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{PORT}/lab"
    try:
        _wait_for(f"http://127.0.0.1:{PORT}/api/status?token={TOKEN}")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            urllib.request.urlopen(address, timeout=5)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """Debian's chromium under Playwright; skipped, with what is missing, where one of them is not there."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which `make test-browser` takes from npm."""
    source = ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
    if not source.exists():
        pytest.skip("no axe-core: npm install --prefix build/axe axe-core")
    return source.read_text()


@pytest.fixture(scope="session")
def frames_notebook(work, server) -> str:
    """A notebook of one cell that shows a carousel."""
    code = "from gfxlab import draw\nfrom gfxlab.draw import Frames\n"
    code += (
        "Frames('Steps', tuple(draw.program_map((98,), [draw.Piece('0', 0, 20 * i)], f'step {i}') for i in (1, 2, 3)))"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, work / "carousel.ipynb")
    return "work/carousel.ipynb"


class Lab:
    """One notebook in one page. Cells are named by their position or by their first line."""

    def __init__(self, page, server: str, name: str) -> None:
        self.page, self.complaints = page, []
        page.set_default_timeout(1000 * SECONDS)
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.goto(f"{server}/tree/{name}?token={TOKEN}&reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_load_state("networkidle")  # keys that are pressed before the page has its commands are lost
        self.idle()
        self.theme("Light")  # the server remembers what the test before has chosen

    def idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        time.sleep(1.0)
        self.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")

    def cell(self, first_line: str):
        return self.page.locator(".jp-Notebook .jp-Cell", has=self.page.locator(".cm-line", has_text=first_line)).first

    def write(self, first_line: str, code: str) -> None:
        """Replace the code of a cell."""
        self.cell(first_line).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(code)

    def start(self, first_line: str):
        """Run a cell and don't wait."""
        cell = self.cell(first_line)
        cell.scroll_into_view_if_needed()
        cell.locator(".jp-InputPrompt").click()
        self.page.keyboard.press("Control+Enter")
        return cell

    def run(self, first_line: str) -> str:
        """Run a cell to its end; what its output says."""
        cell = self.start(first_line)
        self.idle()
        return cell.locator(".jp-OutputArea").first.inner_text()

    def menu(self, *names: str) -> None:
        for depth, name in enumerate(names):
            where = "#jp-MainMenu .lm-MenuBar-item" if depth == 0 else ".lm-Menu-item"
            self.page.locator(where, has_text=name).first.click()

    def count(self, kind: str) -> int:
        """How many outputs there are of a kind: "stderr", "error"."""
        return self.page.locator(f'.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.{kind}"]').count()

    def theme(self, name: str) -> None:
        """Choose JupyterLab's "Light" or "Dark" theme, unless it is that already."""
        chosen = f"body[data-jp-theme-light={'true' if name == 'Light' else 'false'}]"
        if self.page.locator(chosen).count():
            return
        self.menu("Settings", "Theme", f"JupyterLab {name}")
        self.page.wait_for_selector(chosen, state="attached")
        self.page.wait_for_timeout(1500)

    def whole(self) -> None:
        """Have JupyterLab draw the cells that nobody has scrolled to yet, and show the folded outputs."""
        self.menu("View", "Expand All Outputs")
        waiting = self.page.locator(".jp-Notebook .jp-Cell-Placeholder")
        for _ in range(400):
            if not waiting.count():
                return
            waiting.first.scroll_into_view_if_needed()
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{waiting.count()} cells are never drawn")

    def violations(self, axe: str, where: list[str]) -> list[str]:
        """What axe-core has against WCAG 2.2 AA in parts of the page, a line each."""
        self.page.add_style_tag(content="body { height: 100vh }")  # without a height axe takes all of it for hidden
        self.page.evaluate(axe)
        what = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}
        every = [[selector] for selector in where]
        found = self.page.evaluate("([where, only]) => axe.run({include: where}, {runOnly: only})", [every, what])
        assert any(rule["id"] == "color-contrast" for rule in found["passes"]), "axe-core looked at nothing"
        return [
            f"{rule['id']}: {node['html'][:160]} {node['failureSummary'].splitlines()[-1].strip()}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")


@pytest.fixture
def lab(browser, server, request) -> Iterator:
    """Open a notebook: lab("work/notebooks/00_start_here.ipynb", width=1366)."""
    contexts = []

    def open_notebook(name: str, width: int = 1366) -> Lab:
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}))
        return Lab(contexts[-1].new_page(), server, name)

    yield open_notebook
    for context in contexts:
        context.close()
