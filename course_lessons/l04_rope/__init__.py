"""Rotation as geometry, pair styles, strides and positions, packed sequences, angles, in-place hazards; QKV split."""

MINUTES = 45  # of reading, without the exercises
CORE_MINUTES = 20  # of these, without what is marked as optional
CORE = ("4.1",)  # the exercises of the short path
