"""Pictures as static SVG: what programs touch, how lanes meet cache lines, where bytes go, which roof applies.

Each function returns a `Picture`, or `Frames`, which are pictures to step through: a notebook shows them, `print()`
gives the same facts as text.
"""

from gfxlab.draw.bars import bytes_bar
from gfxlab.draw.cache_pages import paged_cache
from gfxlab.draw.coalescing import cache_lines, lanes
from gfxlab.draw.frames import Frames
from gfxlab.draw.function_plots import curves
from gfxlab.draw.masks import causal_map
from gfxlab.draw.matrix_tiles import matrix_unit
from gfxlab.draw.number_lines import fp8_line
from gfxlab.draw.pairs import rope_pairs
from gfxlab.draw.program_maps import Piece, program_map
from gfxlab.draw.reductions import reduction
from gfxlab.draw.reuse import reuse_map
from gfxlab.draw.roofs import Point, roofline
from gfxlab.draw.softmax_steps import online_softmax
from gfxlab.draw.svg import Picture
from gfxlab.draw.token_orders import token_layouts
from gfxlab.draw.turns import relative_turns
from gfxlab.draw.walks import tile_walk

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
