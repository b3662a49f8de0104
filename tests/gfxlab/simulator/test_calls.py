"""Functions that are called, data beside the code, and what kernels print."""

import pytest
import torch
import triton
import triton.language as tl
from assembly import launch

from gfxlab.engine import dual_mode
from gfxlab.simulator import SimulationError, simulate
from gfxlab.simulator.core import constants
from gfxlab.simulator.core.hostcall import formatted

compiles = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")
ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@triton.jit(noinline=True)
def plus_one(x):
    return x + 1


@triton.jit(noinline=True)
def scaled(x_ptr, factor):
    offs = tl.arange(0, 64)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) * factor)
    return plus_one(factor)


@triton.jit
def calling_kernel(x_ptr, y_ptr):
    pid = tl.program_id(0)
    y = plus_one(pid.to(tl.float32))
    if pid % 2 == 0:
        y = scaled(x_ptr + 64 * pid, y)
    tl.store(y_ptr + pid, y)


@compiles
@pytest.mark.parametrize(
    "arch", [arch if arch in ("gfx90a", "gfx942") else pytest.param(arch, marks=pytest.mark.slow) for arch in ARCHS]
)
def test_functions_that_are_called(arch):
    x, y = torch.ones(4 * 64), torch.zeros(4)
    run = simulate(calling_kernel, (4,), (x, y), arch=arch)
    assert y.tolist() == [2, 2, 4, 4] and run.wrong == ()
    assert x.reshape(4, 64)[:, ::63].tolist() == [[1, 1], [1, 1], [3, 3], [1, 1]]


@triton.jit
def printing_kernel(x_ptr):
    tl.device_print("x:", tl.load(x_ptr + tl.program_id(0)))


@compiles
@pytest.mark.parametrize("arch", ARCHS)
def test_device_print_by_program(arch, capsys):
    simulate(printing_kernel, (3,), (torch.tensor([5, -6, 7], dtype=torch.int32),), arch=arch, num_warps=1)
    lines = dict.fromkeys(capsys.readouterr().out.splitlines())
    assert list(lines) == [f"pid ({i}, 0, 0) idx () x: {number}" for i, number in enumerate((5, -6, 7))]


@triton.jit
def asserting_kernel(x_ptr):
    tl.device_assert(tl.load(x_ptr + tl.program_id(0)) < 5, "five is too many")


@compiles
@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_device_assert_stops_the_launch_with_its_text(arch, capsys):
    x = torch.tensor([1, 9, 2], dtype=torch.int32)
    simulate(asserting_kernel, (1,), (x,), arch=arch, num_warps=1, debug=True)
    with pytest.raises(SimulationError, match=r"program 1 stops the launch \(line \d+: tl.device_assert"):
        simulate(asserting_kernel, (3,), (x,), arch=arch, num_warps=1, debug=True)
    assert "five is too many" in capsys.readouterr().err


FAR = """
    s_mov_b32 s6, 0
    .LBB0_1:
    s_add_i32 s6, s6, 1
    s_cmp_lt_u32 s6, 5
    s_cbranch_scc0 .LBB0_2
    s_getpc_b64 s[8:9]
    .Lpost_getpc0:
    s_add_u32 s8, s8, (.LBB0_1-.Lpost_getpc0)&4294967295
    s_addc_u32 s9, s9, (.LBB0_1-.Lpost_getpc0)>>32
    s_setpc_b64 s[8:9]
    s_mov_b32 s6, 0
    .LBB0_2:
    s_load_dwordx2 s[10:11], s[0:1], 0x0
    v_mov_b32_e32 v1, 0
    v_mov_b32_e32 v2, s6
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[10:11]"""


def test_a_jump_that_is_too_far_for_a_branch():
    """Kernels of more than 128 KiB go round their loops so, forwards and backwards."""
    x = torch.zeros(1, dtype=torch.int32)
    run = launch(FAR, x)
    assert x.item() == 5 and run.instructions == 1 + 5 * 3 + 4 * 4 + 5 + 1


def test_c_formats():
    def words(*parts):
        return b"".join(parts)

    five, minus = (5).to_bytes(8, "little"), (2**64 - 3).to_bytes(8, "little")
    assert formatted(words(b"a %d%%, %5lld|\0\0", five, minus)) == "a 5%,    -3|"
    assert (
        formatted(words(b"%u %x\0\0\0", (2**32 - 1).to_bytes(8, "little"), (255).to_bytes(8, "little")))
        == "4294967295 ff"
    )
    assert formatted(words(b"%s!\0\0\0\0\0", b"eight by", b"tes\0\0\0\0\0")) == "eight bytes!"
    assert formatted(words(b"%.2f %p\0", b"\0\0\0\0\0\0\xf8\x3f", five)) == "1.50 0x5"


def test_constant_data():
    asm = """
\t.type\ttext,@object ; @text
text:
\t.ascii\t"a\\tb; \\"\\377"
\t.size\ttext, 6
\t.type\ttable,@object
table:
\t.long\t1, 0x10
\t.short\t65535
\t.zero\t2
\t.size\ttable, 12
\t.byte\t1 ; debug information, no object
"""
    data, addresses = constants.read(asm)
    assert data[:6] == b'a\tb; "\xff'[:6] and len(data) == 64 + 12
    assert data[64:] == b"\x01\0\0\0\x10\0\0\0\xff\xff\0\0"
    assert addresses == {"text": constants.DATA, "table": constants.DATA + 64}
