"""Accesses to LDS of which it is known that there is nothing to say of them: the extension does them by itself.

Watchers look at every access to LDS. But a loop does the same in every turn, and so do all workgroups: whether there is
something to say of an access depends on its addresses and on the *state* of its workgroup, a number for what it did
since its last barrier (see `watch.intervals`). So after a step of Python has told the watchers of an access, the
extension is taught which state it led to, and does the same access in the same state without them.
"""

from __future__ import annotations

import numpy as np

from gfxlab.simulator.compiled.extension import EXTENSION
from gfxlab.simulator.core.state import Waves
from gfxlab.simulator.instructions.local_data import LocalAccess


class Known:
    """What is known of the accesses of one batch of workgroups. states: of each, int64; negative ones are not known."""

    def __init__(self, w: Waves, states: np.ndarray):
        self.states = states
        place = w.lds.size, w.lds.pitch, w.waves_per_group, w.lanes
        self.capsule = EXTENSION.known(w.lds.content, states, *place)


def usable(w: Waves) -> object | None:
    """What the extension may make use of now; None: watchers want to be told of every access."""
    if w.mask is not None:
        return None
    watch = _watch(w)
    if watch is None or not watch.may_skip(w):
        return None
    return _known(w, watch.states()).capsule


def look(w: Waves, access: LocalAccess) -> None:
    """Do an access by its step, and teach what it led to."""
    watch = _watch(w)
    if watch is None or w.mask is not None:
        access(w)
        return
    places = access.places(w)
    before = _state(w, watch.states())
    access(w)
    after = _state(w, watch.states())
    if before < 0 or after < 0:
        return
    patterns = [w.lds.pattern(place) for place in places]
    written = [pattern and watch.written(pattern, access.width) for pattern in patterns]
    if all(one is not None for one in written):
        capsule = _known(w, watch.states()).capsule
        words = patterns[0].register, before, after, tuple(written) if access.writes else ()
        EXTENSION.teach(capsule, access.instruction.index, *words)


def _watch(w: Waves):
    """The only one who looks at LDS, if that one can tell of states."""
    return w.watchers[0].local_watch() if len(w.watchers) == 1 else None


def _known(w: Waves, states: np.ndarray) -> Known:
    known = w.lds.known
    if known is None or known.states is not states:
        known = w.lds.known = Known(w, states)
    return known


def _state(w: Waves, states: np.ndarray) -> int:
    """The state of all workgroups of the window, negative if they differ."""
    found = states[w.window.start // w.waves_per_group : -(-w.window.stop // w.waves_per_group)]
    return int(found[0]) if (found == found[0]).all() else -1
