"""Forward and backward together, as in training: the norms, and attention."""

import dataclasses

from benchmarks import attention, layer_norm, rms_norm
from benchmarks.contest import Case, draw, gradients

SIZES = ("64 x 576", "64 x 4096", "4096 x 576", "4096 x 4096", "16384 x 4096", "4096 x 8192")
SIZES += ("4096 x 16384", "2048 x 65536")
NORMS = {"rms_norm": rms_norm, "layer_norm": layer_norm}


def cases(sizes: str = "every"):
    """The forward cases of these families, with gradients of all their inputs."""
    for family, module in NORMS.items():
        for case in module.cases(sizes):
            if case.family == family and (case.size in SIZES or sizes != "every"):
                yield with_gradients(case, bytes=case.bytes * 5 // 2)  # x, y; then dy, x, dx
    for case in attention.cases(sizes):
        if "16384" not in case.size:  # the reference would not fit into memory
            yield with_gradients(case, flops=case.flops * 7 // 2)  # 2 products forward, 5 backward


def with_gradients(case: Case, **more: int) -> Case:
    """The same functions, forward and backward. Their result is shaped like the first input."""

    def inputs(device):
        tensors = case.inputs(device)
        return *tensors, draw(device, *tensors[0].shape, scale=0.25)

    family = f"{case.family}_and_gradients"
    return dataclasses.replace(case, family=family, inputs=inputs, step=gradients, tolerance=2e-2, **more)
