"""Capstone: the model on your kernels, as machine code of AMD GPUs, talking, and serving several chats at once"""

MINUTES = 22  # of reading, without the exercises
