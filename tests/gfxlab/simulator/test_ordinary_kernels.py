"""Ordinary kernels that an instruction's odd form goes into: each computes what NumPy does, on every target."""

import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gfxlab.engine import dual_mode
from gfxlab.simulator import simulate

pytestmark = pytest.mark.skipif(dual_mode.env_interpret(), reason="TRITON_INTERPRET=1 cannot compile")
ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]
N = 128


def one_of_five(function):
    """Quick on one target; `make test-full` takes the others."""
    return pytest.mark.one_in(5)(pytest.mark.parametrize("arch", ARCHS)(function))


def run(kernel, arch, *arguments, **options):
    done = simulate(kernel, (1,), arguments, arch=arch, profile=False, **options)
    assert done.wrong == ()


def integers(dtype, *shape, seed=0):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


@triton.jit
def halves_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, (x & 0xFFFF) + (x >> 16))


@one_of_five
def test_halves_of_a_word(arch):
    x, y = integers(np.int32, N), torch.zeros(N, dtype=torch.int32)
    run(halves_kernel, arch, torch.from_numpy(x), y, N)
    assert (y.numpy() == (x & 0xFFFF) + (x >> 16)).all()


@triton.jit
def clamped_kernel(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    tl.store(z_ptr + offs, tl.clamp(x * y, 0.0, 1.0))


@one_of_five
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16], ids=str)
def test_a_clamped_product(arch, dtype):
    x, y = torch.linspace(-3, 3, N).to(dtype), torch.linspace(2, 0.25, N).to(dtype)
    z = torch.zeros_like(x)
    run(clamped_kernel, arch, x, y, z, N)
    assert torch.allclose(z.float(), (x.float() * y.float()).to(dtype).clamp(0, 1).float(), rtol=2**-7, atol=0)
    assert z.min() == 0 and z.max() == 1


@triton.jit
def narrow_kernel(x_ptr, y_ptr, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, tl.maximum(x, y))
    tl.store(out_ptr + N + offs, tl.minimum(x, y))
    tl.store(out_ptr + 2 * N + offs, (x < y).to(x.dtype))
    tl.store(out_ptr + 3 * N + offs, x >> (y & 7).to(x.dtype))
    tl.store(out_ptr + 4 * N + offs, (x << (y & 7).to(x.dtype)).to(x.dtype))


@one_of_five
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16], ids=lambda dtype: dtype.__name__)
def test_narrow_integers(arch, dtype):
    x, y = integers(dtype, N, seed=1), integers(dtype, N, seed=2)
    out = torch.zeros(5, N, dtype=torch.from_numpy(x).dtype)
    run(narrow_kernel, arch, torch.from_numpy(x), torch.from_numpy(y), out, N)
    some = (y & 7).astype(dtype)
    wanted = [np.maximum(x, y), np.minimum(x, y), (x < y).astype(dtype), x >> some, (x << some).astype(dtype)]
    assert (out.numpy() == np.stack(wanted)).all()


@triton.jit
def sums_from_the_end_kernel(x_ptr, y_ptr, M: tl.constexpr):
    offs = tl.arange(0, M)[:, None] * 2 + tl.arange(0, 2)[None, :]
    tl.store(y_ptr + offs, tl.cumsum(tl.load(x_ptr + offs), 0, reverse=True))


@one_of_five
def test_sums_from_the_end(arch):
    x = torch.randint(-9, 10, (1024, 2), generator=torch.Generator().manual_seed(0)).float()
    y = torch.zeros(1024, 2)
    run(sums_from_the_end_kernel, arch, x, y, 1024)
    assert torch.equal(y, x.flip(0).cumsum(0).flip(0))


@triton.jit
def doubles_kernel(x_ptr, y_ptr, k_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    y = tl.where(x > 2.0, x * 0.5 + 1.1, tl.where(x < -4.0, 1.0, x - 0.15915494309189532))
    tl.store(y_ptr + offs, y)
    bits = x.to(tl.int64, bitcast=True)
    tl.store(k_ptr + offs, (bits & 0x4000000000000000) | (bits ^ 0x3FF0000000000000) & 0xFFFF | (bits >> 60))


@one_of_five
def test_constants_of_64_bits(arch):
    x = np.random.default_rng(3).standard_normal(N) * 4
    y, k = torch.zeros(N, dtype=torch.float64), torch.zeros(N, dtype=torch.int64)
    run(doubles_kernel, arch, torch.from_numpy(x), y, k, N, enable_fp_fusion=False)
    assert (y.numpy() == np.where(x > 2, x * 0.5 + 1.1, np.where(x < -4, 1.0, x - 0.15915494309189532))).all()
    bits = x.view(np.int64)
    wanted = (bits & 0x4000000000000000) | (bits ^ 0x3FF0000000000000) & 0xFFFF | (bits >> 60)
    assert (k.numpy() == wanted).all()


@triton.jit
def pairs_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(y_ptr + offs, tl.maximum((x * 2 + 1) - 4, (x * x) - 8))


@one_of_five
@pytest.mark.parametrize("dtype", [np.float16, np.int16, np.uint16, np.float32], ids=lambda dtype: dtype.__name__)
def test_constants_beside_pairs(arch, dtype):
    x = np.random.default_rng(4).integers(0 if dtype is np.uint16 else -30, 30, 4 * N).astype(dtype)
    y = torch.zeros(4 * N, dtype=torch.from_numpy(x).dtype)
    run(pairs_kernel, arch, torch.from_numpy(x), y, 4 * N, num_warps=1)
    assert (y.numpy() == np.maximum((x * 2 + 1) - 4, (x * x) - 8)).all()


@triton.jit
def widened_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, tl.load(x_ptr + 3 * offs).to(tl.int16) * 3 - 1)


@one_of_five
def test_signed_bytes_in_half_words(arch):
    x, y = integers(np.int8, 3 * N), torch.zeros(N, dtype=torch.int16)
    run(widened_kernel, arch, torch.from_numpy(x), y, N)
    assert (y.numpy() == x[::3].astype(np.int16) * 3 - 1).all()


@triton.jit
def narrowed_kernel(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(z_ptr + offs, x.to(tl.float8e5).to(tl.float32))
    tl.store(y_ptr + offs, x.to(tl.float16))


@one_of_five
def test_float16_and_float8_of_numbers_that_are_too_large(arch):
    """Triton's conversions to float8 may set MODE.FP16_OVFL for good: then float16 saturates as well."""
    x = torch.linspace(-1e6, 1e6, N)
    y, z = torch.zeros(N, dtype=torch.float16), torch.zeros(N)
    run(narrowed_kernel, arch, x, y, z, N)
    text = simulate(narrowed_kernel, (1,), (x, y, z, N), arch=arch).program.text
    saturates = re.search(r"s_setreg\S* hwreg\(HW_REG\w*_MODE, 23, 1\), 1", text)
    largest = 65504.0 if saturates else float("inf")
    beyond = x.abs() >= 65520
    assert torch.equal(y[beyond].float(), x.sign()[beyond] * largest) and torch.equal(y[~beyond], x.half()[~beyond])


@triton.jit
def quotients_kernel(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) / tl.load(y_ptr + offs))


@one_of_five
@pytest.mark.parametrize("dtype", [np.float16, np.float64], ids=lambda dtype: dtype.__name__)
def test_quotients(arch, dtype):
    chance = np.random.default_rng(5)
    x, y = (chance.standard_normal(N) * 10.0 ** chance.integers(-3, 4, N) for _ in range(2))
    x, y = x.astype(dtype), y.astype(dtype)
    x[:6], y[:6] = [0, 1, -1, np.inf, np.nan, 5], [3, 0, 0, 2, 1, np.inf]
    z = torch.zeros(N, dtype=torch.from_numpy(x).dtype)
    run(quotients_kernel, arch, torch.from_numpy(x), torch.from_numpy(y), z, N)
    with np.errstate(all="ignore"):
        assert np.array_equal(z.numpy(), x / y, equal_nan=True)


@triton.jit
def bits_kernel(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    count = tl.zeros((N,), tl.int32)
    for k in tl.static_range(0, 64, 7):
        count += ((x >> k) & 0x1F).to(tl.int32) * (k + 1)
    first = tl.load(x_ptr)  # of the scalar unit
    tl.store(y_ptr + offs, count + ((first << 5) >> 11).to(tl.int32))


@one_of_five
def test_fields_of_64_bits(arch):
    x, y = integers(np.int64, N, seed=6), torch.zeros(N, dtype=torch.int32)
    run(bits_kernel, arch, torch.from_numpy(x), y, N)
    wanted = sum(((x >> k) & 0x1F) * (k + 1) for k in range(0, 64, 7)) + ((x[0] << 5) >> 11)
    assert (y.numpy() == wanted.astype(np.int32)).all()


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    rows, columns, ks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, K, STEP):
        a = tl.load(a_ptr + rows[:, None] * K + first + ks[None, :])
        total = tl.dot(a, tl.load(b_ptr + (first + ks)[:, None] * N + columns[None, :]), total)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


@pytest.mark.slow
def test_a_product_of_256_by_256_by_eight_waves_in_two_stages():
    """The standard configuration on gfx942: half of the waves run a barrier ahead of the others."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-4, 5, shape, generator=generator).half() for shape in ((256, 256), (256, 256)))
    c = torch.zeros(256, 256)
    run(product_kernel, "gfx942", a, b, c, 256, M=256, N=256, STEP=64, num_warps=8, num_stages=2)
    assert torch.equal(c, a.float() @ b.float())
