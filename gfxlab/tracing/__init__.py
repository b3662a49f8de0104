"""What the launches of a piece of code read and wrote, on the interpreter; and what PyTorch would launch (`eager`)."""

from gfxlab.tracing.launches import TracedLaunch
from gfxlab.tracing.ledger import Ledger
from gfxlab.tracing.recording import Trace, trace

__all__ = ["Ledger", "Trace", "TracedLaunch", "trace"]
