"""The order in which programs take the tiles of a matrix: it decides what their caches share.

Both functions only rename tiles: each is a bijection, for every number of tiles.
"""

import triton
import triton.language as tl


@triton.jit
def xcd_remap(pid, programs, XCDS: tl.constexpr):
    """Neighbouring tiles for each of the XCDS dies of the GPU, which each have an L2 cache of their own.

    Programs are handed out in turn, pid % XCDS being the die.  The first `programs % XCDS` dies get one more than the
    others: without that term tiles would be computed twice and others never, unless XCDS divides their number.
    """
    xcd, nth = pid % XCDS, pid // XCDS
    return xcd * (programs // XCDS) + tl.minimum(xcd, programs % XCDS) + nth


@triton.jit
def grouped_tile(pid, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Row and column of a tile, in bands of GROUP_M rows, column by column within a band.

    A square of tiles needs fewer different rows and columns of its operands than a line of as many tiles.
    """
    band, place = pid // (GROUP_M * tiles_n), pid % (GROUP_M * tiles_n)
    rows = tl.minimum(tiles_m - band * GROUP_M, GROUP_M)  # the last band may be lower
    return band * GROUP_M + place % rows, place // rows
