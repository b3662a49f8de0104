"""Tiles, matrix units, LDS and its banks, pipelining, the order of tiles on several dies, fused epilogues; autotune."""

MINUTES = 55  # of reading, without the exercises
CORE_MINUTES = 20  # of these, without what is marked as optional
CORE = ("5.1",)  # the exercises of the short path
