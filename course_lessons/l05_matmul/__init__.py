"""Tiles, matrix units, LDS and its banks, pipelining, the order of tiles on several dies, fused epilogues; autotune."""

MINUTES = 50  # of reading, without the exercises
