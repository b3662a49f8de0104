"""SiLU and GELU without overflow, gated halves, dropout by seed, 8-bit floats, autotuning."""

MINUTES = 45  # of reading, without the exercises
