# %% [markdown]
# # Exercises 09: a language model on your kernels
#
# Five exercises on what is between the layers of a model and its users. Read [09 A language
# model](../notebooks/09_language_model.ipynb) first. 9.1 and 9.2 choose the next token, 9.3 serves several chats with
# one look at the weights, 9.4 gives them pages, and 9.5 is a repair of what happens between two steps.
#
# Each answer is one cell. `torch`, `triton`, `tl` and `math` are given. Press **Shift + Enter** to have it graded.
# `%hint 9.1` gives the next of three hints, `%solution 9.1` shows a solution after three real attempts, and
# `progress()` shows how far you are.
#
# What passes here speaks in the terminal too: `course chat --mine`.

# %%
import course_lab
from course_lab import progress

# %% [markdown] exercise_header="9.1"
# The `k` largest numbers of each row, the largest first, and their places. Of equal numbers the one with the lower
# place comes first. A vocabulary is too long for one program, so the work is done in rounds: each program takes
# `BLOCK` numbers of a row and keeps its `k` best; then the same kernel runs over what was kept, until one program
# holds a whole row. The host's part is given.
#
# In the first round a number's place is its column. In later ones it comes from `places`, what the round before
# stored. `NOWHERE` is larger than any place.
#
# - **Inputs**: `x` of shape `(rows, N)`, contiguous, float32, float16 or bfloat16, without NaN; `k` from 1 to 64, at
#   most `N`. $-\infty$ may occur: a token that is forbidden
# - **Output**: `values`, of shape `(rows, k)` and the dtype of `x`, and `indices`, int64
# - **Definition**:
#
#   ```python
#   for r in range(rows):
#       order = sorted(range(N), key=lambda c: (-x[r, c], c))[:k]
#       for i in range(k):
#           values[r, i], indices[r, i] = x[r, order[i]], order[i]
#   ```


# %% exercise="9.1"
@triton.jit
def top_k_kernel(
    x_ptr, places_ptr, values_ptr, indices_ptr, N, k, NOWHERE: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr
):
    """One program, BLOCK numbers of a row: its k largest, the largest first, and their places in the row."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    offs = chunk * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * N + offs, mask=mask, other=-float("inf")).to(tl.float32)
    place = offs.to(tl.int64)
    if not FIRST:
        place = tl.load(places_ptr + row * N + offs, mask=mask, other=NOWHERE)
    out = (row * tl.num_programs(1) + chunk) * k
    ### BEGIN SOLUTION
    left = mask
    for i in range(k):
        best = tl.max(tl.where(left, x, -float("inf")), axis=0)
        first = tl.min(tl.where(left & (x == best), place, NOWHERE), axis=0)
        tl.store(values_ptr + out + i, best.to(values_ptr.dtype.element_ty))
        tl.store(indices_ptr + out + i, first)
        left = left & (place != first)
    ### END SOLUTION


def top_k(x, k):
    (rows, N), places = x.shape, None
    while True:
        chunks = triton.cdiv(N, 2048)
        values = torch.empty((rows, chunks * k), dtype=x.dtype, device=x.device)
        indices = torch.empty((rows, chunks * k), dtype=torch.int64, device=x.device)
        constants = {"NOWHERE": 1 << 40, "FIRST": places is None, "BLOCK": min(triton.next_power_of_2(N), 2048)}
        top_k_kernel[(rows, chunks)](x, places, values, indices, N, k, **constants)
        if chunks == 1:
            return values, indices
        x, places, N = values, indices, chunks * k


# %% [markdown] tags=["solution-only"]
# **Why.** A maximum is a reduction, and `k` is small: so take the maximum `k` times. What has been taken is
# remembered in `left`, a mask. It is tempting to overwrite it with $-\infty$ instead. But $-\infty$ may be among the
# numbers, and then the same place would be taken twice.
#
# The place is a second reduction, over the lanes that hold the maximum, and its minimum settles ties. A chunk may
# have fewer than `k` numbers. Then nothing is left, the maximum is $-\infty$ and the place `NOWHERE`, and in the next
# round every real number comes before it.

# %% [markdown] exercise_header="9.2"
# Draw the next token from the `k` best, in one launch. The **temperature** divides the logits: below 1 the likeliest
# become likelier, above 1 all become alike. Then softmax, the sums of the probabilities from the first to each, and
# the first candidate whose sum is above the random number. In PyTorch these are half a dozen launches.
#
# - **Inputs**: `values` of shape `(rows, k)`, float32, float16 or bfloat16, largest first, some at the end perhaps
#   $-\infty$; `indices` of shape `(rows, k)`, int64; both contiguous; `temperature`, a number above 0; `uniform` of
#   shape `(rows,)`, float32, from 0 to below 1
# - **Output**: the drawn tokens, of shape `(rows,)`, int64
# - **Definition**:
#
#   ```python
#   for r in range(rows):
#       p = torch.softmax(values[r] / temperature, dim=0)
#       i = 0
#       while i < k - 1 and sum(p[: i + 1]) <= uniform[r]:
#           i += 1
#       tokens[r] = indices[r, i]
#   ```
#
# Compute in float32.


# %% exercise="9.2"
@triton.jit
def sample_kernel(values_ptr, indices_ptr, uniform_ptr, tokens_ptr, temperature, k, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < k
    x = tl.load(values_ptr + row * k + offs, mask=mask, other=-float("inf")).to(tl.float32)
    uniform = tl.load(uniform_ptr + row)
    ### BEGIN SOLUTION
    p = tl.exp((x - tl.max(x, axis=0)) / temperature)
    p = p / tl.sum(p, axis=0)
    passed = mask & (tl.cumsum(p, axis=0) <= uniform)
    place = tl.minimum(tl.sum(passed.to(tl.int32), axis=0), k - 1)
    tl.store(tokens_ptr + row, tl.load(indices_ptr + row * k + place))
    ### END SOLUTION


def sample(values, indices, temperature, uniform):
    rows, k = values.shape
    tokens = torch.empty(rows, dtype=torch.int64, device=values.device)
    block = triton.next_power_of_2(k)
    sample_kernel[(rows,)](values, indices, uniform, tokens, float(temperature), k, BLOCK=block)
    return tokens


# %% [markdown] tags=["solution-only"]
# **Why.** The sums rise, so those that are not above the random number are the first ones, and their count is the
# place. No search, no branch.
#
# Rounding can leave the last sum a little below 1, and a random number above it: then all have passed, and the place
# would be `k`. Hence the minimum. The maximum is subtracted before the division: with a temperature of 0.01 a logit
# of 20 becomes 2000, whose exponential no float holds.

# %% [markdown] exercise_header="9.3"
# A linear layer for **several** sequences at once: at most 16 tokens, one of each. Exercise 7.c reads the whole
# weight for one token. Run it 8 times and the weight is read 8 times. Here a program takes `BLOCK_N` rows of the
# weight and all tokens, so that each weight is read once, whatever the batch.
#
# - **Inputs**: `x` of shape `(M, K)`, `M` from 1 to 16; `weight` of shape `(N, K)`; both contiguous, float32, float16
#   or bfloat16
# - **Output**: `y` of shape `(M, N)` and the dtype of `x`
# - **Definition**:
#
#   ```python
#   for m in range(M):
#       for n in range(N):
#           y[m, n] = sum(x[m, k] * weight[n, k] for k in range(K))
#   ```
#
# Sum in float32, in full precision (`input_precision="ieee"`), and round once.


# %% exercise="9.3"
@triton.jit
def few_rows_kernel(
    x_ptr, weight_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One program, BLOCK_N rows of the weight, for all tokens."""
    offs_m = tl.arange(0, BLOCK_M)[:, None]
    offs_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    ### BEGIN SOLUTION
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)[None, :]
        x = tl.load(x_ptr + offs_m * K + offs_k, mask=(offs_m < M) & (offs_k < K), other=0.0)
        weight = tl.load(weight_ptr + offs_n * K + offs_k, mask=(offs_n < N) & (offs_k < K), other=0.0)
        acc = tl.dot(x, weight.T, acc, input_precision="ieee")
    offs_n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    tl.store(y_ptr + offs_m * N + offs_n, acc.to(y_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))
    ### END SOLUTION


def few_rows(x, weight):
    (M, K), N = x.shape, weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    few_rows_kernel[(triton.cdiv(N, 32),)](x, weight, y, M, N, K, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64)
    return y


# %% [markdown] tags=["solution-only"]
# **Why.** The tile has 16 rows, as many as every GPU's matrix units take, so up to 16 tokens cost what one costs. What
# grows with the batch is only what is small: `x` and `y`. That is why a server waits a moment to collect requests: the
# second chat's token is nearly free.
#
# `weight` is loaded as it lies, row by row, and turned in registers by `.T`. Loaded as `(BLOCK_K, BLOCK_N)` right
# away it would be the same numbers, in an order in which neighbouring lanes may read far apart.

# %% [markdown] exercise_header="9.4"
# The **page allocator**. Before a step, each sequence that still runs needs a slot for its next token:
#
# - If its last page is full (or it has none), it takes a free page. A page is free when no sequence refers to it.
# - If its last page has room and is its own, the slot is the next place of that page.
# - If its last page has room and is **shared**, it must not write there: others read it. It takes a free page, the
#   old one is copied, and the old one loses a reference. That is *copy-on-write*.
#
# Sequences get their turn in order, and the free page with the lowest number is taken. So what the first sequence did
# counts for the second one. There are always enough free pages. One program does it: `refs` stays in registers, a
# reference count for each page. A second kernel copies pages, one program for a sequence and a layer, only where
# there is something to copy.
#
# - **Inputs**: `block_table` of shape `(B, n)`, int32, contiguous; `seq_lens` of shape `(B,)`, int32: tokens that a
#   sequence has, -1 for a row without one; `refs` of shape `(P,)`, int32: how many sequences refer to a page;
#   `k_cache` and `v_cache` of shape `(layers, P, PAGE, W)`, contiguous, float32 or bfloat16
# - **Output**: `slots` of shape `(B,)`, int64, -1 for a row without a sequence; `block_table`, `refs` and the caches
#   are changed
# - **Definition**:
#
#   ```python
#   for b in range(B):
#       slots[b] = -1
#       if seq_lens[b] >= 0:
#           i, place = divmod(seq_lens[b], PAGE)
#           old = block_table[b, i] if place > 0 else None
#           if place == 0 or refs[old] > 1:
#               block_table[b, i] = min(p for p in range(P) if refs[p] == 0)
#               refs[block_table[b, i]] = 1
#               if place > 0:
#                   refs[old] -= 1
#                   k_cache[:, block_table[b, i]] = k_cache[:, old]
#                   v_cache[:, block_table[b, i]] = v_cache[:, old]
#           slots[b] = block_table[b, i] * PAGE + place
#   ```


# %% exercise="9.4"
@triton.jit
def allocate_kernel(table_ptr, lens_ptr, refs_ptr, slots_ptr, sources_ptr, stride_tb, B, P, PAGE, BLOCK: tl.constexpr):
    """One program: a slot for each sequence in turn, and in `sources` the page to copy from, or -1."""
    pages = tl.arange(0, BLOCK)
    refs = tl.load(refs_ptr + pages, mask=pages < P, other=1)  # what does not exist is not free
    for b in range(B):
        length = tl.load(lens_ptr + b)
        place = length % PAGE
        entry_ptr = table_ptr + b * stride_tb + length // PAGE
        ### BEGIN SOLUTION
        runs = length >= 0
        old = tl.load(entry_ptr, mask=runs & (place > 0), other=-1)
        shared = tl.sum(tl.where(pages == old, refs, 0), axis=0) > 1
        takes = runs & ((place == 0) | shared)
        free = tl.min(tl.where(refs == 0, pages, BLOCK), axis=0)
        refs += tl.where(takes & (pages == free), 1, 0) - tl.where(shared & (pages == old), 1, 0)
        page = tl.where(takes, free, old)
        tl.store(entry_ptr, page, mask=takes)
        tl.store(slots_ptr + b, tl.where(runs, page.to(tl.int64) * PAGE + place, -1))
        tl.store(sources_ptr + b, tl.where(shared, old, -1))
    tl.store(refs_ptr + pages, refs, mask=pages < P)
    ### END SOLUTION


@triton.jit
def copy_page_kernel(k_ptr, v_ptr, slots_ptr, sources_ptr, P, PAGE, SIZE, BLOCK: tl.constexpr):
    """One program, one sequence and layer: its new page becomes a copy of the old one, if there is one."""
    b, layer = tl.program_id(0), tl.program_id(1).to(tl.int64)
    source = tl.load(sources_ptr + b).to(tl.int64)
    target = tl.load(slots_ptr + b) // PAGE
    ### BEGIN SOLUTION
    if source >= 0:
        for start in range(0, SIZE, BLOCK):
            offs = start + tl.arange(0, BLOCK)
            mask = offs < SIZE
            k = tl.load(k_ptr + (layer * P + source) * SIZE + offs, mask=mask)
            v = tl.load(v_ptr + (layer * P + source) * SIZE + offs, mask=mask)
            tl.store(k_ptr + (layer * P + target) * SIZE + offs, k, mask=mask)
            tl.store(v_ptr + (layer * P + target) * SIZE + offs, v, mask=mask)
    ### END SOLUTION


def next_slots(block_table, seq_lens, refs, k_cache, v_cache):
    (layers, P, PAGE), B = k_cache.shape[:3], len(seq_lens)
    slots = torch.empty(B, dtype=torch.int64, device=seq_lens.device)
    sources = torch.empty(B, dtype=torch.int32, device=seq_lens.device)
    block = triton.next_power_of_2(P)
    stride = block_table.stride(0)
    allocate_kernel[(1,)](block_table, seq_lens, refs, slots, sources, stride, B, P, PAGE, BLOCK=block, num_warps=1)
    size = k_cache[0, 0].numel()
    copy_page_kernel[(B, layers)](k_cache, v_cache, slots, sources, P, PAGE, size, BLOCK=512)
    return slots


# %% [markdown] tags=["solution-only"]
# **Why.** One program goes through the sequences in order, because what one takes the next cannot have. That is slow
# on a GPU and does not matter: there are a few hundred sequences, and 5 million weights a layer. What matters is that
# the host is not asked, so that the step can be recorded as a graph.
#
# `refs` is loaded once and stored once. Between that it is a block in registers, and "the count of page `old`" is a
# sum over a mask with one lane. Were it stored and loaded again inside the loop, other threads of the program might
# still read the old count: memory gives no order without a barrier.
#
# The copy needs no care about order: all pages that are read were there before, and all that are written were free.

# %% [markdown] exercise_header="9.5"
# Between two steps of a recorded graph the host does nothing, so a kernel must: the tokens that were chosen become
# the input, every sequence gets one longer, and its next slot is looked up. The pages have been reserved ahead. A
# sequence that chose the end-of-text token `END` is over: its row gets slot -1 and length 0, its position stays, and
# so it remains.
#
# This kernel is in use somewhere. With one page per sequence and no end of text its test passes. It has **two** bugs.
#
# - **Inputs**: `chosen` of shape `(B,)`, int64; in place: `tokens` and `positions`, `(B,)`, int64, `seq_lens`,
#   `(B,)`, int32, and `slots`, `(B,)`, int64, -1 for a row without a sequence: a slot may be beyond 32 bits;
#   `block_table` of shape `(B, n)`, int32, contiguous; `page`, the slots of a page; `end`, the token that ends a text
# - **Output**: none
# - **Definition**:
#
#   ```python
#   for b in range(B):
#       tokens[b] = chosen[b]
#       if slots[b] >= 0 and chosen[b] != end:
#           positions[b] += 1
#           seq_lens[b] = positions[b] + 1
#           i, place = divmod(positions[b], page)
#           slots[b] = block_table[b, i] * page + place
#       else:
#           seq_lens[b], slots[b] = 0, -1
#   ```


# %% exercise="9.5"
@triton.jit
def advance_kernel(
    chosen_ptr, tokens_ptr, positions_ptr, lens_ptr, slots_ptr, table_ptr, stride_tb, B, PAGE, END, BLOCK: tl.constexpr
):
    """One program, BLOCK sequences: from the tokens that were chosen to the inputs of the next step."""
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = b < B
    chosen = tl.load(chosen_ptr + b, mask=mask, other=0)
    slot = tl.load(slots_ptr + b, mask=mask, other=-1)
    position = tl.load(positions_ptr + b, mask=mask, other=0)
    ### BEGIN BROKEN
    runs = slot >= 0
    page = tl.load(table_ptr + b * stride_tb + position // PAGE, mask=mask & runs, other=0).to(tl.int64)
    position = tl.where(runs, position + 1, position)
    ### END BROKEN
    ### BEGIN SOLUTION
    runs = (slot >= 0) & (chosen != END)
    position = tl.where(runs, position + 1, position)
    page = tl.load(table_ptr + b * stride_tb + position // PAGE, mask=mask & runs, other=0).to(tl.int64)
    ### END SOLUTION
    tl.store(tokens_ptr + b, chosen, mask=mask)
    tl.store(positions_ptr + b, position, mask=mask)
    tl.store(lens_ptr + b, tl.where(runs, position + 1, 0).to(tl.int32), mask=mask)
    tl.store(slots_ptr + b, tl.where(runs, page * PAGE + position % PAGE, -1), mask=mask)


def advance(chosen, tokens, positions, seq_lens, slots, block_table, page, end):
    B, stride = len(chosen), block_table.stride(0)
    arguments = chosen, tokens, positions, seq_lens, slots, block_table, stride, B, page, end
    advance_kernel[(triton.cdiv(B, 64),)](*arguments, BLOCK=64)


# %% [markdown] tags=["solution-only"]
# **Why, first bug.** The page was looked up for the old position. Nobody notices until a sequence crosses from one
# page to the next: its token then goes to the first place of the page that it just filled, over the token that was
# there.
#
# **Why, second bug.** A sequence that has ended went on. Its pages are given to others, and it writes its keys there:
# one user reads what was computed for another. It is the trap of lesson 07 once more, at the other end of a
# sequence's life.

# %% tags=["nbval-ignore-output"]
progress()
