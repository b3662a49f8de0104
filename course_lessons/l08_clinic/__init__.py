"""Twelve kernels that pass their tests and are wrong: finding out why, with every instrument, and the repair"""

MINUTES = 25  # of reading, without the exercises
REQUIRED = ("8.1", "8.2", "8.3", "8.4", "8.5", "8.6")  # the other patients are for those who want more
