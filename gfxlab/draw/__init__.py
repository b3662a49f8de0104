"""Pictures as static SVG: what programs touch, how lanes meet cache lines, where bytes go, which roof applies.

Each function returns a `Picture`, or `Frames`, which are pictures to step through: a notebook shows them, `print()`
gives the same facts as text.
"""

from gfxlab.draw.bars import bytes_bar
from gfxlab.draw.causal_map import causal_map
from gfxlab.draw.curves import curves
from gfxlab.draw.fp8_line import fp8_line
from gfxlab.draw.frames import Frames
from gfxlab.draw.lanes import cache_lines, lanes
from gfxlab.draw.matrix_unit import matrix_unit
from gfxlab.draw.online_softmax import online_softmax
from gfxlab.draw.paged_cache import paged_cache
from gfxlab.draw.program_map import Piece, program_map
from gfxlab.draw.reduction import reduction
from gfxlab.draw.relative_turns import relative_turns
from gfxlab.draw.reuse import reuse_map
from gfxlab.draw.roofline import Point, roofline
from gfxlab.draw.rope_pairs import rope_pairs
from gfxlab.draw.svg import Picture
from gfxlab.draw.tile_walk import tile_walk
from gfxlab.draw.token_layouts import token_layouts

__all__ = [
    "Frames",
    "Picture",
    "Piece",
    "Point",
    "bytes_bar",
    "cache_lines",
    "causal_map",
    "curves",
    "fp8_line",
    "lanes",
    "matrix_unit",
    "online_softmax",
    "paged_cache",
    "program_map",
    "reduction",
    "relative_turns",
    "reuse_map",
    "roofline",
    "rope_pairs",
    "tile_walk",
    "token_layouts",
]
