"""What a kernel really did: every load and store of an interpreted launch, as a ledger, a picture, an AMD report.

with trace() as launch:
    add_kernel[(4,)](x, y, out, n, BLOCK=1024)
launch.ledger()                       # bytes read and written, against the least possible
launch.picture("out_ptr")             # which program touched which element
launch.amd_report(arch="gfx942")      # the machine code for these arguments
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gfxlab.bound import Launch
from gfxlab.engine import hooks, variables
from gfxlab.engine.hooks import Access
from gfxlab.tracing.counts import Counts
from gfxlab.tracing.launches import TracedLaunch

MAX_LANES = 1 << 22  # lanes whose accesses are kept, in one `with` block; the ledger counts on


def trace(max_lanes: int = MAX_LANES, watch: Sequence[str] = ()) -> Trace:
    """Record the launches inside a `with` block. Works for kernels on CPU tensors, which are interpreted.

    Args:
        max_lanes: beyond so many lanes accesses are counted in the ledger, but no longer kept for pictures.
        watch: names of the kernel's variables whose numbers are kept at each access, in `launch.watched`.
    """
    return Trace(max_lanes, tuple(watch))


class Trace:
    """The launches of a `with trace()` block. What is asked of it is asked of the first; `[i]` selects another."""

    def __init__(self, max_lanes: int, watch: tuple[str, ...] = ()) -> None:
        self.launches: list[TracedLaunch] = []
        self.watch = watch
        self._room = max_lanes
        self._observing: Any = None

    def __enter__(self) -> Trace:
        self._observing = hooks.observe(_Observer(self))
        self._observing.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._observing.__exit__(*error)

    def __len__(self) -> int:
        return len(self.launches)

    def __iter__(self) -> Iterator[TracedLaunch]:
        return iter(self.launches)

    def __getitem__(self, index: int) -> TracedLaunch:
        if not self.launches:
            raise ValueError(
                "no launch was traced: inside `with trace() as launch:` launch a kernel on CPU tensors "
                "(on a GPU nobody watches the loads)"
            )
        return self.launches[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self[0], name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.launches)) or "no launch traced"

    __repr__ = __str__


class _Observer:
    def __init__(self, owner: Trace) -> None:
        self.owner = owner

    def on_launch(self, launch: Launch) -> None:
        counts = {name: Counts.of(name, tensor) for name, tensor in launch.tensors.items()}
        self.owner.launches.append(TracedLaunch(launch, counts=counts))

    def on_access(self, access: Access) -> None:
        current = self.owner.launches[-1]
        if access.tensor is None:
            current.masked_everywhere += access.mask.size
        else:
            x, y, z = access.program
            width, height, _ = current.grid
            current.counts[access.tensor].add(access, x + width * (y + height * z))
        if access.mask.size > self.owner._room:
            current.left_out += 1
            return
        self.owner._room -= access.mask.size
        current.accesses.append(access)
        current.watched.append(variables.values(self.owner.watch))
