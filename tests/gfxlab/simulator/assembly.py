"""Launch a few lines of assembly as a whole kernel."""

from __future__ import annotations

import torch

from gfxlab.bound import Value
from gfxlab.code.compiler import Compiled
from gfxlab.simulator.core.launch import execute
from gfxlab.simulator.show.run import Run

_FRAME = """\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
.Lfunc_begin0:
\t.file\t1 "/nowhere" "kernel.py"
{code}
\ts_endpgm
.Lfunc_end0:
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_system_sgpr_workgroup_id_x 1
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args: [{args}]
    .kernarg_segment_size: {argument_bytes}
    .name: kernel
    .private_segment_fixed_size: {scratch}
...
"""


def compiled(
    code: str, *, tensors: int = 0, lds: int = 0, waves: int = 1, scratch: int = 0, arch: str = "gfx942"
) -> Compiled:
    """A kernel of these instructions: s[0:1] the arguments' address, s2 the program's number, v0 the thread's.

    A line `# 7` says that what follows was made for line 7 of the source. Labels are named .LBB...
    """
    lines = [line.strip() for line in code.splitlines() if line.strip()]
    text = [f"\t.loc\t1 {line[2:]} 0" if line[0] == "#" else line if line[0] == "." else f"\t{line}" for line in lines]
    args = [f"{{.offset: {8 * i}, .size: 8, .value_kind: global_buffer}}" for i in range(tensors)]
    asm = _FRAME.format(
        arch=arch, code="\n".join(text), args=", ".join(args), argument_bytes=8 * tensors, scratch=scratch
    )
    return Compiled("kernel", arch, asm, lds, waves, 1, {"/nowhere/kernel.py": {7: "seven()", 8: "eight()"}})


def launch(
    code: str, *tensors: torch.Tensor, grid: int = 1, limit: int = 10_000, outputs=(), profile: bool = True, **facts
) -> Run:
    """Run it; the tensors are called t0, t1, ..."""
    values = [Value(f"t{i}", "*i8", tensor) for i, tensor in enumerate(tensors)]
    kernel = compiled(code, tensors=len(tensors), **facts)
    return execute(kernel, (grid, 1, 1), values, max_instructions=limit, outputs=outputs, profile=profile)
