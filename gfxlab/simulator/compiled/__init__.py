"""Runs of plain instructions, executed by a small C extension where it was built; everything works without it."""
