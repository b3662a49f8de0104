"""PyTorch's operations on tensors of the device: each runs on the CPU, on the same bytes, in any thread.

PyTorch calls `_on_device` for every operation that has no code for CUDA, which in its CPU build is every one. Results
are on the device; those that share a storage with an argument are views of it there as well.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from gfxlab.pretended import attaching, cells, collectives, generators, measuring, memory, products, softmaxes

_aten = torch.ops.aten
_libraries: list[torch.library.Library] = []

# A CPU tensor beside tensors of the device: copies, and indices, which PyTorch moves by itself.
_MIXED = {"aten::copy_", "aten::_copy_from", "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::set_"}
_MIXED |= {"aten::_unsafe_index", "aten::_unsafe_index_put", "aten::index_put", "aten::to_padded_tensor"}
_MIXED |= {
    "aten::_pack_padded_sequence",
    "aten::_ctc_loss",
    "aten::_use_cudnn_ctc_loss",
    "aten::_cudnn_ctc_loss",
    "aten::repeat_interleave",
    "aten::_to_copy",
}
_INDEXED = {f"aten::{name}" for name in ("index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put")}
_SIZES_STAY = {"aten::_pack_padded_sequence"}  # its second result is on the CPU on a card, too
_EMPTY = {f"aten::{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")}
_MUCH = 1 << 14  # elements of an argument

# Sums over many rows, which the CPU adds up in 16 bits and a card in 32.
_IN_FLOAT = {f"aten::{name}_backward" for name in ("native_layer_norm", "native_group_norm", "native_batch_norm")}
_IN_FLOAT |= {"aten::embedding_dense_backward", "aten::native_layer_norm"}


def install() -> None:
    """Register with PyTorch's dispatcher; once for the process, so that tensors live on when a pretence ends."""
    if _libraries:
        return
    attaching.install()
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(_on_device, "CUDA")
    for key in ("SparseCUDA", "SparseCsrCUDA"):
        everything.fallback(_on_sparse, key)
    aten = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():  # PyTorch warns that its own compositions are overridden
        warnings.simplefilter("ignore")
        for op in dict.fromkeys(_composed()):
            aten.impl(op, partial(_on_device, op), "CUDA")
    for key in ("AutogradCUDA", "CUDA"):
        aten.impl("scaled_dot_product_attention", _attention, key)
    aten.impl("_efficientzerotensor", partial(_on_device, _aten.zeros.default), "CUDA")  # a tensor without memory
    cells.install(aten)
    products.install(aten)
    softmaxes.install(aten, _on_device)
    for name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"):
        for overload in (name, f"{name}.Tensor"):
            aten.impl(overload, lambda *given: False, "CUDA")
    torch.library._impls.difference_update(aten._op_impls)  # a library of the user's may register over these
    _libraries.extend((everything, aten, collectives.install(_on_device)))


def _composed() -> Iterator[Any]:
    """Operations that PyTorch composes of others for any device, and half way down asks for a GPU's code.

    Views stay PyTorch's: what they are composed of ends in `alias` and `as_strided_`, which need none.
    """
    for key in ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"):
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(key):
            space, _, rest = name.partition("::")
            base, _, overload = rest.partition(".")
            if space != "aten" or not hasattr(_aten, base):
                continue
            op = getattr(getattr(_aten, base), overload or "default", None)
            if op is not None and not _is_view(op) and torch.Tag.inplace_view not in op.tags:
                yield op


def _is_written(parameter: Any) -> bool:
    return parameter.alias_info is not None and parameter.alias_info.is_write


def _without_content(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, device="meta")


def _is_view(op: Any) -> bool:
    kinds = [argument.alias_info for argument in op._schema.arguments]
    return any(kind is not None and not kind.is_write for kind in kinds)


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    if attn_mask is not None and attn_mask.dtype == torch.bool:  # which PyTorch's own wrapper would have made numbers
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, -torch.inf)
    return _aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def _on_sparse(op: Any, *args: Any, **kwargs: Any) -> Any:
    raise attaching.CannotPretend(f"{op._schema.name}: a sparse tensor cannot be pretended, only dense ones")


def _on_device(op: Any, *args: Any, **kwargs: Any) -> Any:
    call = _Call(op, args, kwargs)
    call.check()
    if measuring.counts() is not None and call.expensive:  # nobody looks at the results
        try:
            return call.undone()
        except (RuntimeError, NotImplementedError, TypeError):  # its sizes depend on the numbers
            pass
    try:
        with measuring.whole():
            return call.run(memory.fixed_host)
    except NotImplementedError as error:
        if not str(error).startswith("Could not run"):
            raise
        raise attaching.CannotPretend(f"{call.name} has no code for the CPU: a pretended GPU cannot run it") from None
    except RuntimeError as error:
        if full := re.search(r"you tried to allocate (\d+) bytes", str(error)):
            raise memory.no_room(int(full[1])) from None
        if "resize storage that is not resizable" not in str(error):
            raise
        return call.run(lambda out: torch.empty(0, dtype=out.dtype, device="cpu"))


class _Call:
    """One operation and its arguments."""

    def __init__(self, op: Any, args: tuple, kwargs: dict[str, Any]):
        self.op, self.args, self.kwargs = op, args, kwargs
        self.name = op._schema.name
        self.parameters = {argument.name: argument for argument in op._schema.arguments}
        self.given = {**dict(zip(self.parameters, args, strict=False)), **kwargs}

    @property
    def expensive(self) -> bool:
        """Whether it computes much; views cost nothing."""
        sizes = [tensor.numel() for tensor in _tensors(self.given.values())]
        return max(sizes, default=0) > _MUCH and not _is_view(self.op)

    def check(self) -> None:
        """Refuse what a card refuses: tensors of two devices, a device that is not there.

        Raises:
            RuntimeError: in PyTorch's words.
        """
        device = self.kwargs.get("device")
        if device is not None and device.type == "cuda" and (device.index or 0) > 0:
            raise RuntimeError(
                f"HIP error: invalid device ordinal: {device}; the pretended machine has one GPU, cuda:0"
            )
        if self.name in _INDEXED:
            self._check_indexed()
        if self.name in _MIXED:
            return
        for tensor in _tensors(self.given.values()):
            if not tensor.is_cuda and tensor.dim() and tensor.device.type != "meta":
                raise RuntimeError(_two_devices(tensor.device, self.name))

    def _check_indexed(self) -> None:
        """A CPU tensor takes no index of the device, and the device's takes values of its own, or one number."""
        if not self.given["self"].is_cuda:
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        values = self.given.get("values")
        if values is not None and not values.is_cuda and values.dim():
            raise RuntimeError(_two_devices(values.device, self.name))

    def run(self, out: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """Run on the CPU; `out` gives the CPU's tensor for one that the operation only writes."""
        here: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # id of the CPU's tensor -> it, and the device's

        def down(value: Any, parameter: Any = None) -> Any:
            if isinstance(value, torch.Tensor):
                if not value.is_cuda:
                    return value
                written = parameter is not None and parameter.is_out
                tensor = out(value) if written and value.numel() else memory.host(value)
                here[id(tensor)] = (tensor, value)
                return tensor
            if isinstance(value, list | tuple):
                return type(value)(down(item, parameter) for item in value)
            if isinstance(value, torch.device):
                return torch.device("cpu") if value.type == "cuda" else value
            if isinstance(value, torch.UntypedStorage) and value.is_cuda:
                return memory.host_storage(value)
            return value

        names = list(self.parameters)
        args = [down(value, self.parameters[names[i]]) for i, value in enumerate(self.args)]
        kwargs = {name: down(value, self.parameters[name]) for name, value in self.kwargs.items()}
        with generators.drawing(self.op, self.given.get("generator")):
            result = _in_float(self.op, args, kwargs) if self.name in _IN_FLOAT else self.op(*args, **kwargs)
        for tensor, device in here.values():
            _follow(tensor, device)
        for name, parameter in self.parameters.items():
            if _is_written(parameter):
                for tensor in _tensors([self.given.get(name)]):
                    memory.filled(tensor)
        storages = {tensor.untyped_storage()._cdata: device for tensor, device in here.values()}
        stays = self.kwargs.get("device") is not None and self.kwargs["device"].type != "cuda"
        if stays:
            return result
        if self.name in _SIZES_STAY:
            return self._up(result[0], here, storages), result[1]
        result = self._up(result, here, storages)
        if self.name in _EMPTY:
            memory.made_empty(result)
        return result

    def _up(self, result: Any, here: dict, storages: dict) -> Any:
        if isinstance(result, torch.Tensor):
            if id(result) in here:
                return here[id(result)][1]
            if any(result is value for value in _tensors(self.given.values())):
                return result  # a CPU tensor that was written, such as copy_'s
            memory.dense(result)
            source = storages.get(result.untyped_storage()._cdata)
            return memory.lend(_own(result)) if source is None else memory.alias(source, result)
        if isinstance(result, list | tuple):
            return type(result)(self._up(item, here, storages) for item in result)
        return result

    def undone(self) -> Any:
        """Results with the right sizes and no content."""
        written = [self.given[name] for name, parameter in self.parameters.items() if _is_written(parameter)]
        if written:
            return written[0] if len(written) == 1 else tuple(written)
        if self.kwargs.get("device") is not None and self.kwargs["device"].type != "cuda":
            raise NotImplementedError(f"{self.name} leaves the device")
        meta = [_map(value, _without_content) for value in self.args]
        kwargs = {name: _map(value, _without_content) for name, value in self.kwargs.items()}
        kwargs |= {"device": torch.device("meta")} if "device" in kwargs else {}
        result = self.op(*meta, **kwargs)
        return _map(result, lambda tensor: memory.lend(torch.empty_like(tensor, device="cpu")))


def _two_devices(other: torch.device, name: str) -> str:
    return (
        f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and {other}! ({name})"
    )


def _in_float(op: Any, args: list, kwargs: dict[str, Any]) -> Any:
    """The operation computed in float32; results are of the first argument's dtype."""
    narrow = args[0].dtype
    if narrow not in (torch.float16, torch.bfloat16):
        return op(*args, **kwargs)
    result = op(*(_map(value, lambda t: t.float() if t.is_floating_point() else t) for value in args), **kwargs)
    if op._schema.name == "aten::native_layer_norm":
        return (result[0].to(narrow), *result[1:])  # mean and reciprocal deviation stay float32, as on a card
    return _map(result, lambda tensor: tensor.to(narrow))


def _own(result: torch.Tensor) -> torch.Tensor:
    """A result with a storage of its own: a CPU tensor that somebody else holds is copied."""
    return result.detach() if result.requires_grad else result


def _follow(tensor: torch.Tensor, device: torch.Tensor) -> None:
    """Give a device tensor the sizes that an operation gave the CPU's, in place."""
    if tensor.size() == device.size() and tensor.stride() == device.stride():
        return
    same = (
        device.untyped_storage().nbytes() and tensor.untyped_storage().data_ptr() == device.untyped_storage().data_ptr()
    )
    if same:
        _aten.as_strided_(device, tensor.size(), tensor.stride(), tensor.storage_offset())
    else:
        device.data = memory.lend(tensor)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _map(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)(_map(item, function) for item in value)
    return value
