"""A learner's server as that learner's Unix account, in a control group that bounds memory, processors and processes.

Where there are no control groups to write to, limits of the kernel's older kind bound each process instead.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

from jupyterhub.spawner import LocalProcessSpawner
from traitlets import Integer

GROUPS = Path("/sys/fs/cgroup")
_PERIOD = 100_000  # microseconds over which a share of the processors is counted


class LimitedSpawner(LocalProcessSpawner):
    """LocalProcessSpawner that keeps `mem_limit`, `cpu_limit` and `process_limit`."""

    process_limit = Integer(400, help="The most processes and threads of a learner.", config=True)

    def make_preexec_fn(self, name: str) -> Callable[[], None]:
        """What the new process does before it becomes the learner's."""
        become = super().make_preexec_fn(name)
        members = control_groups(name, self.mem_limit, self.cpu_limit, self.process_limit)

        def limited() -> None:
            for file in members:
                file.write_text(str(os.getpid()))
            resource.setrlimit(resource.RLIMIT_NPROC, (self.process_limit, self.process_limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if not members and self.mem_limit:
                resource.setrlimit(resource.RLIMIT_DATA, (self.mem_limit, self.mem_limit))
            become()

        return limited


def control_groups(
    name: str, memory: int | None, processors: float | None, processes: int, groups: Path = GROUPS
) -> list[Path]:
    """The files that a process writes its number to, to be in the learner's bounded groups; [] where there are none.

    memory: bytes of all processes together. processors: how many may be busy on average.
    """
    unified = (groups / "cgroup.controllers").exists()
    limits = _of_version_2(memory, processors, processes) if unified else _of_version_1(memory, processors, processes)
    found = []
    try:
        for controller, files in limits.items():
            parent = groups / controller / "course-hub"
            parent.mkdir(exist_ok=True)
            if unified:
                for folder in (parent.parent, parent):
                    (folder / "cgroup.subtree_control").write_text("+memory +cpu +pids")
            group = parent / name
            group.mkdir(exist_ok=True)
            for file, value in files.items():
                (group / file).write_text(value)
            found.append(group / "cgroup.procs")
    except OSError:
        return []
    return found


def _of_version_1(memory: int | None, processors: float | None, processes: int) -> dict[str, dict[str, str]]:
    """By controller: the files of a group and what to write there."""
    limits = {"pids": {"pids.max": str(processes)}}
    if memory:
        limits["memory"] = {"memory.limit_in_bytes": str(memory)}
    if processors:
        quota = {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": str(int(processors * _PERIOD))}
        limits["cpu"] = quota
    return limits


def _of_version_2(memory: int | None, processors: float | None, processes: int) -> dict[str, dict[str, str]]:
    """As for version 1; all controllers share one tree, whose name is empty."""
    files = {"pids.max": str(processes)}
    if memory:
        files["memory.max"] = str(memory)
    if processors:
        files["cpu.max"] = f"{int(processors * _PERIOD)} {_PERIOD}"
    return {"": files}
