"""Run a notebook from top to bottom in a fresh kernel of this Python."""

from __future__ import annotations

import os
import subprocess
import tempfile
from copy import deepcopy
from pathlib import Path

from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from course_lab.authoring.build import outputs
from course_lab.authoring.build.files import BuildError, place

CELL_SECONDS = 600


class _ThisPython(KernelSpecManager):
    """Finds the kernel of the running interpreter, whatever kernels a user has registered under its name."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())


class _Kernel(AsyncKernelManager):
    def __init__(self, **options) -> None:
        super().__init__(**{**options, "kernel_spec_manager": _ThisPython()})


def execute(notebook: NotebookNode, folder: Path, *, strict: bool, name: str) -> None:
    """Execute `notebook` with `folder` as working directory and normalise its outputs.

    `strict`: an exercise that isn't solved raises. `BuildError` names the cell that raised, died or took too long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    metadata = deepcopy(notebook.metadata)
    current: list[NotebookNode] = []
    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_manager_class=_Kernel,
            resources={"metadata": {"path": str(folder)}},
            record_timing=False,
            store_widget_state=False,
            on_cell_start=lambda cell, cell_index: current.append(cell),
        )
        try:
            client.execute(env=_environment(home, strict), stderr=subprocess.DEVNULL)
        except CellExecutionError as error:
            raise BuildError(f"{name}, {place(notebook, current[-1])} raised {error.ename}: {error.evalue}") from error
        except (CellTimeoutError, DeadKernelError) as error:
            how = "killed its kernel" if isinstance(error, DeadKernelError) else f"took over {CELL_SECONDS} s"
            raise BuildError(f"{name}, {place(notebook, current[-1])} {how}.") from error
    notebook.metadata = metadata  # nbclient notes the exact version of Python there
    outputs.normalise(notebook)


def _environment(home: str, strict: bool) -> dict[str, str]:
    """The author's settings must not show in stored outputs: no progress of theirs, no engine forced."""
    environment = {key: value for key, value in os.environ.items() if key not in ("TRITON_INTERPRET", "COURSE_STRICT")}
    environment |= {"COURSE_HOME": home, "PYTHONHASHSEED": "0"}
    return environment | ({"COURSE_STRICT": "1"} if strict else {})
