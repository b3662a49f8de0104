"""What this machine can do, a first kernel on every engine, the model, how exercises work."""

MINUTES = 15  # of reading, without the exercises
