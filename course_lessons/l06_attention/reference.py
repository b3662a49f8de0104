"""The formulas that only the exercises of lesson 06 use, in plain PyTorch; the rest: course_kernels/reference.py."""

import torch
from torch import Tensor

from course_kernels.reference import flash_attention


def row_logsumexp(x: Tensor) -> Tensor:
    """log of the sum of exp(x) over the last dimension, in float32; -inf for a row of -inf"""
    return x.double().logsumexp(dim=-1).float()


def head_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of one head, (Sq, D) and (Sk, D), in which every query sees every key"""
    return flash_attention(q[None, None], k[None, None], v[None, None])[0, 0]


def prefill_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of (B, H, S, D) to (B, KH, Sk, D)"""
    return flash_attention(q, k, v, causal=True)


def window_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attention of one head in which query i sees the last `window` keys up to i + Sk - Sq; none: 0"""
    last = torch.arange(len(q), device=q.device)[:, None] + len(k) - len(q)
    key = torch.arange(len(k), device=q.device)
    scores = q.double() @ k.double().T * q.shape[-1] ** -0.5
    scores = scores.masked_fill((key > last) | (key <= last - window), -torch.inf)
    sees_any = (scores > -torch.inf).any(dim=-1, keepdim=True)
    return (scores.masked_fill(~sees_any, 0.0).softmax(dim=-1) * sees_any @ v.double()).to(q.dtype)


def query_gradient(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor) -> Tensor:
    """Gradient of q in `head_attention`, whose result is o with the log-sum-exp lse and the gradient do"""
    scale = q.shape[-1] ** -0.5
    p = torch.exp(q.double() @ k.double().T * scale - lse.double()[:, None])
    delta = (o.double() * do.double()).sum(dim=-1, keepdim=True)
    return ((p * (do.double() @ v.double().T - delta)) @ k.double() * scale).to(q.dtype)
