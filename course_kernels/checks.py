"""What every public function asks of its arguments, before any launch."""

import torch

FLOATING = (torch.float32, torch.float16, torch.bfloat16)


def floating(**tensors: torch.Tensor) -> None:
    """Each is a tensor of float32, float16 or bfloat16, and all are on one device.

    Raises:
        TypeError: not a tensor, or of another type.
        ValueError: on different devices.
    """
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
        if tensor.dtype not in FLOATING:
            raise TypeError(f"{name} must be float32, float16 or bfloat16, got {tensor.dtype}; convert it with .to()")
        if tensor.device != first.device:
            raise ValueError(f"{name} is on {tensor.device} but {first_name} is on {first.device}; move one of them")


def same_shape_and_dtype(**pair: torch.Tensor) -> None:
    """Two tensors agree in shape and dtype.

    Raises:
        TypeError: the types differ.
        ValueError: the shapes differ.
    """
    (name_a, a), (name_b, b) = pair.items()
    if a.shape != b.shape:
        raise ValueError(f"{name_a} and {name_b} must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.dtype != b.dtype:
        raise TypeError(
            f"{name_a} and {name_b} must have one dtype, got {a.dtype} and {b.dtype}; convert one with .to()"
        )


def contiguous(**tensors: torch.Tensor) -> None:
    """Each tensor is contiguous: a kernel that takes no strides would read past its gaps.

    Raises:
        ValueError: a tensor is not.
    """
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous, got strides {tensor.stride()}; call .contiguous() first")


def row_vectors(x: torch.Tensor, **vectors: torch.Tensor) -> None:
    """Each vector is contiguous and has one element for each column of x.

    Raises:
        ValueError: x has no dimension, or a vector does not fit it.
    """
    if x.ndim == 0:
        raise ValueError("x must have at least one dimension, got a scalar; the last dimension is the row")
    for name, vector in vectors.items():
        if vector.shape != x.shape[-1:]:
            raise ValueError(f"{name} must have shape ({x.shape[-1]},) like the rows of x, got {tuple(vector.shape)}")
        contiguous(**{name: vector})


def rows_of(**tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as a matrix [rows, columns] with unit stride along the row: a view, never a copy.

    Raises:
        ValueError: the elements of a row are not adjacent, or one stride does not lead from each row to the next.
    """
    ((name, x),) = tensor.items()
    if x.shape[-1] > 1 and x.stride(-1) != 1:
        raise ValueError(
            f"{name} needs a last dimension of stride 1, got strides {x.stride()}; call .contiguous() first"
        )
    try:
        return x.view(x.shape[:-1].numel(), x.shape[-1])
    except RuntimeError:
        raise ValueError(
            f"{name} needs one stride from row to row, got strides {x.stride()} for shape {tuple(x.shape)}; "
            "call .contiguous() first"
        ) from None
