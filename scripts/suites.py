"""The table of another project's test suite on pretended GPUs, in docs/suites.md.

    python scripts/suites.py                         the table anew from docs/suites.json
    python scripts/suites.py RESULTS.jsonl ...       the counts anew from these runs, then the table

A line of RESULTS is one test that ended: {"target": "gfx942", "id": "test/test_rope.py::test_it[8]", "outcome":
"passed", "why": ""}; outcomes are pytest's, and "timeout" for what a time limit cut off. Of a test that ran several
times the last line counts, but for a time limit after an outcome. The reasons in docs/suites.json are kept.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA, PAGE = ROOT / "docs" / "suites.json", ROOT / "docs" / "suites.md"
BEGIN, END = "<!-- the table of scripts/suites.py -->\n", "<!-- its end -->\n"
_NOT_RUN = (("skipped", "skip themselves"), ("timeout", "over the time limit"))


def counted(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """{"functions": {target: test functions that ended}, "tests": {file: {target: {outcome: tests}}}}."""
    last: dict[tuple[str, str], str] = {}
    for line in lines:
        key = line["target"], line["id"]
        if line["outcome"] != "timeout" or key not in last:
            last[key] = line["outcome"]
    files: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    functions: dict[str, set[str]] = defaultdict(set)
    for (target, test), outcome in last.items():
        files[test.partition("::")[0]][target][outcome] += 1
        if outcome != "timeout":
            functions[target].add(test.partition("[")[0])
    tests = {file: {target: dict(by[target]) for target in sorted(by)} for file, by in sorted(files.items())}
    return {"functions": {target: len(ended) for target, ended in sorted(functions.items())}, "tests": tests}


def table(data: dict[str, Any]) -> str:
    """Markdown: a row for each file, passed and failed on each target, and why."""
    targets = sorted(data["functions"], key=lambda target: int(target.removeprefix("gfx"), 16))
    head = [f"| tests | {' | '.join(f'{target}: passed, failed' for target in targets)} | why |"]
    head.append(f"|---|{'---|' * len(targets)}---|")
    rows = [
        _row(Path(file).name, by, targets, data["why"].get(Path(file).name, "")) for file, by in data["tests"].items()
    ]
    whole = {
        target: sum((Counter(by.get(target, {})) for by in data["tests"].values()), Counter()) for target in targets
    }
    functions = " and ".join(f"{data['functions'][target]:,}" for target in targets)
    last = _row("all", whole, targets, f"of {data['all_functions']} test functions {functions} ran").replace("`", "")
    return "\n".join([*head, *rows, last]) + "\n"


def _row(name: str, by: dict[str, dict[str, int]], targets: list[str], why: str) -> str:
    cells = [f"{by.get(t, {}).get('passed', 0):,}, {by.get(t, {}).get('failed', 0)}" for t in targets]
    notes = []
    for outcome, words in _NOT_RUN:
        numbers = [by.get(target, {}).get(outcome, 0) for target in targets]
        if any(numbers):
            notes.append(f"{' and '.join(map(str, dict.fromkeys(numbers)))} {words}")
    return f"| `{name}` | {' | '.join(cells)} | {'; '.join([*notes, *([why] if why else [])])} |"


def page(data: dict[str, Any]) -> str:
    """docs/suites.md with this table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + table(data) + END + rest.partition(END)[2]


def main(paths: list[str]) -> None:
    data = json.loads(DATA.read_text(encoding="utf-8"))
    if paths:
        data |= counted([json.loads(line) for path in paths for line in Path(path).read_text().splitlines()])
        DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(data), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
