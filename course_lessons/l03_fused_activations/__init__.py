"""SiLU and GELU without overflow, gated halves, dropout by seed, 8-bit floats, autotuning."""

MINUTES = 45  # of reading, without the exercises
CORE_MINUTES = 15  # of these, without what is marked as optional
CORE = ("3.2",)  # the exercises of the short path
