# %% [markdown]
# # 09 A language model
#
# In eight lessons you have written the kernels of a language model, one by one. Here they meet: the model reads and
# writes on your kernels, as machine code of an MI300X, talks with you, and answers several people at once.
#
# You need lessons 06 (attention) and 07 (the cache, its pages, decode). It takes about 22 minutes, without the
# exercises.
#
# **In doing so, you will learn**
#
# - whose kernel runs at each place of the model, and how yours get there
# - how a next token is drawn, not only chosen
# - what one token is as machine code: every instruction, and which of three limits binds
# - how several sequences share pages, and what must happen before one of them writes

# %% tags=["nbval-ignore-output"]
import inspect
import time

import torch
import triton
import triton.language as tl
from IPython.display import Code

import course_kernels
import course_lab
import gfxlab
from course_lab import bench, model, my_kernel
from course_lab.chat import Assembly, Conversation, Engine
from course_lab.model import serving
from course_lab.model.executed import executing
from gfxlab import draw, hardware

llm = model.load(device="cpu")  # float32
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Where this sits in the model
#
# Everywhere. A chat runs the model in two ways, as you know from lesson 07: the
# [prefill](06_attention.ipynb#Glossary) reads a message, all of its tokens at once, and
# [decode](07_kv_cache.ipynb#Glossary) writes the answer, one token after the other. Behind each step a token is
# chosen, and between two steps somebody keeps the books. Here is every place where a kernel of yours fits:

# %% tags=["nbval-ignore-output"]
assembly = Assembly()  # your answers where they have passed, the course's kernels elsewhere
assembly

# %% [markdown]
# The table reads your journal, so it is as true as `progress()`. It does not matter where an answer has passed: in a
# notebook, or by `course check` in a terminal. A matrix has three rows, for it meets one token, a few, or a long
# prompt, and each is another kernel. The last column counts calls; you will see it again at the end.
#
# What does one token cost? Each call, with the bytes that it must move at least:

# %%
step = llm.operations(tokens=1, context=24, page_size=16)
print(
    f"{sum(row.calls for row in step.rows)} calls, {step.bytes / 1e6:.0f} MB, {step.flops / 1e6:.0f} million operations"
)
matrices = sum(row.calls * row.bytes for row in step.rows if row.operation == "linear")
print(f"of the bytes, the matrices: {matrices / step.bytes:.1%}")

# %% [markdown]
# ## The idea on paper
#
# Everything that a language model does with a user is this loop:
#
# ```
# read the message                       prefill: hidden state of its last token
# repeat
#     logits = hidden @ embedding.T      49152 numbers, one for each token
#     choose a token from them
#     read that token                    decode: one step
# until it is the end of text
# ```
#
# You have everything in it but the line in the middle. So far the model took the largest logit, always. Such text is
# safe and soon repeats itself. The alternative is [**sampling**](#Glossary): draw the token, the likelier ones more
# often. With a [**temperature**](#Glossary) $T$ the logits $x$ become the probabilities
#
# $$ p_i = \frac{e^{x_i / T}}{\sum_j e^{x_j / T}} $$
#
# and to draw is to walk along their sums: take the first token $i$ with $p_1 + \dots + p_i > u$, where $u$ is a
# random number from 0 to 1. Only the `k` best take part, since 49000 unlikely tokens are together not so unlikely.
#
# ## Rung 1: draw a token
#
# **Predict.** Divide all logits by 2. Which token is then the most likely one, and is it more or less likely than
# before?

# %% [markdown] exercise_header="9.a"
# A row of logits becomes probabilities at a temperature: `y = softmax(x / temperature)`. One program, one row, as in
# lesson 06.


# %% exercise="9.a"
@triton.jit
def soften_kernel(x_ptr, y_ptr, temperature, N, BLOCK: tl.constexpr):
    """One program, one row of N logits."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=-float("inf"))
    ### BEGIN SOLUTION
    p = tl.exp((x - tl.max(x, axis=0)) / temperature)
    tl.store(y_ptr + row * N + cols, p / tl.sum(p, axis=0), mask=mask)
    ### END SOLUTION


def soften(x, temperature):
    rows, N = x.shape
    y = torch.empty_like(x)
    soften_kernel[(rows,)](x, y, temperature, N, BLOCK=triton.next_power_of_2(N))
    return y


# %% [markdown]
# Real logits: what could come after these words, at three temperatures?

# %%
prompt = llm.tokenizer.encode("My favourite colour is")
cache = llm.new_cache(64, page_size=16)
with torch.no_grad():
    logits = llm.logits(llm.forward(torch.tensor(prompt), cache)[-1:])
values, indices = course_kernels.topk(logits, 6)
soften = my_kernel("9.a")
print("             " + "".join(f"{llm.tokenizer.decode([token]):>12}" for token in indices[0].tolist()))
for temperature in (0.3, 1.0, 3.0):
    print(f"T = {temperature:<8} " + "".join(f"{p:12.1%}" for p in soften(values, temperature)[0].tolist()))

# %% [markdown]
# **Look.** The order never changes. At 0.3 more than half is on the first, at 3 all six are nearly alike. Choosing
# the largest is what is left when the temperature goes to 0.
#
# In PyTorch the draw is a division, a softmax (with its maximum and its sum), a cumulative sum, a comparison, a sum
# and a lookup. Exercise 9.2 is all of it in one launch, and 9.1 finds the `k` best. Until you have solved them, the
# course's run:

# %%
draws = [model.Sampler(temperature=0.8, top_k=20, seed=seed) for seed in range(8)]
with llm.using(topk=assembly["9.1"], sample=assembly["9.2"]):
    drawn = [int(llm.choose(logits, sampler)) for sampler in draws]
print("8 draws:", [llm.tokenizer.decode([token]) for token in drawn])
print("the best:", llm.tokenizer.decode([int(llm.choose(logits))]))

# %% [markdown]
# The random number comes from the host, not from the kernel. So the same seed gives the same text on every engine,
# and one can compare them.
#
# ## Rung 2: the token as machine code
#
# Now the whole step, on kernels throughout, and each of them as what it is on an MI300X: its machine code, executed
# by the simulator. PyTorch reads the prompt, and makes the same tokens, to compare with.

# %% tags=["nbval-ignore-output"]
prompt = llm.tokenizer.encode("One, two, three,")
expected = llm.generate(prompt, max_new_tokens=3, page_size=16, progress=False).tokens
cache = llm.new_cache(64, page_size=16)
tokens = [llm.next_token(prompt, cache)]
begin = time.process_time()
with llm.using(**assembly.functions), gfxlab.using("gfx942", checks=False) as runs:
    tokens.append(llm.next_token(tokens[-1:], cache))
seconds = time.process_time() - begin
assert tokens == expected[:2] and len(runs) >= 274
print(f"One, two, three,{llm.tokenizer.decode(tokens)}")
print(f"{len(runs)} launches of machine code, {seconds:.1f} s of one core, compiling included")

# %% [markdown]
# That was a language model on a GPU that is not there. The next token once more, and this time counted: `executing`
# watches the model's calls, and what the launches of each execute.
#
# **Predict.** 135 million weights, each multiplied and added once, in waves of 64 lanes. How many vector instructions
# does that take at least? And which operation has the most?

# %% tags=["nbval-ignore-output"]
with llm.using(**assembly.functions), executing(llm, "gfx942") as token:
    tokens.append(llm.next_token(tokens[-1:], cache))
assert tokens == expected
token

# %%
print("same tokens as PyTorch:", tokens == expected)
print("layers:", len(token.by_layer()) - 1)

# %% [markdown]
# **Look.** At least 2.1 million, and it takes more than twice that: conversions, addresses, masks, and the sums
# across lanes at the end of each row. The matrices are nearly all of the token. Attention, which took you two
# lessons, is next to nothing while the text is short. It is the only one here that uses the matrix units: elsewhere
# one token would leave 15 of their 16 rows idle.
#
# The bytes that lanes asked for are more than the weights: every wave asks for `x` again, and it comes from a cache.
# If each launch moved each number once, it would be the next column.
#
# The token in one picture. A row is a layer, its width the wave instructions; hover over a part:

# %% tags=["nbval-ignore-output"]
token.picture("One token of SmolLM2 as gfx942 machine code")

# %% [markdown]
# Thirty times the same. At the bottom stands one product that is as long as eight layers, in as many lines: the
# logits, 49152 rows of the embedding. That is the price of a large vocabulary in a small model.
#
# ### Which limit binds?
#
# A GPU has to move the bytes, to issue the instructions, and to start the launches. Each gives a floor, a time that
# no MI300X can be faster than:

# %% tags=["nbval-ignore-output"]
floors = token.floors("MI300X")
assert floors.binds == "launches"
floors

# %% [markdown]
# **Why.** The launches bind, about ten times over. The machine is made for matrices a thousand times this size, and a
# token of this model is over before the next launch has begun. Nothing that one does to a kernel helps, only fewer
# launches do, or launches that cost less: fusion, and a recorded graph. And more work for each launch. That is the
# next rung.
#
# ## Rung 3: serve a few
#
# **Predict.** Eight people ask at once. Eight steps for eight tokens, or one step with eight rows: how many times are
# the weights read? How many launches are there?
#
# One step is enough. Its matrices meet 8 rows, which the [matrix units](05_matmul.ipynb#Glossary) were waiting for
# (exercise 9.3), and the weights are read once. Only the caches remain each sequence's own, and even these not quite.
# All eight messages begin alike, with the system prompt:

# %%
questions = ("What is 2 + 2?", "Name a colour.", "Who wrote Hamlet?", "Say hello.")
questions += ("What is the capital of Italy?", "Is water wet?", "Count to three.", "What is the opposite of hot?")
prompts = [llm.encode(question) for question in questions]
common = next(i for i in range(99) if len({prompt[i] for prompt in prompts}) > 1)
print(f"{sorted(map(len, prompts))} tokens, of which the first {common} are the same for all:")
print(repr(llm.tokenizer.decode(prompts[0][:common])))

# %% [markdown]
# Keys and values of these tokens are the same for all, too: a token never looks at a later one. So read them once,
# and let every sequence's row of the [block table](07_kv_cache.ipynb#Glossary) begin with the same pages. Lesson 07
# promised that pages can be shared; this is how. A page then needs a [**reference count**](#Glossary): how many
# sequences look at it. When one of them ends, its pages lose a reference, and a page without any is free.

# %% [markdown] exercise_header="9.b"
# Count the references: `table` holds page numbers, -1 where there is none. `refs[p]` is how often `p` stands in it.
# Two programs may meet at the same page, so add with `tl.atomic_add`. `refs` begins with zeros.


# %% exercise="9.b"
@triton.jit
def count_kernel(table_ptr, refs_ptr, n, BLOCK: tl.constexpr):
    """One program, BLOCK entries of the table."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    page = tl.load(table_ptr + offs, mask=offs < n, other=-1)
    ### BEGIN SOLUTION
    tl.atomic_add(refs_ptr + page, 1, mask=page >= 0)
    ### END SOLUTION


def count_references(table, pages):
    refs = torch.zeros(pages, dtype=torch.int32, device=table.device)
    n = table.numel()
    count_kernel[(triton.cdiv(n, 32),)](table, refs, n, BLOCK=32)
    return refs


# %% [markdown]
# Three sequences. The first two share pages 4 and 1:

# %%
table = torch.tensor([[4, 1, 6], [4, 1, -1], [2, -1, -1]], dtype=torch.int32)
count_references = my_kernel("9.b")
print(count_references(table, 8).tolist())

# %% [markdown]
# Full pages can be shared as long as one likes, for nobody writes there again. The last page of the prefix is
# different. The prefix rarely ends where a page does, so the next token of *each* sequence belongs into the same
# slot. Before one writes to a shared page, it takes a page of its own and copies what is there. This is
# [**copy-on-write**](#Glossary), which operating systems do with memory after a fork. Who takes which page is decided
# by the allocator, which is your exercise 9.4. It runs on the GPU, in one program: so the host is not asked between
# two steps.
#
# Here is the rest, a loop that fits on a page. New sequences take rows that have become free, in the middle of the
# others' answers. It is called [**continuous batching**](#Glossary), and was new in 2022 (Yu and others, *Orca: A
# Distributed Serving System for Transformer-Based Generative Models*):

# %% tags=["nbval-ignore-output"]
Code(inspect.getsource(serving.serve), language="python")

# %% [markdown]
# The interpreter runs the allocator, and PyTorch the layers, which is quicker. Five rows for eight prompts:

# %%
served = serving.serve(llm, prompts, assembly["9.4"], rows=5, max_new_tokens=5)
for question, text in zip(questions, served.texts):
    print(f"{question:30} {text}")

# %%
print(served)
alone = llm.generate(prompts[4], max_new_tokens=5, progress=False).tokens
print("the fifth alone, the same tokens:", alone == served.tokens[4])

# %% [markdown]
# **Look.** Most of the prompts' tokens were never read: they stood in shared pages already. The bytes saved are those
# of the moment when most pages were wanted. With a system prompt of 24 tokens this is a small thing. Agents work with
# prefixes of ten thousand tokens and more, where nearly all of the cache is shared, and nearly all of the prefill is
# saved.
#
# ## The trap: a page that two hold
#
# What if the copy is left out? An allocator that knows nothing of sharing:


# %%
def careless(block_table, seq_lens, refs, keys, values):
    """The page allocator without copy-on-write: a page that has room is written, whoever else reads it."""
    hidden = refs.clone().clamp(max=1)  # it looks as if nobody shared
    slots = assembly["9.4"](block_table, seq_lens, hidden, keys, values)
    refs += (hidden > 0) & (refs == 0)
    return slots


pair = prompts[4], prompts[2]
wrong = serving.serve(llm, pair[:1], careless, rows=1, max_new_tokens=5)
print("one at a time:", wrong.texts)
both = serving.serve(llm, pair, careless, rows=2, max_new_tokens=5)
print("two at once:  ", both.texts)

# %% [markdown]
# **Before you read on:** one at a time it is right. Nothing crashed, no guard complained. What did the two tell each
# other?
#
# Both wrote their next tokens into the same slots of the shared page, each in its turn, the second one last. The
# first then read *the second one's question* in place of its own. With two users, that is somebody else's text in
# your answer. A test with one sequence cannot find it, nor one whose prefix ends with a page:

# %%
right = serving.serve(llm, pair, assembly["9.4"], rows=2, max_new_tokens=5)
print("with copies:  ", right.texts)
print("copied pages: ", right.copies)
assert both.texts != right.texts

# %% [markdown]
# ## On real hardware
#
# On a GPU the launches bind, as the floors say, so the whole step is recorded once as a graph and replayed without
# Python. Exercise 9.5 is what makes that possible: the kernel between two steps, which turns the chosen tokens into
# the next step's input, and looks up the next slots.
#
# ## Swap it in: it talks
#
# Everything together. A `Conversation` keeps what was said in a paged cache, runs on one of four engines, and gives
# its answer piece by piece. Here PyTorch does the layers, because you are waiting:

# %% tags=["nbval-ignore-output"]
talk = Conversation(Engine("torch"), progress=False)
for message in ("What is the capital of France?", "And of Italy?"):
    print(">", message)
    for piece in talk.answer(message, max_new_tokens=16):
        print(piece, end="", flush=True)
    print(f"\n  [{talk.said}]")
print(talk.note())
assert "Paris" in llm.generate(questions[0].replace("2 + 2", "the capital of France"), 10, progress=False).text

# %% [markdown]
# And the same model on the machine code of an MI300X, on your kernels where they have passed, now with the prompt
# too: its attention is that of lesson 06.

# %% tags=["nbval-ignore-output"]
engine = Engine("simulator", "gfx942")
cache, tokens, unread = llm.new_cache(64, page_size=16), [], llm.tokenizer.encode("Paris is the capital of")
with engine.running(llm, assembly):
    tokens.append(llm.next_token(unread, cache))
print("Paris is the capital of" + llm.tokenizer.decode(tokens), f"  [{engine.launches} launches on {engine}]")
assert tokens == llm.generate(unread, max_new_tokens=1, progress=False).tokens

# %% [markdown]
# In a terminal it is a command. It streams, keeps the history, stops an answer at Ctrl-C, and says at the end what
# ran on what:
#
# ```
# course chat                                            PyTorch, quick
# course chat --engine simulator --arch gfx942 --mine    your kernels as machine code of an MI300X
# course chat --engine interpreter --mine                your kernels, interpreted
# course chat --engine gpu --mine --temperature 0.7      your kernels on your GPU
# course chat --engine gpu --mine --launch graph         a recorded step: most tokens a second
# ```
#
# How often did each kernel run in this notebook?

# %% tags=["nbval-ignore-output"]
print(assembly)

# %% [markdown]
# ## What to read next
#
# - The exercises: [`exercises/09_language_model.ipynb`](../exercises/09_language_model.ipynb). 9.1 and 9.2 choose the
#   next token, 9.3 serves several at once, 9.4 is the allocator, 9.5 a repair.
# - *Efficient Memory Management for Large Language Model Serving with PagedAttention* (Kwon and others, 2023), which
#   is where pages, reference counts and copy-on-write come from.
#
# When the last line of the table says that all kernels are yours, you have written a language model. How to give a
# kernel to others is the subject of [10 Shipping a kernel](10_shipping.ipynb).
#
# ### From formula to code
#
# | formula | code |
# |---|---|
# | $p_i = e^{x_i/T} / \sum_j e^{x_j/T}$ | `tl.exp((x - tl.max(x, axis=0)) / temperature)`, divided by its sum |
# | first $i$ with $p_1 + \dots + p_i > u$ | `tl.sum((tl.cumsum(p, axis=0) <= u).to(tl.int32), axis=0)` |
# | the $i$-th largest | `k` times a maximum over what is `left` |
# | $Y = X W^\top$, few rows | `tl.dot(x, weight.T, acc)`, all rows of $X$ in one tile |
# | references of page $p$ | `tl.sum(tl.where(pages == p, refs, 0), axis=0)` |
# | the lowest free page | `tl.min(tl.where(refs == 0, pages, BLOCK), axis=0)` |
# | a time that no GPU beats | bytes / bandwidth; instructions / (compute units × clock); launches × 4.2 µs |
#
# ### Glossary
#
# - **sampling**: drawing the next token at random, the likelier ones more often
# - **temperature**: what logits are divided by before the softmax of a draw
# - **reference count**: how many sequences look at a page; at 0 it is free
# - **copy-on-write**: before a shared page is written, the writer gets a copy of its own
# - **continuous batching**: sequences join and leave a batch between two steps, none waits for the others to end
