"""Rotation as geometry, pair styles, strides and positions, packed sequences, angles, in-place hazards; QKV split."""

MINUTES = 40  # of reading, without the exercises
