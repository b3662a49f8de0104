"""Reductions, float32 accumulation, fusing the residual add, long rows; LayerNorm."""

MINUTES = 45  # of reading, without the exercises
CORE_MINUTES = 20  # of these, without what is marked as optional
CORE = ("2.2",)  # the exercises of the short path
