"""Reductions, float32 accumulation, fusing the residual add, long rows; LayerNorm."""

MINUTES = 45  # of reading, without the exercises
