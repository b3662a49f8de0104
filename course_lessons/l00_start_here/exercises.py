# %% [markdown]
# # Exercises 00: start here
#
# Four small exercises that show how the exercises work. Read
# [00 Start here](../notebooks/00_start_here.ipynb) first.
#
# Each answer is one cell. Fill in what is missing and press **Shift + Enter**: the cell is graded at once. `torch`,
# `triton`, `tl` and `math` are given. `%hint 0.1` in a cell of its own gives a hint, `progress()` shows your way.

# %%
import course_lab
from course_lab import progress

# %% [markdown] exercise_header="0.1"
# Multiply every element by two. The kernel already computes its offsets and its mask, and loads the block. One line is
# missing: store the result.
#
# - **Inputs**: `x`, a tensor of any size, float32 or float16
# - **Output**: a new tensor of the same shape and dtype
# - **Definition**: `for i in range(n): y[i] = 2 * x[i]`


# %% exercise="0.1"
@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    ### BEGIN SOLUTION
    tl.store(y_ptr + offs, 2 * x, mask=mask)
    ### END SOLUTION


def double(x):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    double_kernel[grid](x, y, x.numel(), BLOCK=128)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** A store is the mirror image of a load: the same addresses, the same mask. The mask matters more here. A load
# without it reads a stranger's memory; a store without it destroys it.

# %% [markdown] exercise_header="0.2"
# Add a number to every element. This answer is **wrong**. Run it as it is, read the report, and repair it. The report
# names the first wrong element and what the likely mistake is.
#
# - **Inputs**: `x`, a tensor of any size, float32; `c`, a number
# - **Output**: a new tensor of the same shape and dtype
# - **Definition**: `for i in range(n): y[i] = x[i] + c`


# %% exercise="0.2"
@triton.jit
def shift_kernel(x_ptr, y_ptr, c, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, x + c, mask=mask)


def shift(x, c):
    y = torch.empty_like(x)
    n = x.numel()
    ### BEGIN BROKEN
    grid = (n // 128,)
    ### END BROKEN
    ### BEGIN SOLUTION
    grid = (triton.cdiv(n, 128),)
    ### END SOLUTION
    shift_kernel[grid](x, y, c, n, BLOCK=128)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** `n // 128` rounds down. With 200 elements it starts one program, and nobody owns elements 128 to 199.
# `triton.cdiv` rounds up, and the mask takes care of the lanes that are too many. A size that is a multiple of the
# block hides this mistake; that is why every exercise of the course tests sizes that are not.

# %% [markdown] exercise_header="0.3"
# Limit every element to the range from `lo` to `hi`. Try the hints here, even if you need none: `%hint 0.3`.
#
# - **Inputs**: `x`, a tensor of any size, float32; `lo` and `hi`, numbers with `lo <= hi`
# - **Output**: a new tensor of the same shape and dtype
# - **Definition**: `for i in range(n): y[i] = min(max(x[i], lo), hi)`


# %% exercise="0.3"
@triton.jit
def clamp_kernel(x_ptr, y_ptr, lo, hi, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    ### BEGIN SOLUTION
    y = tl.minimum(tl.maximum(x, lo), hi)
    tl.store(y_ptr + offs, y, mask=mask)
    ### END SOLUTION


def clamp(x, lo, hi):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    clamp_kernel[grid](x, y, lo, hi, x.numel(), BLOCK=128)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** There is no `if` for a block: all lanes of a wave execute the same instruction. So a choice is made for
# each lane by computing both sides and selecting one. `tl.maximum` and `tl.minimum` do that in one instruction each.
# Python's own `min` and `max` compare two whole blocks, which has no single answer.

# %% [markdown] exercise_header="0.4"
# The kernel is complete. Write the function that launches it: allocate the output, choose the grid, start the kernel.
#
# - **Inputs**: `x` and `y`, tensors of the same shape, float32
# - **Output**: a new tensor of the same shape and dtype
# - **Definition**: `for i in range(n): out[i] = abs(x[i] - y[i])`


# %% exercise="0.4"
@triton.jit
def distance_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, tl.abs(x - y), mask=mask)


def distance(x, y):
    """|x - y|, element by element."""
    ### BEGIN SOLUTION
    out = torch.empty_like(x)
    n = x.numel()
    grid = (triton.cdiv(n, 256),)
    distance_kernel[grid](x, y, out, n, BLOCK=256)
    return out
    ### END SOLUTION


# %% [markdown] tags=["solution-only"]
# **Why.** `torch.empty_like` allocates without writing: the kernel writes every element anyway, and filling the tensor
# with zeros first would cost a second pass over memory. `BLOCK` appears twice on purpose, in the grid and in the call.
# If the two differ, elements are left out or written twice.
