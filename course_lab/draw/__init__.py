"""Pictures as static SVG: what programs touch, how lanes meet cache lines, where bytes go, which roof applies.

Each function returns a `Picture`, or `Frames`, which are pictures to step through: a notebook shows them, `print()`
gives the same facts as text.
"""

from course_lab.draw.bars import bytes_bar
from course_lab.draw.causal_map import causal_map
from course_lab.draw.curves import curves
from course_lab.draw.fp8_line import fp8_line
from course_lab.draw.frames import Frames
from course_lab.draw.lanes import cache_lines, lanes
from course_lab.draw.matrix_unit import matrix_unit
from course_lab.draw.online_softmax import online_softmax
from course_lab.draw.paged_cache import paged_cache
from course_lab.draw.program_map import Piece, program_map
from course_lab.draw.reduction import reduction
from course_lab.draw.relative_turns import relative_turns
from course_lab.draw.reuse import reuse_map
from course_lab.draw.roofline import Point, roofline
from course_lab.draw.rope_pairs import rope_pairs
from course_lab.draw.svg import Picture
from course_lab.draw.tile_walk import tile_walk
from course_lab.draw.token_layouts import token_layouts

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
