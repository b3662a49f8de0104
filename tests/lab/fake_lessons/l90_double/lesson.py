"""What the builder has to cope with, in few cells."""

# %% [markdown]
# # Doubling
#
# A table and a formula, $y = 2x$:
#
# | x | y |
# |---|---|
# | 1 | 2 |

# %%
import base64
import sys

from IPython.display import Image

# %%
for i in range(3):
    print(2 * i, flush=True)
print("beside", file=sys.stderr, flush=True)

# %% [markdown]
# The same cell twice:

# %%
2 * 21

# %%
2 * 21

# %%
Image(base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="))

# %% tags=["nbval-ignore-output"]
print(id(Image))

# %% tags=["raises-exception"]
1 / 0
