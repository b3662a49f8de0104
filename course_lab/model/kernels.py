"""The course's kernels under the names of the model's operations: `with llm.using(**COURSE):`."""

from __future__ import annotations

from collections.abc import Callable

import course_kernels

COURSE: dict[str, Callable] = {
    "rms_norm": course_kernels.rms_norm,
    "add_rms_norm": course_kernels.add_rms_norm,
    "linear": course_kernels.linear,
    "split_qkv_rope": course_kernels.split_qkv_rope,
    "kv_cache_update": course_kernels.kv_cache_update,
    "paged_kv_cache_update": course_kernels.paged_kv_cache_update,
    "attention": course_kernels.flash_attention,
    "paged_decode_attention": course_kernels.paged_decode_attention,
    "silu_and_mul": course_kernels.silu_and_mul,
    "topk": course_kernels.topk,
}
"""Each operation that `course_kernels` has a function for, with the model's signature; `embedding` and `sample` are
exercises (1.4, 9.2)."""
