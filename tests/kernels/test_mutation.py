"""The kernels' tests against mistakes that nobody chose: mutation operators on every file of the package.

`make test` tries a fixed sample, each mutant on the test that killed it when the sample was drawn.  `make test-full`
tries all on all tests, which takes hours of processor time; `MUTATION_EVERY=40` a part, `MUTATION_WORKERS=8` in so many
processes.
"""

import json
import os

import kernel_mutants
import pytest
from kernel_mutants import NOTHING, SAMPLE

from course_lab.authoring.operators import generate

EVERY = int(os.environ.get("MUTATION_EVERY", "1"))
WORKERS = int(os.environ.get("MUTATION_WORKERS", "1"))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_every_mutant_is_killed_or_argued():
    left = [str(one) for one in kernel_mutants.judge(kernel_mutants.sources(), EVERY, workers=WORKERS) if one.survives]
    assert not left, "\n".join(left)


def test_a_sample_is_killed():
    """And the files as they are pass the same tests, so that a mutant dies of its mistake."""
    chosen = json.loads(SAMPLE.read_text(encoding="utf-8"))
    texts = {name: kernel_mutants.text(name) for name in sorted({one["source"] for one in chosen})}
    made = {(name, one.operator, one.says): one for name, text in texts.items() for one in generate(text)}
    known = [(one["source"], made.get((one["source"], one["operator"], one["says"]))) for one in chosen]
    assert sum(mutant is not None for _, mutant in known) >= 0.8 * len(known), "draw the sample anew: kernel_mutants.py"
    asked = [{"source": name, "operator": NOTHING, "code": text} for name, text in texts.items()]
    asked += [{"source": name, "operator": one.operator, "code": one.code} for name, one in known if one]
    said = kernel_mutants.verdicts(asked, sorted({one["by"] for one in chosen}))
    assert {one["verdict"] for one in said[: len(texts)]} == {"survived"}
    passed = [asked[one["mutant"]]["operator"] for one in said[len(texts) :] if one["verdict"] != "killed"]
    assert not passed
