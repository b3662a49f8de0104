"""What this machine can do, a first kernel on every engine, the model, how exercises work."""

MINUTES = 20  # of reading, without the exercises
CORE_MINUTES = 18  # of these, without what is marked as optional
CORE = ("0.1", "0.2", "0.3", "0.4")  # the exercises of the short path
