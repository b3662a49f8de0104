"""What every public function asks of its arguments, before any launch."""

import numbers
import os

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from . import overlap

VARIABLE = "COURSE_KERNELS_CHECKS"

FLOATING = (torch.float32, torch.float16, torch.bfloat16)


def are_tensors(**values: torch.Tensor) -> None:
    """Each is a tensor, and its memory holds its numbers.

    Raises:
        TypeError: it is not.
        ValueError: it is sparse or nested; or one of PyTorch's views that negate what lies in memory, as the imaginary
            part of a conjugate.
    """
    for name, value in values.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
        if torch.compiler.is_compiling():
            continue
        if value.layout is not torch.strided or value.is_nested:
            kind = "nested" if value.is_nested else f"of layout {value.layout}"
            raise ValueError(f"{name} must be a dense tensor, got one that is {kind}; call .to_dense() or pad it first")
        if value.is_neg():
            raise ValueError(f"{name} is a view that negates its memory; call .resolve_neg() first")


def floating(**tensors: torch.Tensor) -> None:
    """Each is a tensor of float32, float16 or bfloat16, and all are on one device.

    Raises:
        TypeError: not a tensor, or of another type.
        ValueError: on different devices.
    """
    are_tensors(**tensors)
    device = None
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATING:
            raise TypeError(f"{name} must be float32, float16 or bfloat16, got {tensor.dtype}; convert it with .to()")
        device = device or tensor.device
        if tensor.device != device:
            same_device(**tensors)


def same_shape_and_dtype(**pair: torch.Tensor) -> None:
    """Two tensors agree in shape and dtype.

    Raises:
        TypeError: the types differ.
        ValueError: the shapes differ.
    """
    (name_a, a), (name_b, b) = pair.items()
    if a.shape != b.shape:
        raise ValueError(f"{name_a} and {name_b} must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    same_dtype(**pair)


def same_dtype(**tensors: torch.Tensor) -> None:
    """All have one dtype.

    Raises:
        TypeError: they do not.
    """
    (first_name, first), *others = tensors.items()
    for name, tensor in others:
        if tensor.dtype != first.dtype:
            raise TypeError(
                f"{first_name} and {name} must have one dtype, got {first.dtype} and {tensor.dtype}; "
                "convert one with .to()"
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
    cols = x.shape[-1]
    for name, vector in vectors.items():
        if vector.shape != (cols,):
            raise ValueError(f"{name} must have shape ({cols},) like the rows of x, got {tuple(vector.shape)}")
    contiguous(**vectors)


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
    if x.ndim == 2:
        return x  # another view would take as long as all the checks of a call
    try:
        return x.view(x.shape[:-1].numel(), x.shape[-1])
    except RuntimeError:
        raise ValueError(
            f"{name} needs one stride from row to row, got strides {x.stride()} for shape {tuple(x.shape)}; "
            "call .contiguous() first"
        ) from None


def in_shape_of(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The result for `rows_of(x)`, in the shape of x."""
    return rows if x.ndim == 2 else rows.view(x.shape)


def integers(**tensors: torch.Tensor) -> None:
    """Each is a tensor of int32 or int64.

    Raises:
        TypeError: it is not.
    """
    are_tensors(**tensors)
    for name, tensor in tensors.items():
        if tensor.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"{name} must be int32 or int64, got {tensor.dtype}; convert it with .to()")


def same_device(**tensors: torch.Tensor) -> None:
    """All are on one device.

    Raises:
        ValueError: they are not.
    """
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if tensor.device != first.device:
            raise ValueError(f"{name} is on {tensor.device} but {first_name} is on {first.device}; move one of them")


def shape(*allowed: tuple[int, ...], **tensors: torch.Tensor) -> None:
    """Each tensor has one of the allowed shapes.

    Raises:
        ValueError: it has another.
    """
    for name, tensor in tensors.items():
        if all(tensor.shape != size for size in allowed):  # not `in`: torch.compile cannot follow it
            wanted = " or ".join(str(tuple(shape)) for shape in dict.fromkeys(allowed))
            raise ValueError(f"{name} must have shape {wanted}, got {tuple(tensor.shape)}")


def rank(ndim: int, dimensions: str, **tensors: torch.Tensor) -> None:
    """Each tensor has so many dimensions.

    Raises:
        ValueError: it has more or fewer.
    """
    for name, tensor in tensors.items():
        if tensor.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimensions, {dimensions}; got shape {tuple(tensor.shape)}")


def unit_stride(**tensors: torch.Tensor) -> None:
    """The elements of each tensor's last dimension are adjacent.

    Raises:
        ValueError: they are not.
    """
    for name, tensor in tensors.items():
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(
                f"{name} needs a last dimension of stride 1, got strides {tensor.stride()}; call .contiguous() first"
            )


def no_overlap(**tensors: torch.Tensor) -> None:
    """No two elements of a tensor that is written share memory.

    Raises:
        ValueError: some do.
    """
    for name, tensor in tensors.items():
        repeated = any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride()))
        if repeated or (not torch.compiler.is_compiling() and overlap.itself(tensor)):  # it sorts: nobody traces that
            raise ValueError(
                f"{name} is written, but its strides {tensor.stride()} share elements; call .clone() first"
            )


def apart(written: dict[str, torch.Tensor], others: dict[str, torch.Tensor | None]) -> None:
    """No tensor that is written shares memory with one of the others, or with another that is written.

    Not while `torch.compile` traces: there is no memory yet.

    Raises:
        ValueError: two do.
    """
    if torch.compiler.is_compiling() or any(map(without_memory, written.values())):
        return
    names = list(written)
    for i, name in enumerate(names):
        rest = {other: written[other] for other in names[i + 1 :]} | others
        for other, tensor in rest.items():
            if isinstance(tensor, torch.Tensor) and overlap.of(written[name], tensor):
                raise ValueError(f"{name} is written, and {other} shares memory with it; call {other}.clone() first")


def not_differentiable(**tensors: torch.Tensor) -> None:
    """None asks for a gradient that the function would not give.

    Raises:
        ValueError: one does, backward or forward.
    """
    for name, tensor in tensors.items():
        if torch.is_grad_enabled() and tensor.requires_grad:
            raise ValueError(
                f"{name} requires grad, and no gradient flows to it here; call {name}.detach() or use torch.no_grad()"
            )
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
            raise ValueError(f"{name} has a tangent, and none flows through here; pass its primal value")


def values_are_checked(tensor: torch.Tensor) -> bool:
    """Whether to look at a tensor's values: on the CPU; on a GPU, which must wait for it, if the variable is 1.

    Not while `torch.compile` traces: there are no values yet, and what is traced does not look at them later.
    """
    if torch.compiler.is_compiling() or without_memory(tensor):
        return False
    return tensor.device.type == "cpu" or (tensor.is_cuda and os.environ.get(VARIABLE) == "1")


def without_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor has a shape only: on "meta", or under PyTorch's FakeTensorMode."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def whole_number(**value: int) -> int:
    """The number, as an int of Python's; one of NumPy's will do.

    Raises:
        TypeError: it is none.
    """
    ((name, number),) = value.items()
    if isinstance(number, bool) or not isinstance(number, (int, numbers.Integral)):
        raise TypeError(f"{name} must be an int, got {type(number).__name__} {number!r}")
    return number if isinstance(number, int) else int(number)


def number(**values: float) -> None:
    """Each is a number of Python's.

    Raises:
        TypeError: it is not.
    """
    for name, value in values.items():
        if not isinstance(value, (int, float)):
            raise TypeError(f"{name} must be a number, got {type(value).__name__}")


def below(limit: int, what: str, least: int | None = 0, **tensor: torch.Tensor) -> None:
    """Every value lies in [least, limit); `what` says of what. Only where values are looked at.

    Raises:
        ValueError: one does not.
    """
    ((name, index),) = tensor.items()
    if not values_are_checked(index):
        return
    wrong = index >= limit if least is None else (index < least) | (index >= limit)
    if wrong.any():
        place = tuple(torch.nonzero(wrong)[0].tolist())
        where = f"{name}[{', '.join(map(str, place))}]"
        bounds = f"below {limit}" if least is None else f"in [{least}, {limit})"
        raise ValueError(f"{where} is {index[place].item()} but must be {bounds}, {what}")
