"""Programs, blocks, masks, grids, strides; bytes and bandwidth; coalesced loads."""

MINUTES = 40  # of reading, without the exercises
