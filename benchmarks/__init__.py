"""The kernels against PyTorch, torch.compile and Liger-Kernel, on one GPU: `python -m benchmarks`.

One module a family: it lists its cases (shapes, inputs, contenders, reference).  `contest` checks and times them,
`report` turns the stored figures into README.md and pictures.
"""

FAMILIES = (
    "vector_add",
    "rms_norm",
    "layer_norm",
    "softmax",
    "activations",
    "quant",
    "rope",
    "qkv",
    "kv_cache",
    "mla",
    "attention",
    "paged_attention",
    "matmul",
    "training",
    "dropout",
    "topk",
    "conv2d",
    "call",
    "tried",
    "language_model",
)
