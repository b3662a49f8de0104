"""`pytest --gfx-arch gfx942`: a test suite written for a GPU, unmodified, on a pretended one.

pytest finds this by the distribution's entry point in every run; without the option it imports nothing and does
nothing. What a launch does wrong is a warning of the test; `-W error::gfxlab.pretended.Hazard` fails the test instead.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gfxlab.simulator.show.run import Run

_PRETENCE = pytest.StashKey["_Pretence"]()
_COUNTED = "gfxlab"  # the key under which a process of pytest-xdist hands its counts on


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gfxlab")
    group.addoption("--gfx-arch", metavar="ARCH", help="pretend an AMD GPU: gfx90a, gfx942, gfx950, gfx1100, gfx1201")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before conftest.py and the tests are imported: some ask for the GPU while they are."""
    arch = early_config.known_args_namespace.gfx_arch
    if arch:
        early_config.stash[_PRETENCE] = _Pretence(arch)


def pytest_unconfigure(config: pytest.Config) -> None:
    if pretence := config.stash.get(_PRETENCE, None):
        pretence.leave()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a process of pytest-xdist: its counts go to the one that reports."""
    pretence, output = session.config.stash.get(_PRETENCE, None), getattr(session.config, "workeroutput", None)
    if pretence and output is not None:
        output[_COUNTED] = [dict(pretence.launches), pretence.instructions, pretence.hazards]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process of pytest-xdist has ended."""
    pretence, counted = node.config.stash.get(_PRETENCE, None), getattr(node, "workeroutput", {}).get(_COUNTED)
    if pretence and counted:
        pretence.add(*counted)


def pytest_report_header(config: pytest.Config) -> str | None:
    pretence = config.stash.get(_PRETENCE, None)
    return pretence and f"gfxlab: pretending {pretence.card}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if pretence := config.stash.get(_PRETENCE, None):
        terminalreporter.write_line(f"gfxlab: {pretence.summary()}")


class _Pretence:
    """The GPU of one pytest run, and what its launches did."""

    def __init__(self, arch: str):
        from gfxlab import hardware

        if arch not in hardware.LIMITS:
            raise pytest.UsageError(f"--gfx-arch {arch} is unknown: use one of {', '.join(hardware.LIMITS)}")
        from gfxlab.pretended import CannotPretend, pretend

        self.card = f"{hardware.card(arch).name} ({arch})"
        self.launches: Counter[str] = Counter()
        self.instructions = self.hazards = 0
        self._open = contextlib.ExitStack()
        try:
            self._open.enter_context(pretend(arch, self._seen))
        except (CannotPretend, RuntimeError) as error:
            raise pytest.UsageError(f"--gfx-arch {arch}: {error}") from None

    def _seen(self, run: Run) -> None:
        from gfxlab.pretended.gpu import warn

        self.add({run.compiled.name: 1}, run.instructions, len(run.wrong))
        warn(run)

    def add(self, launches: dict[str, int], instructions: int, hazards: int) -> None:
        """Count launches, by kernel."""
        self.launches.update(launches)
        self.instructions += instructions
        self.hazards += hazards

    def leave(self) -> None:
        self._open.close()

    def summary(self) -> str:
        """What was launched, in one line."""
        from gfxlab.units import format_count

        often = f"{format_count(self.launches.total(), 'launch')} of {format_count(len(self.launches), 'kernel')}"
        found = format_count(self.hazards, "hazard")
        return f"{self.card} pretended: {often}, {self.instructions:,} wave-instructions, {found}"
