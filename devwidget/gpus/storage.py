"""Storages that know their virtual device: what deepcopy, pickle, `torch.save` and `torch.load` work with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.gpus import conversions, labels, moves
from devwidget.gpus.labels import CPU, DEVICES, LABELS, META
from devwidget.gpus.patching import Patches, replacing, wrap_with_refusal
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.torch_internals import StorageBase
from devwidget.records.schema.message import Message

_real_device = StorageBase.device.__get__
Storage = torch.UntypedStorage


def install(patches: Patches) -> None:
    """Replace what has to know virtual devices on `torch.UntypedStorage`."""
    patches.set(Storage, "device", property(storage_device))
    patches.set(Storage, "__new__", staticmethod(new_storage))
    for name, wrapper in {**METHODS, "cuda": wrap_to_gpu}.items():
        patches.wrap(Storage, name, wrapper)


def new_storage(cls: type[Storage], *args: Any, device: Any = None, **kwargs: Any) -> Storage:
    """A storage on a virtual GPU, or a real one."""
    label = CPU if device is None else conversions.label_of_device(device)
    if label >= 0:
        device = "cpu" if SimulationState.compute else "meta"
    made: Storage = StorageBase.__new__(cls, *args, **kwargs, **({} if device is None else {"device": device}))
    if label >= 0:
        labels.label_storage(made, label)
    return made


def storage_device(self: Storage) -> torch.device:
    """The virtual device."""
    label = LABELS.get(self._cdata, CPU)
    return DEVICES[label] if label >= 0 else moves.visible_device(_real_device(self), label)


@replacing
def wrap_clone(original: Callable[[Storage], Storage], self: Storage) -> Storage:
    """A copy on the same device."""
    return copy_storage(self, LABELS.get(self._cdata, CPU))


def copy_storage(storage: Storage, label: int) -> Storage:
    """A copy of a storage under a label.

    Raises:
        NotImplementedError: if it is on meta, and the copy is not to be.
    """
    if label != META and storage.device.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    # Copying a storage makes tensors on the way.
    with hide_from_modes():
        values = not (label == META or _real_device(storage).type == "meta")
        copy: Storage = Storage(storage.nbytes(), device="cpu" if values else "meta")  # type: ignore[no-untyped-call]
        if values:
            copy.copy_(storage)
        if label != META:
            SimulationState.values.copy_known(storage, copy)
    if label >= 0 or (label == META and not SimulationState.compute):
        labels.label_storage(copy, label)
    return copy


@replacing
def wrap_to(original: Callable[..., Storage], self: Storage, *, device: Any, non_blocking: bool = False) -> Storage:
    """A copy on another device, or the storage itself."""
    label = conversions.label_of_device(device)
    if self.device == moves.device_for_label(label):
        return self
    copy = copy_storage(self, label)
    if non_blocking and label == CPU:
        copy._devwidget_pinned = True  # type: ignore[attr-defined]
    return copy


@replacing
def wrap_cpu(original: Callable[..., Storage], self: Storage) -> Storage:
    """A copy on the CPU, or the storage itself."""
    host: Storage = self.to(device="cpu")
    return host


@replacing
def wrap_to_gpu(original: Callable[..., Storage], self: Storage, device: Any = None, non_blocking: bool = False) -> Storage:
    """A copy on a GPU, or the storage itself."""
    named = "cuda" if device is None else DEVICES[conversions.label_of_device(device)]
    there: Storage = self.to(device=named)
    return there


@replacing
def is_pinned(original: Callable[..., bool], self: Storage, device: Any = None) -> bool:
    """Whether it is page-locked."""
    return getattr(self, "_devwidget_pinned", False)


@replacing
def is_shared(original: Callable[..., bool], self: Storage) -> bool:
    """Memory of a GPU is always."""
    return LABELS.get(self._cdata, CPU) >= 0 or original(self)


@replacing
def pin_memory(original: Callable[..., Storage], self: Storage, device: Any = None) -> Storage:
    """A page-locked copy."""
    if self.device.type != "cpu":
        raise TypeError(f"cannot pin '{self.type()}' only CPU memory can be pinned")
    pinned = copy_storage(self, CPU)
    pinned._devwidget_pinned = True  # type: ignore[attr-defined]
    return pinned


@replacing
def wrap_resize_(original: Callable[[Storage, int], Any], self: Storage, size: int) -> Any:
    """A change of size that is counted."""
    result = original(self, size)
    labels.measure_storage(self)
    return result


@replacing
def data_ptr(original: Callable[[Storage], int], self: Storage) -> int:
    """As that of a tensor."""
    return original(self) if SimulationState.compute or _real_device(self).type != "meta" else int(self._cdata)


def refuse_sharing(original: Callable[..., Any]) -> Callable[..., Any]:
    """A handle for another process, whose GPUs have a memory of their own."""
    refused = wrap_with_refusal(
        Message("a tensor of a virtual GPU cannot be sent to another process"),
        why=Message("each process has a memory of its own for each virtual GPU"),
        instead=Message("send `tensor.cpu()`, and move it where it arrives"),
    )(original)

    @functools.wraps(original)
    def _share_cuda_(self: Storage, *args: Any, **kwargs: Any) -> Any:
        if LABELS.get(self._cdata, CPU) < 0:
            raise RuntimeError(f"{original.__name__}: only available on CUDA")
        return refused(self, *args, **kwargs)

    return _share_cuda_


METHODS: dict[str, Callable[[Any], Any]] = {
    "clone": wrap_clone,
    "data_ptr": data_ptr,
    "resize_": wrap_resize_,
    "to": wrap_to,
    "cpu": wrap_cpu,
    "is_pinned": is_pinned,
    "pin_memory": pin_memory,
    "is_shared": is_shared,
    "_share_cuda_": refuse_sharing,
}
