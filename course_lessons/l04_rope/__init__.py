"""Rotation as geometry, pair styles, strides and positions, packed sequences, angles, in-place hazards; QKV split."""

MINUTES = 45  # of reading, without the exercises
