"""The course's model: SmolLM2-135M-Instruct in plain PyTorch, every operation replaceable by a kernel of yours.

    from course_lab import model

    llm = model.load()
    llm.generate("What is the capital of France?")
    with llm.using(rms_norm=my_rms_norm):
        llm.generate("What is the capital of France?")

Read ``smollm2.py`` for the model itself, ``operations.py`` for what each operation computes.
"""

from course_lab.model.config import Config
from course_lab.model.loading import load
from course_lab.model.operations import OPERATIONS, PAGED_OPERATIONS
from course_lab.model.smollm2 import Batch, Generation, KVCache, PagedKVCache, Sampler, SmolLM2
from course_lab.model.weights import ModelUnavailable, fetch, weights_path

__all__ = [
    "OPERATIONS",
    "PAGED_OPERATIONS",
    "Batch",
    "Config",
    "Generation",
    "KVCache",
    "ModelUnavailable",
    "PagedKVCache",
    "Sampler",
    "SmolLM2",
    "fetch",
    "load",
    "weights_path",
]
