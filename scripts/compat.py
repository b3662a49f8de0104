"""`make compat`: run the instruments' tests and the notebooks on every Triton that the course supports.

Each version is laid over the environment that runs this script: its wheel, and an older numpy where it needs one, go
into a folder under .venv-compat/ that stands first on the path. Results are kept in compat.json beside
course_lab/authoring/build/compat.py and shown as a table in README.md.

    python scripts/compat.py                     # everything, two suites at a time
    python scripts/compat.py 3.6.0               # one version, and keep what is known of the others
    python scripts/compat.py 3.6.0 3.9.0 trace   # one suite on two versions
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from course_lab.authoring.build import compat, repository_pages

ROOT = Path(__file__).resolve().parents[1]
OVERLAYS = ROOT / ".venv-compat"
SECONDS = 3600  # for one suite on one version
AT_ONCE = min(2, os.cpu_count() or 1)  # each takes a core, and 2 GB at times
NOT_TIMED = "not takes_less_than"  # tests of speed say nothing about a version

VERSIONS = {"3.6.0": ["numpy>=2.0,<2.4"], "3.7.1": [], "3.8.0": [], "3.9.0": []}  # Triton: what else it needs
NOTEBOOKS_ON = ("3.6.0", "3.9.0")  # the oldest and the newest
SUITES = {  # heading of a column: arguments for pytest, in the root of the repository
    "engines": ["tests/gfxlab/engine", "tests/kernels/test_backend.py", "tests/kernels/test_remembered.py"],
    "trace": ["tests/gfxlab/test_trace*.py"],
    "check": ["tests/lab/test_check*.py", "tests/gfxlab/test_sandbox.py"],
    "AMD report": ["tests/gfxlab/test_amd*.py"],
    "simulator": ["tests/gfxlab/simulator/test_simulat*.py", "tests/gfxlab/simulator/test_stepper.py"],
    "kernels": ["tests/kernels"],
    "solutions": ["--nbval", "solutions"],
    "notebooks": ["--nbval", "notebooks"],
}
VARIABLES = {"kernels": {"TRITON_INTERPRET": "1"}}  # nobody else switches the repairs of the interpreter on there


def main(arguments: list[str]) -> int:
    unknown = [word for word in arguments if word not in VERSIONS and word not in SUITES]
    if unknown:
        print(f"Unknown: {', '.join(unknown)}. Known are {', '.join((*VERSIONS, *SUITES))}.", file=sys.stderr)
        return 2
    suites = [name for name in SUITES if name in arguments] or list(SUITES)
    run([version for version in VERSIONS if version in arguments] or list(VERSIONS), suites)
    results = compat.stored()
    for path, text in repository_pages.pages():
        path.write_text(text, encoding="utf-8")
    print(compat.table(results))
    return int(any(suite["failed"] for row in results.values() for suite in row["suites"].values()))


# ---- running ---------------------------------------------------------------------------------------------------------


def run(versions: list[str], suites: list[str]) -> None:
    """Run the suites on these versions of Triton, and keep each result as soon as it is there."""
    environments = {version: environment_of(version) for version in versions}
    seen = {version: about(environment) for version, environment in environments.items()}
    for version in versions:
        if seen[version]["triton"] != version:
            raise SystemExit(f"Triton {seen[version]['triton']} was imported instead of {version}.")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = {
            pool.submit(run_suite, version, name, environments[version]): (version, name)
            for name in reversed(suites)  # the last ones are the longest
            for version in versions
            if name != "notebooks" or version in NOTEBOOKS_ON
        }
        for job in as_completed(jobs):
            version, name = jobs[job]
            keep(version, seen[version], name, job.result())


def keep(version: str, versions: dict[str, str], name: str, result: dict) -> None:
    """Put a result into the file, beside those of other versions and of suites that were not run now."""
    results = compat.stored()
    suites = {**results.get(version, {"suites": {}})["suites"], name: result}
    results[version] = {"about": versions, "suites": {name: suites[name] for name in SUITES if name in suites}}
    compat.STORED.write_text(json.dumps({v: results[v] for v in VERSIONS if v in results}, indent=1) + "\n")


def environment_of(version: str) -> dict[str, str]:
    """The environment variables of a process that sees this Triton."""
    path = os.pathsep.join(map(str, (*make_overlay(version), ROOT)))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def make_overlay(version: str) -> list[Path]:
    """The folder to put first on the path; none for what this environment has already."""
    needs = VERSIONS[version]
    if metadata.version("triton") == version and not needs:
        return []
    folder = OVERLAYS / version
    if not folder.exists():
        OVERLAYS.mkdir(exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=OVERLAYS))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        try:
            subprocess.run([*pip, "--target", str(unfinished), f"triton=={version}", *needs], check=True)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return [folder]


def about(environment: dict[str, str]) -> dict[str, str]:
    """The versions that a process in this environment sees, and the date."""
    names = ("triton", "torch", "numpy")
    code = f"from importlib.metadata import version; print(*map(version, {names!r}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    versions = dict(zip(names, done.stdout.split()))
    return {**versions, "python": platform.python_version(), "date": datetime.now(UTC).strftime("%Y-%m-%d")}


def run_suite(version: str, name: str, environment: dict[str, str]) -> dict:
    """Run one suite on one version, and say how it went."""
    started = time.monotonic()
    result = run_tests(SUITES[name], {**environment, **VARIABLES.get(name, {})})
    lines = [f"Triton {version}, {name}: {compat.cell(result)} in {time.monotonic() - started:.0f} s"]
    print("\n    ".join([*lines, *result["failures"]]), flush=True)
    return result


def run_tests(arguments: list[str], environment: dict[str, str]) -> dict:
    """Numbers of tests that passed, failed and were skipped, and the names of those that failed."""
    paths = [str(p.relative_to(ROOT)) for a in arguments if "*" in a for p in sorted(ROOT.glob(a))]
    plain = [a for a in arguments if "*" not in a]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            NOT_TIMED,
            f"--junitxml={report}",
        ]
        try:
            done = subprocess.run(
                [*command, *plain, *paths], cwd=ROOT, env=environment, timeout=SECONDS, capture_output=True, text=True
            )
            ran = done.returncode in (0, 1) and report.exists()  # other statuses: nothing collected, or it broke off
            problem = "" if ran else (done.stdout + done.stderr).strip()[-300:] or f"status {done.returncode}"
        except subprocess.TimeoutExpired:
            problem = f"not finished after {SECONDS} s"
        if problem:
            return {"passed": 0, "failed": 1, "skipped": 0, "failures": [problem]}
        return counted(report.read_text(encoding="utf-8"))


def counted(junit: str) -> dict:
    """The figures of a JUnit report."""
    result = {"passed": 0, "failed": 0, "skipped": 0, "failures": []}
    for case in ElementTree.fromstring(junit).iter("testcase"):
        kinds = {child.tag for child in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        result[kind] += 1
        if kind == "failed":
            result["failures"].append(f"{case.get('classname')}::{case.get('name')}")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
