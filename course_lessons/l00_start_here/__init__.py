"""What this machine can do, a first kernel on every engine, the model, how exercises work."""

MINUTES = 20  # of reading, without the exercises
