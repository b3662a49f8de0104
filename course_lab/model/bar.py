"""A progress bar for those who watch, nothing for notebooks and scripts that run by themselves."""

from __future__ import annotations

import sys

from tqdm.auto import tqdm


def progress_bar(total: int | None, description: str, unit: str, show: bool) -> tqdm:
    """A tqdm bar that goes away when it is done; hidden unless ``show`` and somebody is watching."""
    hidden = not (show and _somebody_watches())
    return tqdm(total=total, desc=description, unit=unit, leave=False, disable=hidden)


def _somebody_watches() -> bool:
    """Whether a person started this: a terminal, or a notebook cell that could ask for input.

    nbclient and nbval forbid input; that tells a notebook that is being built or tested from one that is being read.
    """
    if "IPython" in sys.modules:
        kernel = getattr(sys.modules["IPython"].get_ipython(), "kernel", None)
        if kernel is not None:
            return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin", False))
    return sys.stderr.isatty()
