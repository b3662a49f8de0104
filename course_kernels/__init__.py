"""Triton kernels for AMD GPUs: one file, one family, one lesson.

Where no Triton kernel can run, the same functions take the PyTorch reference (see `backend`).
"""

from course_kernels import backend as _backend
from course_kernels.backend import current_backend, info, set_backend, use_backend

if _backend.triton is None:
    from course_kernels._stand_in import triton_importable as _importing_kernels
else:
    from contextlib import nullcontext as _importing_kernels

with _importing_kernels():
    from course_kernels import modules
    from course_kernels.activations import act_and_mul, activation, gelu_tanh_and_mul, silu_and_mul
    from course_kernels.attention import flash_attention
    from course_kernels.conv2d import conv2d
    from course_kernels.dropout import dropout_add
    from course_kernels.kv_cache import kv_cache_update, paged_kv_cache_update
    from course_kernels.layer_norm import add_layer_norm, layer_norm
    from course_kernels.linear import linear
    from course_kernels.matmul import matmul
    from course_kernels.mla import mla_bmm_rope_cache
    from course_kernels.paged_attention import paged_decode_attention
    from course_kernels.qkv import concat_qk, rope_concat_qk, split_qkv_rope
    from course_kernels.quant import act_mul_fp8_quant, fp8_dtype, quant_fp8_per_group, quant_fp8_per_token
    from course_kernels.rms_norm import add_rms_norm, rms_norm
    from course_kernels.rope import rope, rope_2d, rope_tables
    from course_kernels.softmax import softmax
    from course_kernels.topk import topk
    from course_kernels.vector_add import vector_add

__all__ = [
    "act_and_mul",
    "act_mul_fp8_quant",
    "activation",
    "add_layer_norm",
    "add_rms_norm",
    "concat_qk",
    "conv2d",
    "current_backend",
    "dropout_add",
    "flash_attention",
    "fp8_dtype",
    "gelu_tanh_and_mul",
    "info",
    "kv_cache_update",
    "layer_norm",
    "linear",
    "matmul",
    "mla_bmm_rope_cache",
    "modules",
    "paged_decode_attention",
    "paged_kv_cache_update",
    "quant_fp8_per_group",
    "quant_fp8_per_token",
    "rms_norm",
    "rope",
    "rope_2d",
    "rope_concat_qk",
    "rope_tables",
    "set_backend",
    "silu_and_mul",
    "softmax",
    "split_qkv_rope",
    "topk",
    "use_backend",
    "vector_add",
]
