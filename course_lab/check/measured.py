"""The child's half of the instruments: a case of a right answer once more, watched, and its heaviest kernel compiled.

It knows the answer and the inputs.  What the figures are compared with is the parent's business (see `instruments`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from course_lab.check import answer, child
from gfxlab import draw
from gfxlab.code import AmdError
from gfxlab.engine import hooks
from gfxlab.strides import Strided
from gfxlab.tracing import TracedLaunch, trace

_MOST_FRAMES = 8  # of a picture with steps


def measure(payload: dict[str, Any]) -> dict[str, Any]:
    """Run the answer on the one case of `payload` (see `child.run_cases`) and say how well it did.

    payload: as for a check, and "arch" to compile for, "picture" (the name of a function of `gfxlab.draw`, or "").

    Returns:
        {"launches": how many, "moved" and "least": bytes of the whole call, "programs"
        and "idle": how many, and how many of them stored nothing, "waste": sentences, "blind": why nothing
        was watched, or "", "amd": an `AmdReport` as JSON or None, "refused": why there is none, "picture": {"text",
        "html"} or None}.
    """
    job = child.start(payload)
    _, entry = child.define(job)
    args = job.cases[0]
    with trace() as recorded:
        result = entry(*args)
    own = [launch for launch in recorded if launch.kernel.__code__.co_filename == answer.filename(job.number)]
    if not own:
        raise ValueError("no kernel ran")
    ledgers = [launch.ledger() for launch in own]
    moved = [ledger.bytes for ledger in ledgers]
    main = own[moved.index(max(moved))]
    outputs = [*child.tensors(result)[0], *(args[position] for position in job.inplace)]
    amd, refused = _compiled(main, payload["arch"])
    return {
        "launches": len(own),
        "moved": sum(moved),
        "least": least_bytes(own, [a for a in args if isinstance(a, torch.Tensor)], outputs),
        "programs": sum(launch.programs for launch in own),
        "idle": sum(map(_idle, own)),
        "waste": [note for ledger in ledgers for note in ledger.notes()],
        "blind": hooks.unseen(),
        "amd": amd,
        "refused": refused,
        "picture": _picture(main, payload["picture"]),
    }


def _idle(launch: TracedLaunch) -> int:
    """Programs that stored nothing; 0 where not every access was kept."""
    busy = {access.program for access in launch.accesses if access.kind != "load" and access.mask.any()}
    return 0 if launch.left_out else launch.programs - len(busy)


def least_bytes(launches: list[TracedLaunch], inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> int:
    """The least that one call can move: what its launches read of the inputs and all of the outputs, each byte once.

    What one launch leaves for the next is neither: a single kernel could have kept it in registers.
    """
    return _touched(launches, inputs, "load") + _touched(launches, outputs, "store")


def _touched(launches: list[TracedLaunch], tensors: Iterable[torch.Tensor], kind: str) -> int:
    """Bytes of these tensors' storages that any launch touched."""
    wanted = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    seen: dict[tuple[int, int], np.ndarray] = {}
    for launch in launches:
        for name in launch.tensors:
            tensor = launch.tensor(name)
            storage, size = tensor.untyped_storage(), tensor.element_size()
            if storage.data_ptr() not in wanted:
                continue
            touched = seen.setdefault((storage.data_ptr(), size), np.zeros(storage.nbytes() // size, bool))
            times = launch.times(name, kind)
            start = tensor.storage_offset()
            touched[start : start + times.size] |= (times > 0) & Strided.of(tensor).exists()
    return sum(int(touched.sum()) * size for (_, size), touched in seen.items())


def _compiled(launch: TracedLaunch, arch: str) -> tuple[dict[str, Any] | None, str]:
    """The machine code's figures, or a sentence on why there are none; that is no fault of the answer's numbers."""
    try:
        return launch.amd_report(arch).as_json(), ""
    except AmdError as error:
        return None, str(error)
    except Exception as error:  # a Triton without its AMD part, or one that nobody has tried
        return None, f"This Triton does not compile for {arch}: {str(error).partition('. ')[0]}."


def _picture(launch: TracedLaunch, name: str) -> dict[str, str] | None:
    """The picture of the exercise's family; where it does not fit, which program stored which element."""
    for make in (getattr(draw, name, None), TracedLaunch.picture):
        try:
            drawn = make(launch) if make and not hooks.unseen() else None
        except (ValueError, KeyError):  # the answer names its arguments in another way
            continue
        if isinstance(drawn, draw.Frames):
            drawn = drawn[:_MOST_FRAMES]
        if drawn is not None:
            return {"text": str(drawn), "html": drawn._repr_html_()}
    return None
