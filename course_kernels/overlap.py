"""Whether tensors share memory: what is written must not be what another program still reads.

Views of one allocation are common (keys and values of a cache side by side, a gate and its factor), so it is not enough
to compare where tensors begin and end: two elements at one place are looked for, by their strides.
"""

import torch

STEPS = 10_000  # of a search; what takes more is taken for shared


def itself(x: torch.Tensor) -> bool:
    """Whether two elements of x may lie at one place: a stride leads into what smaller strides span."""
    span = 0
    for stride, size in sorted(zip(x.stride(), x.shape)):
        if size > 1:
            if stride <= span:
                return True
            span += stride * (size - 1)
    return False


def of(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether an element of x and one of y lie at one place."""
    if x.numel() == 0 or y.numel() == 0 or x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr():
        return False
    reach: dict[int, list[int]] = {1: [1 - y.itemsize, x.itemsize - 1]}  # by bytes of a step: how many back and forth
    for tensor, forth in ((x, 1), (y, 0)):
        for stride, size in zip(tensor.stride(), tensor.shape):
            back_and_forth = reach.setdefault(max(stride * tensor.itemsize, 1), [0, 0])
            back_and_forth[forth] += (size - 1) if forth else (1 - size)
    steps = [(stride, *reach[stride]) for stride in sorted(reach, reverse=True)]
    return _meets(y.data_ptr() - x.data_ptr(), steps, [STEPS])


def _meets(distance: int, steps: list[tuple[int, int, int]], left: list[int]) -> bool:
    """Whether steps of these lengths, each between so many back and so many forth, add up to the distance."""
    if not steps:
        return distance == 0
    (stride, back, forth), *others = steps
    nearest, farthest = sum(size * n for size, n, _ in others), sum(size * n for size, _, n in others)
    least, most = max(-((farthest - distance) // stride), back), min((distance - nearest) // stride, forth)
    for n in range(least, most + 1):
        left[0] -= 1
        if left[0] < 0 or _meets(distance - n * stride, others, left):
            return True
    return False
