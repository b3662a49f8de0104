"""Two vectors added by a Triton kernel on "cuda", as on any machine with a GPU; nothing here knows of gfxlab."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y, a block of `BLOCK` elements a program."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def main() -> None:
    """Add, compare with PyTorch, and say on what it ran."""
    x, y = torch.randn(10_000, device="cuda"), torch.randn(10_000, device="cuda")
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    torch.testing.assert_close(out, x + y)
    about = torch.cuda.get_device_properties(0)
    print(f"{x.numel():,} sums are right on {about.name} ({about.gcnArchName}, {about.multi_processor_count} CUs)")


if __name__ == "__main__":
    main()
