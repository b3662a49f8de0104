"""The machine: state, memory, operands, the executor, and a launch on it."""
