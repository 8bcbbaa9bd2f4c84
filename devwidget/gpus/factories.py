"""Functions that make tensors: integer devices for all, and those that never reach a mode with their device."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.dlpack
from torch.overrides import handle_torch_function, has_torch_function

from devwidget.capture.devices import default_device
from devwidget.gpus import conversions, labels, moves
from devwidget.gpus import errors as cuda_errors
from devwidget.gpus.labels import CPU, CPU_DEVICE, META, META_DEVICE
from devwidget.gpus.patching import Patches, replacing, wrap_with_refusal
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import device_constructors, tree_map_only
from devwidget.records.schema.message import Message

TAKE_DEVICE = """arange empty empty_like empty_permuted empty_strided eye full full_like linspace logspace normal ones
ones_like rand rand_like randint randint_like randn randn_like randperm range scalar_tensor zeros zeros_like tril_indices
triu_indices hann_window hamming_window bartlett_window blackman_window kaiser_window """.split()
SPARSE = """sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor
sparse_compressed_tensor""".split()
TENSOR_METHODS = "new_empty new_empty_strided new_full new_ones new_zeros".split()


def install(patches: Patches) -> None:
    """Replace the factories of torch."""
    # Cached by torch: asked before anything is replaced.
    device_constructors()
    for name in TAKE_DEVICE:
        patches.wrap(torch, name, accept_integer_device)
    for name in SPARSE:
        patches.wrap(torch, name, wrap_sparse)
    for name in TENSOR_METHODS:
        patches.wrap(torch.Tensor, name, accept_integer_device)
    for name in ("tensor", "as_tensor", "asarray"):
        patches.wrap(torch, name, wrap_from_data)
    patches.wrap(torch.nested, "nested_tensor", place_with_first)
    patches.wrap(torch.Tensor, "new_tensor", new_tensor)
    for owner, name in ((torch.Tensor, "__dlpack__"), (torch, "to_dlpack"), (torch.utils.dlpack, "to_dlpack")):
        patches.wrap(owner, name, refuse_gpu_memory)
    patches.wrap(torch, "from_dlpack", from_dlpack)
    patches.wrap(torch.utils.dlpack, "from_dlpack", from_dlpack)


@replacing
def accept_integer_device(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same factory, for which `device=1` is a GPU: C++ would ask for an accelerator."""
    if isinstance(kwargs.get("device"), int):
        kwargs["device"] = conversions.as_device(kwargs["device"])
    if kwargs.get("out") is not None:
        name_out_device(kwargs)
    return original(*args, **kwargs)


def name_out_device(kwargs: dict[str, Any]) -> None:
    """Name the real device in a call that fills a given tensor: C++ compares them, the default device included.

    Raises:
        RuntimeError: if the tensor is of another kind. Source: `check_out_type_matches` in `python_torch_functions_manual.cpp`.
    """
    out, named = kwargs["out"], kwargs.get("device")
    asked = default_device() if named is None else torch.device(named)
    if named is None and asked.type == "cpu":
        return
    if asked.type != labels.device_of(out).type:
        raise RuntimeError(
            f"device type {asked.type} does not match device type of out parameter ({labels.device_of(out).type})"
        )
    kwargs["device"] = CPU_DEVICE if SimulationState.compute else META_DEVICE


@replacing
def wrap_from_data(original: Callable[..., torch.Tensor], data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.tensor` and its kin: they fill a CPU tensor behind the modes' back and move it there."""
    public = getattr(torch, original.__name__)
    if has_torch_function((data,)):
        return handle_torch_function(public, (data,), data, *args, **kwargs)  # type: ignore[no-any-return]
    device = kwargs.pop("device", None)
    if isinstance(data, torch.Tensor) and original.__name__ != "tensor":
        return _as_tensor(original, data, device, args, kwargs)
    label = _label_for(data, device)
    pinned = kwargs.pop("pin_memory", False)
    kwargs["device"] = META_DEVICE if label == META and SimulationState.compute else CPU_DEVICE
    if isinstance(data, torch.Tensor) and labels.label_of(data) >= 0:
        data = data.cpu()
    result = _own_memory(original(SimulationState.values.read_numbers(data), *args, **kwargs), label)
    return labels.mark_pinned(result) if pinned and label == CPU else _label_result(result, label)


@replacing
def wrap_sparse(original: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """Sparse factories: they convert lists behind the modes' back, so the tensor is moved when it is complete."""
    values = kwargs.get("values", next((arg for arg in reversed(args) if isinstance(arg, torch.Tensor)), None))
    device = kwargs.pop("device", None)
    if isinstance(values, torch.Tensor):
        if device is None:
            _check_parts(original.__name__, kwargs.get("indices", args[0] if args else None), values)
            device = moves.device_for_label(moves.own_label(values))
        args, kwargs = _make_indices(original.__name__, args, kwargs)
    if device is not None:
        device = conversions.as_device(device)
        args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (args, kwargs))
    result = original(*args, **kwargs)
    return result if device is None else result.to(device)


def _check_parts(name: str, indices: Any, values: torch.Tensor) -> None:
    if name != "sparse_coo_tensor" or not isinstance(indices, torch.Tensor):
        return
    here, there = (str(labels.device_of(tensor)) for tensor in (indices, values))
    if here != there:
        raise cuda_errors.checked_argument("values", there, here, "__sparse_coo_tensor_with_dims_and_tensors", "Sparse")


def _make_indices(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with tensors for indices that are written as numbers: they go where the values are."""
    count = 1 if name == "sparse_coo_tensor" else 2
    indices = (torch.tensor(part) if isinstance(part, list) else part for part in args[:count])
    named = {key: torch.tensor(value) for key, value in kwargs.items() if key.endswith("indices") and isinstance(value, list)}
    return (*indices, *args[count:]), kwargs | named


@replacing
def place_with_first(
    original: Callable[..., torch.Tensor], tensor_list: Any, *, device: Any = None, **kwargs: Any
) -> torch.Tensor:
    """`torch.nested.nested_tensor`, which goes where the first of its tensors is, and reads that in C++."""
    first = next(iter(tensor_list), None)
    if device is None and isinstance(first, torch.Tensor):
        device = moves.device_for_label(moves.own_label(first))
    return original(tensor_list, device=conversions.as_device(device), **kwargs)


def _label_for(data: Any, device: Any) -> int:
    """Where the result goes: where it is told to, else where the data are."""
    if device is not None:
        return conversions.label_of_device(device)
    if isinstance(data, torch.Tensor):
        return max(labels.label_of(data), CPU)
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    if isinstance(data, torch.Tensor) and data.dim() > 0:
        return max(labels.label_of(data), CPU)
    return CPU


def _as_tensor(original: Any, data: torch.Tensor, device: Any, args: Any, kwargs: Any) -> torch.Tensor:
    dtype = kwargs.get("dtype") or (args[0] if args else None) or data.dtype
    if device is not None:
        result = data.to(conversions.as_device(device), dtype, copy=bool(kwargs.get("copy")))
    else:
        result = data.to(dtype, copy=bool(kwargs.get("copy")))
    requires_grad = kwargs.get("requires_grad")
    return result if requires_grad is None else result.detach().requires_grad_(requires_grad)


def _own_memory(tensor: torch.Tensor, label: int) -> torch.Tensor:
    """A GPU never shares memory with numpy: where the factory would, copy."""
    return tensor.clone() if label >= 0 and not tensor.untyped_storage().resizable() else tensor


def _label_result(tensor: torch.Tensor, label: int) -> torch.Tensor:
    tensor = SimulationState.values.strip_values(tensor)
    if label >= 0 or (label == META and not SimulationState.compute):
        labels.put_label(tensor, label)
    return tensor


def refuse_gpu_memory(original: Callable[..., Any]) -> Callable[..., Any]:
    """What hands the memory of a tensor to other libraries, which would take it for that of the CPU."""
    refused = wrap_with_refusal(
        Message("virtual GPUs hand no memory to other libraries"),
        why=Message("what these found there would be the CPU's"),
        instead="x.cpu()",
    )(original)

    @functools.wraps(original)
    def to_dlpack(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return (refused if labels.label_of(tensor) >= 0 else original)(tensor, *args, **kwargs)

    return to_dlpack


@replacing
def from_dlpack(original: Callable[..., torch.Tensor], ext_tensor: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.from_dlpack`, which would take a tensor of torch's own by its real device."""
    return ext_tensor.detach() if isinstance(ext_tensor, torch.Tensor) else original(ext_tensor, **kwargs)


@replacing
def new_tensor(original: Callable[..., torch.Tensor], self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor.new_tensor`: on the device of the tensor, unless told otherwise."""
    if has_torch_function((self,)):
        return handle_torch_function(torch.Tensor.new_tensor, (self,), self, data, **kwargs)
    device = kwargs.pop("device", None)
    label = max(labels.label_of(self), CPU) if device is None else conversions.label_of_device(device)
    if isinstance(data, torch.Tensor) and labels.label_of(data) >= 0:
        data = data.cpu()
    values = SimulationState.values
    return _label_result(original(values.read_values(self), values.read_numbers(data), **kwargs), label)
