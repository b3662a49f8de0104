"""The wrapper as a contract, gradients, operators, layers, tests that can fail, benchmarks, profiling, tuning"""

MINUTES = 40  # of reading, without the exercises
