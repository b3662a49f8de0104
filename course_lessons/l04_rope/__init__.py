"""RoPE in every layout: pairs, strides, positions, packed sequences, angles, in-place hazards; fused QKV split."""

MINUTES = 40  # of reading, without the exercises
