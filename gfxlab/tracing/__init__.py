"""What the launches of a piece of code read and wrote, on the interpreter; and what PyTorch would launch (`eager`)."""

from gfxlab.tracing.launches import Ledger, Trace, TracedLaunch, trace

__all__ = ["Ledger", "Trace", "TracedLaunch", "trace"]
