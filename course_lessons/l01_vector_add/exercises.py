# %% [markdown]
# # Exercises 01: Vector add
#
# Six exercises on kernels that move data and do little else. Read [01 Vector add](../notebooks/01_vector_add.ipynb)
# first. Exercise 1.2 is the kernel of the lesson, 1.4 is the first operation that the model runs for every token, and
# 1.6 is for those who want more. Together they take about 70 minutes.
#
# Each answer is one cell. `torch`, `triton`, `tl` and `math` are given. Press **Shift + Enter** to have it graded.
# `%hint 1.1` gives the next of three hints, `%solution 1.1` shows a solution after three real attempts, and
# `progress()` shows how far you are.

# %%
import course_lab
from course_lab import model, my_kernel, progress

# %% [markdown] exercise_header="1.1"
# A warm-up: multiply one vector by a number and add another. Program, block and mask are given. Write what happens in
# between: two loads, the arithmetic, one store. Rung 4 rounded once with one input; here there are two.
#
# - **Inputs**: `x` and `y` of the same shape and dtype, float32 or bfloat16; `alpha`, a number
# - **Output**: a new tensor of the same shape and dtype
# - **Definition**:
#
#   ```python
#   for i in range(n):
#       z[i] = alpha * x[i] + y[i]
#   ```
#
# Compute in float32 and round once, at the store.


# %% exercise="1.1"
@triton.jit
def scale_and_add_kernel(x_ptr, y_ptr, z_ptr, alpha, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    z = alpha * x + y
    tl.store(z_ptr + offs, z.to(z_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def scale_and_add(x, y, alpha):
    z = torch.empty_like(x)
    n = x.numel()
    scale_and_add_kernel[(triton.cdiv(n, 256),)](x, y, z, alpha, n, BLOCK=256)
    return z


# %% [markdown] tags=["solution-only"]
# **Why.** Two operations follow each other here, so there is something between them that could be rounded. In bfloat16
# the product keeps 8 bits. When `y` nearly cancels it, those lost bits are all that would have been left. Widening
# both inputs straight after the load moves no more bytes, and the instruction or two that it takes hide behind the
# memory.
#
# The store names no dtype. It asks the tensor that it writes to: `z_ptr.dtype.element_ty`. One kernel then serves every
# dtype.

# %% [markdown] exercise_header="1.2"
# The kernel of the lesson, from an empty page. You decide how many elements a program takes.
#
# - **Inputs**: `x` and `y` of the same shape and dtype, contiguous, any number of elements
# - **Output**: a new tensor of the same shape and dtype
# - **Definition**:
#
#   ```python
#   for i in range(n):
#       z[i] = x[i] + y[i]
#   ```
#
# No lane may touch memory outside the three tensors, in any case.


# %% exercise="1.2"
@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """One program, BLOCK elements."""
    ### BEGIN SOLUTION
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(z_ptr + offs, (x + y).to(z_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def add(x, y):
    z = torch.empty_like(x)
    ### BEGIN SOLUTION
    n = x.numel()
    add_kernel[(triton.cdiv(n, 1024),)](x, y, z, n, BLOCK=1024)
    ### END SOLUTION
    return z


# %% [markdown] tags=["solution-only"]
# **Why.** Two decisions belong together. The grid is rounded *up*, so that somebody owns every element. Then the last
# program owns lanes that no element belongs to, and the mask switches exactly those off. Either decision alone is
# wrong: rounding down loses the tail, and rounding up without a mask writes past it.
#
# The same `mask` stands in all three accesses because they use the same `offs`. `other=0.0` changes nothing in the
# result, since masked lanes are never stored. It is there because a masked lane without it holds an undefined value,
# and the day somebody adds a sum to this kernel that value would count.

# %% [markdown] exercise_header="1.3"
# A tensor in PyTorch is a start address and one **stride** for each dimension: how many elements lie between
# neighbours. `x.T`, `x[:, 3:40]` and `x[:, ::2]` move no data; they only carry other strides. Write the kernel that
# `.contiguous()` runs: copy any 2-D view into a fresh, dense tensor. The grid has two dimensions, and each program
# copies a tile: `offs_m[:, None]` is a column, `offs_n[None, :]` a row, and their sum a tile.
#
# - **Inputs**: `x` of shape `(M, N)`, any strides, float32 or bfloat16
# - **Output**: a new contiguous tensor with the same shape, dtype and values
# - **Definition**, with `x_memory` and `y_memory` the flat memory from the first element on:
#
#   ```python
#   for m in range(M):
#       for n in range(N):
#           y_memory[m * N + n] = x_memory[m * stride_xm + n * stride_xn]
#   ```


# %% exercise="1.3"
@triton.jit
def copy_kernel(x_ptr, y_ptr, M, N, stride_xm, stride_xn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """One program, a tile of BLOCK_M rows and BLOCK_N columns."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ### BEGIN SOLUTION
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn, mask=mask, other=0.0)
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], x, mask=mask)
    ### END SOLUTION


def copy(x):
    M, N = x.shape
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    ### BEGIN SOLUTION
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 64))
    copy_kernel[grid](x, y, M, N, x.stride(0), x.stride(1), BLOCK_M=16, BLOCK_N=64)
    ### END SOLUTION
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** `offs_m[:, None]` is a column, `offs_n[None, :]` a row, and their sum is a tile of offsets: the same
# broadcasting as in PyTorch. Every index is multiplied by *its own* stride. Once that holds, transposed views, slices
# and repeated rows need no case of their own; the strides carry all of it.
#
# The mask needs both conditions. A lane to the right of the last column has a perfectly valid address: that of the next
# row's first element.
#
# On a GPU the views differ in one respect, speed. Lanes that are neighbours in the tile are neighbours in memory only
# if `stride_xn` is 1. For the transposed view each lane of the load reads from another cache line, as in the lesson's
# picture for stride 576.

# %% [markdown] exercise_header="1.4"
# The first thing that a language model does with a token: look up its row in a table. SmolLM2 has 49152 rows of 576.
# Which address to read is not known until the kernel runs: it stands in memory itself. (A load from a single address
# gives a single number.)
#
# - **Inputs**: `x` of shape `(V, N)`, unit stride in the last dimension, rows perhaps further apart than `N`, so that a
#   row may begin more than 2^31 numbers behind the first; `index` of shape `(T,)`, int64 or int32, every value from 0
#   to V − 1, repetitions allowed
# - **Output**: a new contiguous tensor of shape `(T, N)`, dtype of `x`
# - **Definition**:
#
#   ```python
#   for i in range(T):
#       for c in range(N):
#           y[i, c] = x[index[i], c]
#   ```


# %% exercise="1.4"
@triton.jit
def gather_kernel(x_ptr, index_ptr, y_ptr, stride_xm, N, BLOCK: tl.constexpr):
    """One program, one row of y."""
    i = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    ### BEGIN SOLUTION
    row = tl.load(index_ptr + i).to(tl.int64)
    mask = cols < N
    x = tl.load(x_ptr + row * stride_xm + cols, mask=mask, other=0.0)
    tl.store(y_ptr + i * N + cols, x, mask=mask)
    ### END SOLUTION


def gather_rows(x, index):
    T, N = len(index), x.shape[1]
    y = torch.empty((T, N), dtype=x.dtype, device=x.device)
    gather_kernel[(T,)](x, index, y, x.stride(0), N, BLOCK=triton.next_power_of_2(N))
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** Two different rows occur in this kernel: the program's own number `i` says where to *write*, the number that
# it finds in `index[i]` says where to *read*. `tl.load(index_ptr + i)` is a load of one element; it needs no mask,
# because there is exactly one program for each index.
#
# The conversion to int64 comes before the multiplication. With an int32 index the product would be computed in 32 bits,
# and a table of 49152 rows may well be 49152 elements wide: 2.4 billion, which does not fit. The wrong address would be
# negative, and only for rows near the end of the table.
#
# Reading scattered rows is still fast. Inside a row, neighbouring lanes read neighbouring elements; only the start
# jumps.

# %% [markdown] exercise_header="1.5"
# This residual add came from a model whose hidden size is 1024, where it had worked for years. In SmolLM2, with 576,
# the last tokens come out wrong. **There is more than one mistake, and the first one hides the second.** Repair the
# code. Change as little as you can: there is no need for a new kernel.
#
# - **Inputs**: `x` and `residual` of shape `(T, N)`, same dtype, contiguous
# - **Output**: a new tensor, `x + residual`


# %% exercise="1.5"
@triton.jit
def residual_add_kernel(x_ptr, residual_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ### BEGIN BROKEN
    mask = offs <= n
    ### END BROKEN
    ### BEGIN SOLUTION
    mask = offs < n
    ### END SOLUTION
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, (x + residual).to(y_ptr.dtype.element_ty), mask=mask)


def residual_add(x, residual):
    y = torch.empty_like(x)
    n = x.numel()
    ### BEGIN BROKEN
    grid = (n // 1024,)
    ### END BROKEN
    ### BEGIN SOLUTION
    grid = (triton.cdiv(n, 1024),)
    ### END SOLUTION
    residual_add_kernel[grid](x, residual, y, n, BLOCK=1024)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** `n // 1024` rounds down. With a hidden size of 1024 every size is a whole number of blocks, nothing is left
# over, and nobody could notice. With 576, up to 1023 elements at the end have no program.
#
# The mask has been wrong as well: the last element is `n - 1`, so `offs <= n` lets one lane too many through. As long
# as the grid was rounded down, no program ever reached element `n`. The repair of the first mistake woke the second:
# one element is written behind the tensor. The values that are returned are right all the same, so a test that compares
# results passes, and some other tensor is damaged. That is why the check looks at *memory* and not only at results.
#
# After each repair, ask what the code that now runs for the first time has never been tested with.

# %% [markdown] exercise_header="1.6"
# A fusion. GPT-2 and most vision transformers add a bias after a projection and then the residual stream: two kernels
# in PyTorch, which read and write the intermediate sum for nothing. Do both in **one** launch.
#
# - **Inputs**: `x` and `residual` of shape `(T, N)` and the same dtype, float32 or bfloat16, unit stride in the last
#   dimension, rows perhaps further apart than `N`, and not the same distance in both; `bias` of shape `(N,)`, same
#   dtype
# - **Output**: a new contiguous tensor of shape `(T, N)`, same dtype
# - **Definition**:
#
#   ```python
#   for t in range(T):
#       for c in range(N):
#           y[t, c] = x[t, c] + bias[c] + residual[t, c]
#   ```
#
# Compute in float32 and round once. Count the bytes before you start: composed, the two additions move 5 matrices;
# fused, they move 3.


# %% exercise="1.6"
@triton.jit
def bias_residual_add_kernel(
    x_ptr, residual_ptr, bias_ptr, y_ptr, T, N, stride_xm, stride_rm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """One program, a tile of BLOCK_M rows and BLOCK_N columns. y is contiguous."""
    ### BEGIN SOLUTION
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (offs_m < T) & (offs_n < N)
    x = tl.load(x_ptr + offs_m * stride_xm + offs_n, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + offs_m * stride_rm + offs_n, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    y = x + bias + residual
    tl.store(y_ptr + offs_m * N + offs_n, y.to(y_ptr.dtype.element_ty), mask=mask)
    ### END SOLUTION


def bias_residual_add(x, residual, bias):
    T, N = x.shape
    y = torch.empty((T, N), dtype=x.dtype, device=x.device)
    ### BEGIN SOLUTION
    grid = (triton.cdiv(T, 8), triton.cdiv(N, 128))
    bias_residual_add_kernel[grid](x, residual, bias, y, T, N, x.stride(0), residual.stride(0), BLOCK_M=8, BLOCK_N=128)
    ### END SOLUTION
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** The bias is loaded as one row, `(1, BLOCK_N)`, with a mask of its own, and broadcast over the rows of the
# tile by the addition. It is read from memory once for each tile, not once for each element, and it stays in the cache
# between tiles.
#
# Each tensor has its own row stride. Using one of them for both works as long as both come straight out of a matrix
# product, and fails the first time one of them is a slice.
#
# The sum of three is rounded once. Rounding after the first addition, as the composed version does, loses up to half a
# unit in the last place of the intermediate, which is a lot when the residual then cancels it.

# %% [markdown]
# ## Your kernels in the model
#
# The next cell puts your answers to 1.2 and 1.4 into SmolLM2: 1.4 looks up the tokens, 1.2 does the 60 residual adds of
# every forward pass. An answer that has not passed yet is left out, and PyTorch does its work.

# %% tags=["nbval-ignore-output"]
from course_kernels import reference

add = my_kernel("1.2", reference.vector_add)
gather_rows = my_kernel("1.4", lambda x, index: x[index])


def add_rms_norm(x, residual, weight, eps):
    total = add(x, residual)
    return reference.rms_norm(total, weight, eps), total


llm = model.load()
with llm.using(add_rms_norm=add_rms_norm, embedding=lambda tokens, weight: gather_rows(weight, tokens)):
    answer = llm.generate("What is the capital of France?", max_new_tokens=8)
assert "Paris" in answer.text
answer

# %% tags=["nbval-ignore-output"]
progress()
