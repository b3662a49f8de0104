"""The values for clusters against the schemas of the charts, which stay outside: CHART names a checkout.

The chart's own `values.yaml` gives what ours leave out, as helm merges them.
"""

from __future__ import annotations

import copy
import os
import subprocess
from pathlib import Path

import pytest
from guide_text import ROOT

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")
FOLDER = ROOT / "workshop" / "kubernetes"
CHART = Path(os.environ.get("CHART", "")) / "jupyterhub"
AUP = Path(os.environ.get("AUP_CHART", "")) / "runtime" / "values.yaml"
needs_chart = pytest.mark.skipif(
    not (CHART / "values.schema.yaml").is_file(), reason="CHART names no checkout of zero-to-jupyterhub-k8s"
)


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def merged(below: dict, above: dict) -> dict:
    """As helm: maps are merged, all else is replaced."""
    result = copy.deepcopy(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else copy.deepcopy(value)
    return result


def complaints(values: dict) -> list[str]:
    schema = read(CHART / "values.schema.yaml")
    errors = jsonschema.Draft7Validator(schema).iter_errors(merged(read(CHART / "values.yaml"), values))
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


@needs_chart
def test_the_values_are_the_charts():
    assert complaints(read(FOLDER / "values.yaml")) == []


@needs_chart
@pytest.mark.parametrize(
    "wrong",
    [{"singeluser": {}}, {"singleuser": {"memory": {"limits": "6G"}}}, {"cull": {"enabled": "yes"}}],
)
def test_a_wrong_name_and_a_wrong_type_are_noticed(wrong):
    assert complaints(merged(read(FOLDER / "values.yaml"), wrong))


def test_a_gpu_is_asked_for_by_the_name_that_amds_plugin_offers():
    cpu, gpu = read(FOLDER / "values.yaml")["singleuser"]["profileList"]
    assert cpu["default"] and "kubespawner_override" not in cpu
    assert gpu["kubespawner_override"]["extra_resource_limits"] == {"amd.com/gpu": "1"}


@pytest.mark.skipif(not AUP.is_file(), reason="AUP_CHART names no checkout of aup-learning-cloud")
def test_the_course_has_what_other_courses_have_there():
    ours, theirs = read(FOLDER / "aup.yaml")["custom"], read(AUP)["custom"]
    for table in ("images", "requirements", "metadata"):
        (added,) = ours["resources"][table].items()
        other = theirs["resources"][table]["Course-LLM"]
        assert type(added[1]) is type(other)
        if isinstance(other, dict):
            assert set(added[1]) <= set(other)
    assert set(ours["teams"]["mapping"]) <= set(theirs["teams"]["mapping"])
    known = theirs["accelerators"]
    assert all(key in known for key in ours["resources"]["metadata"]["Course-Triton"]["acceleratorKeys"])


def test_the_image_keeps_its_torch():
    lines = (FOLDER / "Dockerfile.rocm").read_text().splitlines()
    order = [
        next(n for n, line in enumerate(lines) if part in line) for part in ("torch-before", "-e ./gfxlab", "cmp ")
    ]
    assert order == sorted(order) and any("--constraint" in line for line in lines)
    installed = " ".join(line for line in lines if "pip install" in line)
    assert "rocm" not in installed and "[cpu" not in installed and " torch" not in installed


def shell_lines() -> list[str]:
    """What its RUN steps hand to the shell, continuations joined."""
    text = (FOLDER / "Dockerfile.rocm").read_text().replace("\\\n", " ")
    return [line.removeprefix("RUN ") for line in text.splitlines() if line.startswith("RUN ")]


def test_its_shell_lines_are_bashs():
    assert len(shell_lines()) == 3
    for line in shell_lines():
        assert subprocess.run(["bash", "-n", "-c", line]).returncode == 0, line


@pytest.mark.parametrize(("after", "code"), [("", 0), ("; sed -i 's/==2/==9/' torch-after", 1)])
def test_a_torch_that_has_changed_ends_the_build(tmp_path, after, code):
    """The steps around pip's, with an environment's own list of packages."""
    listed = "numpy==2.0\ntorch==2.10.0+rocm7.2\npytorch-triton-rocm==3.5.0\ntorchvision==0.25"
    (before, *_, compared) = [part.strip() for part in shell_lines()[0].split("&&")]
    last = next(part.strip() for part in shell_lines()[0].split("&&") if part.strip().endswith("torch-after"))
    script = " && ".join((before, last + after, compared)).replace("/opt/", "")
    script = script.replace("python -m pip freeze", f"printf '%b\\n' '{listed}'")
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    kept = (tmp_path / "torch-before").read_text().split()
    assert kept == ["torch==2.10.0+rocm7.2", "pytorch-triton-rocm==3.5.0"]
