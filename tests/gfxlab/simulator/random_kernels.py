"""Small random Triton kernels: the text of one, and the inputs that it wants.

Every kernel loads a tile of float32 and one of int32 and puts a few random steps behind each other. All numbers are
small whole ones in float32, so that sums and products are exact and two engines must agree in every bit.
"""

from __future__ import annotations

import random

import torch

HEADER = """import triton
import triton.language as tl


@triton.jit
def larger_of(a, b):
    return tl.maximum(a, b)


@triton.jit
def random_kernel(x_ptr, i_ptr, out_ptr, count_ptr, n, M: tl.constexpr, N: tl.constexpr):
    pid = tl.program_id(0)
    rows = tl.arange(0, M)
    cols = tl.arange(0, N)
    offs = pid * M * N + rows[:, None] * N + cols[None, :]
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=1.0)
    i = tl.load(i_ptr + offs, mask=mask, other=3)
"""
FOOTER = """    tl.store(out_ptr + offs, x, mask=mask)
"""
# After each step x is a whole number of at most 2000, i an integer of 22 bits: the interpreter refuses to overflow.
TAME = ["x = tl.where(tl.abs(x) > 2000.0, x * 0.0 - 7.0, x)", "i = (i & 0x3FFFFF) - 0x1FFFFF"]
ELEMENTWISE = [
    "x = x + {c}.0",
    "x = {c}.0 - x",
    "x = x * {c}.0",
    "x = tl.maximum(x, {c}.0) - tl.minimum(x, -{c}.0)",
    "x = tl.floor(x / 4.0)",
    "x = tl.where(x > {c}.0, x, -x)",
    "x = tl.where((i & {c}) == 0, x, x + 1.0)",
    "x = x.to(tl.float16).to(tl.float32)",
    "x = x.to(tl.bfloat16).to(tl.float32)",
    "x = x + (i % 7).to(tl.float32)",
    "x = x + (x.to(tl.int32) >> 1).to(tl.float32)",
    "x = tl.fma(x, {c}.0, x)",
    "x = x + tl.sqrt((i & 15).to(tl.float32) * (i & 15).to(tl.float32))",
    "x = x + (i.to(tl.int8)).to(tl.float32)",
]
INTEGER = [
    "i = i * {c} + 11",
    "i = i ^ (i >> {c})",
    "i = (i << {c}) | (i & 3)",
    "i = tl.where(i < 0, ~i, i // {c})",
    "i = i.to(tl.int16).to(tl.int32) - x.to(tl.int32)",
    "i = (i.to(tl.uint32, bitcast=True) >> {c}).to(tl.int32, bitcast=True)",
    "i = (i.to(tl.int64) * {c} >> 3).to(tl.int32)",
    "i = tl.minimum(i, 1000) + tl.maximum(i, -1000)",
    "i = tl.umulhi(i.to(tl.uint32, bitcast=True), 0x9E3779B9 + {c}).to(tl.int32, bitcast=True)",
]
REDUCE = [
    "x = x + tl.sum(x, axis={axis}, keep_dims=True)",
    "x = x - tl.max(x, axis={axis}, keep_dims=True)",
    "x = x + tl.min(x, axis={axis}, keep_dims=True)",
    "i = i + tl.sum(i, axis={axis}, keep_dims=True)",
    "i = i ^ tl.xor_sum(i, axis={axis}, keep_dims=True)",
    "i = i + tl.argmax(i, axis={axis}, keep_dims=True)",
    "x = x + tl.reduce(x, {axis}, larger_of, keep_dims=True)",
]
SCAN = [
    "x = tl.cumsum(x, axis={axis})",
    "i = tl.cumsum(i, axis={axis}, reverse=True)",
    "x = tl.associative_scan(x, {axis}, larger_of)",
]
MOVE = [
    "x = tl.trans(tl.trans(x) + 1.0)",
    "x = tl.reshape(tl.reshape(x, (M * N,)) + tl.arange(0, M * N).to(tl.float32) % 3.0, (M, N))",
    "x = tl.flip(x, 0)",
    "x = tl.gather(x, (i & 0x7FFFFFFF) % {size}, axis={axis})",
    "x = tl.load(x_ptr + (i & 0x7FFFFFFF) % n, mask=mask, other=0.0)",
    "x = tl.sort(x, dim=1)",
    "x = x + tl.max(tl.histogram(tl.reshape(i & 15, (M * N,)), 16) * tl.arange(0, 16), axis=0).to(tl.float32)",
]
DOT = [
    "x = tl.sum(tl.dot(x.to(tl.float16), tl.trans(x).to(tl.float16)), axis=1, keep_dims=True) % 512.0 - x",
    "d = tl.dot((i & 3).to(tl.{narrow}), tl.trans(i & 1).to(tl.{narrow}))\nx = x + tl.max(d, axis=1, keep_dims=True)",
    "x = x + tl.dot((i & 3).to(tl.float32), tl.dot(tl.trans(i & 7).to(tl.float32), (i & 1).to(tl.float32)))",
]
BRANCH = [
    "if pid % 2 == {bit}:\n    x = x + 5.0\nelse:\n    x = x - i.to(tl.float32) % 5.0",
    "if tl.sum(tl.sum(x, axis=1), axis=0) > 0:\n    i = i + 1\nelse:\n    x = x * 2.0",
    "for step in range({c}):\n    x = x + step\n    i = i + pid",
    "turns = pid + 1\nwhile turns > 0:\n    x = tl.where(i % 3 == 0, x + 1.0, x)\n    turns -= 1",
    "tl.atomic_add(count_ptr + (i & 7), 1, mask=mask)",
    "tl.atomic_max(count_ptr + 8 + (i & 7), i & 255, mask=mask)",
]
KINDS = (ELEMENTWISE, INTEGER, REDUCE, SCAN, MOVE, DOT, BRANCH)


def text(seed: int) -> tuple[str, dict]:
    """The source of kernel number `seed`, and its constexprs and options."""
    choose = random.Random(seed)
    sizes = {"M": choose.choice([16, 32]), "N": choose.choice([16, 32, 64])}
    lines = []
    for kind in choose.choices(KINDS, weights=(5, 3, 3, 2, 3, 1, 3), k=choose.randint(3, 7)):
        axis = choose.randint(0, 1)
        step = choose.choice(kind).format(
            c=choose.randint(1, 6),
            axis=axis,
            bit=choose.randint(0, 1),
            size=list(sizes.values())[axis],
            # by way of float32: the interpreter cannot convert integers to bfloat16
            narrow=choose.choice(["float16", "float32).to(tl.bfloat16", "int8"]),
        )
        lines += [*step.splitlines(), *TAME]
    body = "".join(f"    {line}\n" for line in lines)
    return HEADER + body + FOOTER, {**sizes, "num_warps": choose.choice([1, 2, 4, 8])}


def arguments(seed: int, sizes: dict, programs: int) -> tuple[torch.Tensor, ...]:
    """x, i, out, count and n for a grid of so many programs, the last of them not full."""
    generator = torch.Generator().manual_seed(seed)
    size = programs * sizes["M"] * sizes["N"] - 5
    x = torch.randint(-50, 50, (size,), generator=generator).float()
    i = torch.randint(-(2**21), 2**21, (size,), generator=generator, dtype=torch.int32)
    return x, i, torch.full((size,), -1.0), torch.zeros(16, dtype=torch.int32), size
