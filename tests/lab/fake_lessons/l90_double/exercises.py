"""One exercise to write and one to repair."""

# %% [markdown]
# # Exercises: doubling
#
# `%hint 90.1` gives a hint.

# %%
import torch
import triton
import triton.language as tl

import course_lab

# %% [markdown] exercise_header="90.1"
# **Input** `x [N]`. **Output** `y [N]`, $y = 2x$.


# %% exercise="90.1"
@triton.jit
def double_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """Program p doubles elements p * BLOCK to (p + 1) * BLOCK - 1."""
    ### BEGIN SOLUTION
    # the last program's block hangs over the end
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, 2 * x, mask=mask)
    ### END SOLUTION


def double(x):
    y = torch.empty_like(x)
    ### BEGIN SOLUTION
    double_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    ### END SOLUTION
    return y


# %% [markdown] tags=["solution-only"]
# Without the mask, the last program would write behind the end of `y`.

# %% [markdown] exercise_header="90.2"
# This kernel is broken. Repair it.


# %% exercise="90.2"
@triton.jit
def halve_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    ### BEGIN BROKEN
    tl.store(y_ptr + offs, x / 2)
    ### END BROKEN
    ### BEGIN SOLUTION
    tl.store(y_ptr + offs, x / 2, mask=mask)
    ### END SOLUTION


def halve(x):
    y = torch.empty_like(x)
    halve_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


# %% [markdown]
# That is all.
