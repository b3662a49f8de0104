"""Convolutions of a ResNet-50, 32 images, channels last."""

import torch
import torch.nn.functional as F

import course_kernels as ck
from benchmarks.contest import OURS, TORCH, Case, draw, rows_of

SHAPES = [  # images, channels, height and width, filters, taps, stride
    (32, 64, 56, 256, 1, 1),
    (32, 64, 56, 64, 3, 1),
    (32, 128, 56, 128, 3, 2),
    (32, 256, 14, 256, 3, 1),
    (32, 512, 7, 512, 3, 1),
]


def fastest_of_cudnn(x, weight, stride, padding):
    """PyTorch's, having tried all of its algorithms (MIOpen's, on AMD)."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        return F.conv2d(x, weight, stride=stride, padding=padding)


def cases(sizes: str = "every"):
    """One for each layer."""
    for images, channels, size, filters, taps, stride in rows_of(sizes, SHAPES, SHAPES[3:4], [(2, 5, 6, 7, 3, 2)]):
        out = (size + 2 * (taps // 2) - taps) // stride + 1
        yield Case(
            "conv2d",
            f"{images} x {channels} x {size} x {size}, {filters} filters of {taps} x {taps}, stride {stride}",
            lambda device, n=images, c=channels, h=size, f=filters, r=taps, s=stride: (
                *_channels_last(draw(device, n, c, h, h), draw(device, f, c, r, r, scale=(c * r * r) ** -0.5)),
                s,
                r // 2,
            ),
            {TORCH: fastest_of_cudnn, OURS: lambda x, w, s, p: ck.conv2d(x, w, stride=s, padding=p)},
            lambda x, w, s, p: F.conv2d(x, w, stride=s, padding=p),
            bytes=2 * (images * channels * size**2 + images * filters * out**2 + filters * channels * taps**2),
            flops=2 * images * out**2 * filters * channels * taps**2,
            cold=True,
        )


def _channels_last(*tensors):
    return (tensor.contiguous(memory_format=torch.channels_last) for tensor in tensors)
