"""SiLU and GELU without overflow, gated halves, dropout by seed, 8-bit floats, autotuning."""

MINUTES = 40  # of reading, without the exercises
