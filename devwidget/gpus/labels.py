"""Which virtual device a storage is on: labels keyed by the storage, so that views, `.data` and autograd follow by themselves.

A label is a small number: an ordinal of a GPU, CPU, or TEMPORARY. Storages without an entry are on the CPU.
TEMPORARY is for tensors that torch's own C++ code creates from the options of another tensor: all it could read there
was the real device, so the label adopts that of its first partner. A tensor comes to another device by a move, a copy that
every mode sees."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from devwidget.capture.memory.roles import MemoryBlock
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.gpus import errors, torch_internals
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import DisableTorchFunction, FakeTensor, TensorBase, functorch, to_copy
from devwidget.gpus.virtual_machine import MOST_GPUS

TEMPORARY = -1
CPU = -2
META = -3

LABELS: dict[int, int] = {}
"""Address of a storage -> label. Entries go when their storage dies, so an address that is used again is new."""
DEVICES = [torch.device("cuda", index) for index in range(MOST_GPUS)]
"""The GPUs by their ordinals; a list that stays, because many hold it."""
CPU_DEVICE = torch.device("cpu")
META_DEVICE = torch.device("meta")
real_device: Callable[[torch.Tensor], torch.device] = TensorBase.device.__get__
storage_id: Callable[[torch.Tensor], int] = torch_internals.storage_id
"""Read without `__torch_function__`, unlike every method of a tensor."""


class _Inside(threading.local):
    """How deep this thread is in operators that are written in Python: they must see the real device;
    and in moves of the user's subclasses, whose code copies their parts."""

    depth = 0
    moved_subclasses = 0


inside = _Inside()


@contextlib.contextmanager
def seeing_real_devices() -> Iterator[None]:
    """As operators that are written in Python must."""
    inside.depth += 1
    try:
        yield
    finally:
        inside.depth -= 1


# An attribute and no weak reference: torch keeps the Python object of a storage as long as C++ holds the storage, also while
# no variable of Python does, so that what hangs on the object goes when the memory goes.
class LabelledStorage:
    """Lives on a storage object and ends its label when the storage dies."""

    __slots__ = ("address", "block", "ledger")

    def __init__(self, address: int, block: MemoryBlock | None) -> None:
        self.address, self.block, self.ledger = address, block, simulation.ledger

    def __del__(self) -> None:
        # Module globals may be gone while the interpreter shuts down, so only what the object holds is used.
        # A storage that outlives its simulation must not take the label of another at the same address in the next one.
        if self.ledger is simulation.ledger:
            LABELS.pop(self.address, None)
        if self.block is not None:
            self.ledger.freed.append(self.block)


def label_of(tensor: torch.Tensor) -> int:
    """The label of any tensor, sparse ones included."""
    try:
        label = LABELS.get(storage_id(tensor), CPU)
        # A call costs as much as all of this, so plain tensors are told apart in place.
        if label != CPU or (kind := type(tensor)) is torch.nn.Parameter or kind is torch.Tensor:
            return label
        return _label_of_wrapper(tensor)
    except NotImplementedError:
        part = _part_with_storage(tensor)
        if part is not None:
            return label_of(part)
        if tensor.is_mkldnn:
            return CPU
        return TEMPORARY


def list_tensors(value: object) -> list[torch.Tensor]:
    """A tensor, or the tensors of a list."""
    values = value if isinstance(value, (list, tuple)) else (value,)
    return [each for each in values if isinstance(each, torch.Tensor)]


def is_plain(tensor: object) -> bool:
    """Whether it is a tensor and no subclass of the user's, whose metaclass is not asked."""
    kind = type(tensor)
    return kind is torch.Tensor or kind is torch.nn.Parameter


def _label_of_wrapper(tensor: torch.Tensor) -> int:
    """Fake tensors say themselves where they would be; those that are spread over ranks are where their own part is."""
    if (part := getattr(tensor, "_local_tensor", None)) is not None:
        return label_of(part)
    if isinstance(tensor, FakeTensor):
        device = getattr(tensor, "fake_device", CPU_DEVICE)
    else:
        device = CPU_DEVICE
    return device.index if device.type == "cuda" else CPU


def name_wrapper(tensor: torch.Tensor, label: int) -> None:
    """Say where a tensor is that has no memory, being made of others."""
    with DisableTorchFunction(), hide_from_modes():
        storage = tensor.untyped_storage()
    storage._devwidget = LabelledStorage(storage._cdata, None)  # type: ignore[attr-defined]
    LABELS[storage._cdata] = label


def _part_with_storage(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a sparse tensor, or what functorch wraps; None for `vectorize=True`: those go with their partners."""
    with hide_from_modes(), DisableTorchFunction():
        if functorch.is_functorch_wrapped_tensor(tensor):
            return functorch.get_unwrapped(tensor)  # type: ignore[no-any-return]
        parts = _storage_parts(tensor)
        return parts[-1] if parts else None


def put_label(tensor: torch.Tensor, label: int) -> None:
    """Say that the storage of a tensor is on a GPU, or is a temporary; what does not fit is not labelled and raises."""
    try:
        address = storage_id(tensor)
    except NotImplementedError:
        with hide_from_modes(), DisableTorchFunction():
            for part in _storage_parts(tensor):
                put_label(part, label)
        return
    if LABELS.get(address, CPU) != label:
        label_storage(_storage_of(tensor), label)


def label_new(tensor: torch.Tensor, label: int) -> None:
    """Say where the result of an operator is, unless it shares the storage of a tensor that has a label."""
    try:
        address = storage_id(tensor)
    except NotImplementedError:
        put_label(tensor, label)
        return
    if address not in LABELS:
        label_storage(_storage_of(tensor), label)


def _storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """The storage, read without `__torch_function__`; to ask whether there is one is cheaper than to switch it off."""
    if not has_torch_function_unary(tensor):
        return tensor.untyped_storage()
    with DisableTorchFunction():
        return tensor.untyped_storage()


def _storage_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


def blocks_of(tensor: torch.Tensor) -> tuple[MemoryBlock, ...]:
    """The allocations that a tensor lives in; none if it is on no GPU."""
    try:
        if is_plain(tensor):  # without the guards, which cost more than the answer
            if storage_id(tensor) in LABELS:
                return _listed(block_of_storage(_storage_of(tensor)))
            return ()
    except NotImplementedError:  # sparse, or one of functorch's
        pass
    with hide_from_modes(), DisableTorchFunction():
        if tensor.layout != torch.strided:
            return tuple(block for part in _storage_parts(tensor) for block in blocks_of(part))
        try:
            return _listed(block_of_storage(tensor.untyped_storage()))
        except NotImplementedError:  # functorch's wrappers, and others without storage
            return ()


def block_of_storage(storage: torch.UntypedStorage) -> MemoryBlock | None:
    """The allocation of a storage; None if it is on no GPU."""
    allocation: LabelledStorage | None = getattr(storage, "_devwidget", None)
    return None if allocation is None else allocation.block


def _listed(block: MemoryBlock | None) -> tuple[MemoryBlock, ...]:
    return () if block is None else (block,)


def label_storage(storage: torch.UntypedStorage, label: int) -> None:
    """Put a label on a storage object, in place of any other; raises `OutOfMemoryError` if that GPU has no room."""
    address = storage._cdata
    if label == CPU:
        storage._devwidget = None  # type: ignore[attr-defined]
        # Already gone with the allocation, unless that is held elsewhere.
        LABELS.pop(address, None)
        return
    block = take_bytes(label, storage.nbytes()) if label >= 0 else None
    if address in LABELS:
        # Whenever the old one dies, the entry is no longer its own.
        storage._devwidget.address = 0  # type: ignore[attr-defined]
    storage._devwidget = LabelledStorage(address, block)  # type: ignore[attr-defined]
    LABELS[address] = label


def take_bytes(index: int, size: int) -> MemoryBlock:
    """A block on a GPU; raises `OutOfMemoryError` if that has no room."""
    block = simulation.ledger.take_bytes(index, size)
    if block is None:
        raise errors.out_of_memory(index, size)
    return block


def measure_storage(storage: torch.UntypedStorage) -> None:
    """Count a storage anew."""
    label = LABELS.get(storage._cdata, CPU)
    held = getattr(storage, "_devwidget", None)
    if label >= 0 and held is not None and not simulation.ledger.accounts[label].is_for(held.block, storage.nbytes()):
        label_storage(storage, label)


def device_of(tensor: torch.Tensor) -> torch.device:
    """The device that the user sees."""
    label = label_of(tensor)
    if label >= 0:
        return DEVICES[label]
    if simulation.compute:
        return real_device(tensor)
    return device_for_label(label)


def name_of(label: int) -> str:
    """`cuda:1`, as in messages."""
    return str(device_for_label(label))


def mark_pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Remember that the memory of a CPU tensor is page-locked; returns the tensor."""
    with DisableTorchFunction():
        tensor.untyped_storage()._devwidget_pinned = True  # type: ignore[attr-defined]
    return tensor


def pin_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in page-locked memory. Source: `pin_memory` in `Memory.cpp`."""
    if label_of(tensor) >= 0:
        kind = errors.type_text(tensor.dtype, True)
        raise RuntimeError(f"cannot pin '{kind}' only dense CPU tensors can be pinned")
    return mark_pinned(tensor.clone())


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether the memory of a tensor is page-locked."""
    if tensor.layout != torch.strided:
        return False
    with DisableTorchFunction():
        return getattr(tensor.untyped_storage(), "_devwidget_pinned", False)


VIRTUAL_GENERATORS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""By the address of the C++ object: on its way to a mode, torch wraps a generator in a new Python object."""


def device_for_label(label: int) -> torch.device:
    """The device to write into a call for a label."""
    if label >= 0:
        return DEVICES[label]
    if label == META:
        return META_DEVICE
    return CPU_DEVICE


class _DifferentiableMove(torch.autograd.Function):
    """A copy to another device whose gradient is copied back.

    autograd's own node would not do: it compares the real devices, which are equal.
    """

    generate_vmap_rule = True  # `torch.func` takes no function without one, nor one whose `forward` is given the context

    @staticmethod
    def forward(tensor: torch.Tensor, label: int, options: dict[str, Any]) -> torch.Tensor:
        return _copy_to(tensor, label, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, int, dict[str, Any]], output: torch.Tensor) -> None:
        ctx.source, ctx.dtype = label_of(inputs[0]), inputs[0].dtype
        ctx.target, ctx.moved_dtype = inputs[1], output.dtype

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return move_tensor(gradients[0], ctx.source, {"dtype": ctx.dtype}), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor) -> torch.Tensor:
        return move_tensor(tangents[0], ctx.target, {"dtype": ctx.moved_dtype})


def move_tensor(tensor: torch.Tensor, label: int, options: dict[str, Any] | None = None) -> torch.Tensor:
    """A copy of a tensor on another device, with options as `_to_copy` takes them: dtype, non_blocking and memory_format."""
    options = options or {}
    dtype = options.get("dtype") or tensor.dtype
    if tensor.requires_grad and torch.is_grad_enabled() and (dtype.is_floating_point or dtype.is_complex):
        result: torch.Tensor = _DifferentiableMove.apply(tensor, label, options)  # type: ignore[no-untyped-call]
        return result
    return _copy_to(tensor, label, options)


def _copy_to(tensor: torch.Tensor, label: int, options: dict[str, Any]) -> torch.Tensor:
    """Marked as intended by the user (`find_asked_label` in operators.py), without an option that a subclass would not know."""
    if is_plain(tensor):
        return to_copy(tensor, device=device_for_label(label), pin_memory=False, **options)  # type: ignore[no-any-return]
    inside.moved_subclasses += 1
    try:
        return to_copy(tensor, device=device_for_label(label), **options)  # type: ignore[no-any-return]
    finally:
        inside.moved_subclasses -= 1
