"""Everything in the course that touches Triton's private API, for Triton 3.6 to 3.9.

- `numerics`  repairs the interpreter's bfloat16 and fp8 arithmetic and makes `device_assert` fire
- `operators` reads `and`, `or`, `not`, `min`, `max` and `if` on blocks as the compiler does
- `hooks`     sees every load, store and atomic of an interpreted launch; keeps them inside their tensors
- `variables` reads what the kernel's own variables hold at such a moment
- `dual_mode` interprets and compiles one decorated kernel in one process
- `arguments` takes a launch's arguments apart as the launcher does
- `driver`    stands for a GPU that is not there: Triton's own launch path, ending in a function of ours

Nothing outside this folder imports `triton.runtime.interpreter` or patches a Triton class.
"""
