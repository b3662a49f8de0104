"""Decode: the KV cache, its pages, attention that reads them, and a whole step of the model on your kernels."""

MINUTES = 50  # of reading, without the exercises
CORE_MINUTES = 20  # of these, without what is marked as optional
CORE = ("7.2",)  # the exercises of the short path
