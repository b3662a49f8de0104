"""Softmax block by block, attention in one kernel, exp2, causal tiles, LSE, fully masked rows; the gradient of q."""

MINUTES = 45  # of reading, without the exercises
CORE_MINUTES = 20  # of these, without what is marked as optional
CORE = ("6.2",)  # the exercises of the short path
