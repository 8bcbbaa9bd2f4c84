"""Values that are known although tensors have none: of small tensors, given or written down, kept with their storage.

Programs decide by them where to go next: by lengths, masks, positions, steps. What a model makes of its weights is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.interrupts import no_gradients
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.gpus.labels import META_DEVICE
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import DisableTorchFunction, TensorBase, tree_leaves, tree_map_only
from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message

MOST_BYTES, MOST_BYTES_OF_WHOLE = 2 << 20, 16 << 20
"""Of real numbers, and of whole ones and masks: a batch of two million tokens is known, and is computed in no time."""
_is_meta: Callable[[torch.Tensor], bool] = TensorBase.is_meta.__get__


class Unknown(Exception):
    """A tensor whose values are not known."""


class _Asked(threading.local):
    """Whether anything of what was last asked for in this thread is a guess, or follows from one."""

    has_guess = False


_asked = _Asked()


def is_small(tensor: torch.Tensor) -> bool:
    """Whether it is worth knowing."""
    return tensor.numel() * tensor.element_size() <= most_bytes(tensor.dtype)


def most_bytes(dtype: torch.dtype) -> int:
    """Return how many bytes of a dtype are worth knowing."""
    if dtype.is_floating_point or dtype.is_complex:
        return MOST_BYTES
    return MOST_BYTES_OF_WHOLE


def read_known(tensor: torch.Tensor) -> torch.Tensor:
    """A real tensor with the values of one that has none, sharing memory with what is kept; a real tensor is its own. Raise
    Unknown if its values are not known."""
    if tensor.layout != torch.strided or not is_small(tensor) or tensor.is_conj() or tensor.is_neg():
        raise Unknown
    with hide_from_modes(), DisableTorchFunction(), no_gradients():
        kept: Any = getattr(tensor.untyped_storage(), "_devwidget_values", None if _is_meta(tensor) else tensor)
        if kept is None:
            raise Unknown
        _asked.has_guess |= hasattr(kept, "_devwidget_guess")
        if isinstance(kept, torch.Tensor):
            return tensor.detach()
        return _view_storage(kept, tensor)


def _view_storage(storage: torch.UntypedStorage, tensor: torch.Tensor) -> torch.Tensor:
    view: torch.Tensor = torch.empty(0, dtype=tensor.dtype)
    return view.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def all_known(tree: Any) -> Any:
    """The same with real tensors, or None if the values of one are not known."""
    _asked.has_guess = False
    try:
        return tree_map_only(torch.Tensor, read_known, tree)
    except Unknown:
        return None


def are_guessed() -> bool:
    """Whether the values that were last asked for follow from a guess."""
    return _asked.has_guess


def all_read(tree: Any) -> Any:
    """As `all_known`, for a program that continues with these values: reports if they are guessed."""
    real = all_known(tree)
    if real is not None and _asked.has_guess and simulation.on_guess is not None:
        simulation.on_guess()
    return real


def keep_values(tensor: torch.Tensor, real: torch.Tensor | bool, guessed: bool = False) -> None:
    """Remember what a new tensor holds."""
    with hide_from_modes(), DisableTorchFunction(), no_gradients():
        storage = tensor.untyped_storage()
        # Of all the storage, so that views of the tensor read and write the same values.
        kept = torch.UntypedStorage(storage.nbytes())  # type: ignore[no-untyped-call]
        view = _view_storage(kept, tensor)
        for dim, (size, stride) in enumerate(zip(tensor.size(), tensor.stride(), strict=True)):
            # Expanded: all of these are one number.
            if stride == 0 and size > 1:
                view, real = view.narrow(dim, 0, 1), real.narrow(dim, 0, 1) if isinstance(real, torch.Tensor) else real
        view.copy_(real) if isinstance(real, torch.Tensor) else view.fill_(real)
        storage._devwidget_values = kept  # type: ignore[attr-defined]
        if guessed:
            kept._devwidget_guess = True  # type: ignore[attr-defined]


def keep_storage(tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
    """Remember all of a real storage, for a new tensor that is as large, and all its views."""
    if storage.nbytes() <= most_bytes(tensor.dtype):
        with hide_from_modes(), DisableTorchFunction():
            kept = torch.UntypedStorage(storage.nbytes())  # type: ignore[no-untyped-call]
            kept.copy_(storage)
            tensor.untyped_storage()._devwidget_values = kept  # type: ignore[attr-defined]


def mark_guessed(tree: Any) -> None:
    """Something guessed was written to these tensors."""
    for tensor in tree_leaves(tree):
        if isinstance(tensor, torch.Tensor) and _is_meta(tensor):
            with DisableTorchFunction():
                tensor.untyped_storage()._devwidget_values._devwidget_guess = True  # type: ignore[attr-defined]


def forget_values(tree: Any) -> None:
    """Something unknown was written to these tensors."""
    for tensor in tree_leaves(tree):
        if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
            with DisableTorchFunction():
                tensor.untyped_storage()._devwidget_values = None  # type: ignore[attr-defined]


def strip_values(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor in place of a real one; what is known stays known."""
    if _is_meta(tensor) or tensor.layout != torch.strided:
        return tensor
    with hide_from_modes(), DisableTorchFunction(), no_gradients():
        copied = torch.empty_strided(
            tensor.size(), tensor.stride(), dtype=tensor.dtype, device=META_DEVICE, requires_grad=tensor.requires_grad
        )
    real = all_known(tensor)
    if real is not None:
        keep_values(copied, real, are_guessed())
    return copied


def read_values(tensor: torch.Tensor) -> torch.Tensor:
    """The real tensor wherever values are known, for what reads memory behind the modes' back; else the same."""
    real = all_read(tensor) if _is_meta(tensor) else None
    return tensor if real is None else real


def read_numbers(data: Any) -> Any:
    """The same nested lists with Python numbers in place of tensors that are one number."""
    if isinstance(data, torch.Tensor):
        return data
    return tree_map_only(torch.Tensor, lambda tensor: tensor.item() if tensor.dim() == 0 else read_values(tensor), data)


def list_numbers(given: Any, what: str) -> Any:
    """The numbers of a tensor as a list; anything else is itself. Raise SimulationError if they are not known."""
    if not isinstance(given, torch.Tensor):
        return given
    if is_unknown(given):
        raise needs_values(what)
    return read_values(given).tolist()


def is_unknown(tensor: torch.Tensor) -> bool:
    """Whether there is nothing to read."""
    return _is_meta(read_values(tensor))


def check_known(tensor: torch.Tensor, what: str) -> None:
    """Raise a SimulationError that names `what` if the values of the tensor are not known."""
    if is_unknown(tensor):
        raise needs_values(what)


def copy_known(source: torch.UntypedStorage, copy: torch.UntypedStorage) -> None:
    """Have the copy of a storage know what the other one knows."""
    kept = getattr(source, "_devwidget_values", None)
    if kept is not None:
        copy._devwidget_values = kept.clone()  # type: ignore[attr-defined]


def needs_values(what: str) -> SimulationError:
    """What was asked cannot be answered without values."""
    return SimulationError(
        Message("{what} needs the values of a tensor", what=what),
        why=Message("these virtual GPUs were started with compute=False, so tensors have none"),
        instead="devwidget.simulate(..., compute=True)",
    )
