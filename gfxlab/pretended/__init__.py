"""A pretended AMD GPU: code written for a GPU runs unmodified on a machine without one.

    with gfxlab.pretend("gfx942"):
        x = torch.randn(1000, device="cuda")
        add_kernel[(4,)](x, x, x, 1000, BLOCK=256)  # executed as gfx942's machine code

PyTorch's operations run on the CPU, Triton's launches on the simulator. `gfxlab run` does it to a script,
`pytest --gfx-arch` to a test suite.
"""

from gfxlab.pretended.attaching import CannotPretend
from gfxlab.pretended.gpu import Hazard, pretend

__all__ = ["CannotPretend", "Hazard", "pretend"]
