"""Programs, blocks, masks, grids, strides; bytes and bandwidth; coalesced loads."""

MINUTES = 40  # of reading, without the exercises
CORE_MINUTES = 20  # of these, without what is marked as optional
CORE = ("1.1", "1.2")  # the exercises of the short path
