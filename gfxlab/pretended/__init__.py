"""A pretended AMD GPU: code written for a GPU runs unmodified on a machine without one.

    from gfxlab.pretended import pretend
    with pretend("gfx942"):
        x = torch.randn(1000, device="cuda")
        add_kernel[(4,)](x, x, x, 1000, BLOCK=256)  # executed as gfx942's machine code

PyTorch's operations run on the CPU, Triton's launches on the simulator.
"""

from gfxlab.pretended.gpu import Hazard, pretend

__all__ = ["Hazard", "pretend"]
