"""Softmax block by block, attention in one kernel, exp2, causal tiles, LSE, fully masked rows; the gradient of q."""

MINUTES = 45  # of reading, without the exercises
