"""Where the program is and what time it is: s_getpc, s_memtime, s_memrealtime, s_sendmsg_rtn.

Nothing here has a clock. Time goes on with every instruction that is issued, so that who waits for a time sees it come.
"""

from __future__ import annotations

from gfxlab.simulator.core import constants
from gfxlab.simulator.core.numbers import U32
from gfxlab.simulator.core.program import Decoded
from gfxlab.simulator.core.state import Waves
from gfxlab.simulator.instructions.common import NotInTable, Step, Target

_TICKS = {"s_memtime": 4, "s_memrealtime": 1, "s_sendmsg_rtn_b64": 1}  # an instruction
_CLOCK = "sendmsg(MSG_RTN_GET_REALTIME)"


def build(name: str, instruction: Decoded, target: Target) -> Step:
    """The function that executes one of them; the result is a pair of scalar registers."""
    result = instruction.operands[0].index
    if name == "s_getpc_b64":
        address = constants.code_address(instruction.index + 1)
        return lambda w: _write(w, result, address)
    if name not in _TICKS or name == "s_sendmsg_rtn_b64" and _CLOCK not in instruction.modifiers:
        raise NotInTable(name)
    ticks = _TICKS[name]
    return lambda w: _write(w, result, ticks * w.clock)


def _write(w: Waves, register: int, number: int) -> None:
    w.write_scalar(w.S[:, register], U32(number & 0xFFFFFFFF))
    w.write_scalar(w.S[:, register + 1], U32(number >> 32))
