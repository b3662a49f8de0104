"""Decode: the KV cache, its pages, attention that reads them, and a whole step of the model on your kernels."""

MINUTES = 50  # of reading, without the exercises
