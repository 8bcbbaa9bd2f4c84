"""Save bytes of storages before they are first written, and see each write before it happens."""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import no_gradients
from devwidget.capture.object_fields import fields_of
from devwidget.capture.patching.mode_stack import DispatchMode, redispatch
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.patching.registry import listen
from devwidget.capture.restore.keepers import Kept, NotRestored, Undoing
from devwidget.capture.restore.tensors import is_wrapper, read_version, storage_id
from devwidget.capture.tensors import is_tensor, sparse_parts, tensors_in
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message

SMALL_BYTES = 64 << 10
MOST_SMALL_BYTES = 8 << 20
"""Storages of up to 64 KiB are saved at the start, 8 MiB of them at most: those may be written unseen, through a pointer.
Larger ones are saved just before the step first writes them.
"""
_LONGEST_TEXT = 2**31 - 1
"""Bytes that `ctypes.string_at` can copy: its length is a C `int`, which overflows."""
_BASE: Any = torch_internals.TensorBase
_size = torch.UntypedStorage.nbytes
Copy = bytes | torch.Tensor
"""The bytes of a storage on the host, because device memory may be short."""


@dataclass(slots=True, eq=False)
class _Saved:
    """One storage from before the step.

    Attributes:
        holder: a tensor over it, which keeps its address unique.
        size: its bytes.
        copy: its content, once it is saved.
        is_written: a write into it was seen.
        is_unseen: it was written unseen, and its saved content may be newer.
        is_reshaped: a tensor over it got another shape or storage.
    """

    holder: Any
    size: int
    copy: Copy | None = None
    is_written: bool = False
    is_unseen: bool = False
    is_reshaped: bool = False


class SavedStorages:
    """All storages from before the step that the model, its optimizer and its loss reach."""

    def __init__(self) -> None:
        self._known: dict[int | None, _Saved] = {}
        self._failed: list[tuple[Any, str]] = []
        self._lock = threading.Lock()
        self._left_bytes = MOST_SMALL_BYTES

    def add_tensor(self, alias: Any) -> None:
        """Add the storage of a tensor."""
        key = _storage_key(alias)
        if key is None:
            for part in list_components(alias):
                self.add_tensor(part)
        elif key not in self._known:
            self._known[key] = _Saved(alias, _bytes_of(alias))

    def save_small(self) -> None:
        """Copy small storages, up to a limit."""
        for saved in self._known.values():
            if saved.copy is None and 0 < saved.size <= min(SMALL_BYTES, self._left_bytes):
                self._left_bytes -= saved.size
                self._save(saved)

    def before_write(self, tensor: Any) -> None:
        """Save what a write into this tensor may change. Called from any thread."""
        key = None if is_wrapper(type(tensor)) else _storage_key(tensor)
        saved = self._known.get(key)
        if key is None:
            for part in list_components(tensor):
                self.before_write(part)
        elif saved is not None:
            saved.is_written = True
            self._save(saved)

    def note_reshaped(self, tensor: Any) -> None:
        """Note that a tensor gets another shape or storage: its version increases, though nothing is written."""
        saved = self._known.get(_storage_key(tensor))
        if saved is not None:
            saved.is_reshaped = True

    def _save(self, saved: _Saved) -> None:
        with self._lock:
            if saved.copy is not None or not saved.size or not _has_memory(saved.holder):
                return
            try:
                saved.copy = _copy_bytes(saved.holder, min(saved.size, _bytes_of(saved.holder)))
            except Exception as error:
                self._failed.append((saved.holder, Message("it could not be copied: {error}", error=type(error).__name__)))

    def list_written(self, tensors: Iterable[Kept]) -> list[Any]:
        """Return a tensor over each storage that was written, except gradients."""
        gradients = {_storage_key(kept.before.gradient) for kept in tensors if kept.before.gradient is not None}
        written = {key: saved.holder for key, saved in self._known.items() if saved.is_written}
        for key in gradients:
            written.pop(key, None)
        return list(written.values())

    def is_unsure(self, tensors: Iterable[Kept]) -> bool:
        """Return whether more may have been written than is known."""
        return bool(self._failed) or any(True for _ in self.find_unseen(tensors))

    def put_back(self, undoing: Undoing) -> None:
        """Restore sizes, then bytes."""
        undoing.lost += self._failed
        for saved in self._known.values():
            is_changed = saved.copy is not None or _bytes_of(saved.holder) != saved.size
            if is_changed and not saved.is_unseen:
                undoing.attempt_step(saved.holder, functools.partial(_write_back, saved))

    def find_unseen(self, tensors: Iterable[Kept]) -> Iterator[Any]:
        """Yield tensors that were written although no write was seen. Call it before anything is restored.

        Their saved values are not restored either: torch counts a write into a tensor that no watched thread made.
        """
        for kept in tensors:
            if read_version(kept.owner) == kept.before.version or kept.before.alias is None:
                continue
            key = _storage_key(kept.owner)
            saved = self._known.get(key)
            if saved is None or _storage_key(kept.before.alias) != key or saved.is_written or saved.is_reshaped:
                continue
            if saved.size:
                saved.is_unseen = True
                yield kept.owner


def _write_back(saved: _Saved) -> None:
    bytes_left = _bytes_of(saved.holder)
    if bytes_left != saved.size:
        _BASE.untyped_storage(saved.holder).resize_(saved.size)
    if saved.copy is not None:
        _write_bytes(saved.holder, saved.copy)
        bytes_left = len(saved.copy)
    if bytes_left < saved.size:
        raise NotRestored(Message("its storage was freed"))


def list_components(tensor: Any) -> Iterable[Any]:
    """Return the tensors that a sparse one, or a wrapper, is made of."""
    if is_wrapper(type(tensor)):
        return [value for _, value in fields_of(tensor) if is_tensor(value)]
    return sparse_parts(tensor)


def _storage_key(tensor: Any) -> int | None:
    try:
        return int(storage_id(tensor))
    except (RuntimeError, TypeError):  # sparse, opaque, or a wrapper of functorch
        return None


def _bytes_of(tensor: Any) -> int:
    return _size(_BASE.untyped_storage(tensor))


def _has_memory(holder: Any) -> bool:
    """Return False on meta devices, and for tensors that only pretend to have a storage."""
    return _device_of(holder).type != "meta" and bool(_BASE.untyped_storage(holder).data_ptr())


_device_of: Callable[[Any], torch.device] = vars(_BASE)["device"].__get__


def _host_address(holder: Any) -> int:
    """Return the address of a storage in host memory; 0 on other devices."""
    if _device_of(holder).type == "cpu":
        return int(_BASE.untyped_storage(holder).data_ptr())
    return 0


def _copy_bytes(holder: Any, size: int) -> Copy:
    """Copy the first bytes of a storage. Copying host memory without a tensor takes a tenth of the time."""
    address = _host_address(holder)
    if address and size <= _LONGEST_TEXT:
        return ctypes.string_at(address, size)
    return _byte_window(holder, size).to("cpu", copy=True)


def _write_bytes(holder: Any, copy: Copy) -> None:
    """Restore bytes. For small storages, whose writes are unknown, only if they differ."""
    if isinstance(copy, torch.Tensor):
        _byte_window(holder, len(copy)).copy_(copy)
    elif len(copy) > SMALL_BYTES or _copy_bytes(holder, len(copy)) != copy:
        ctypes.memmove(_host_address(holder), copy, len(copy))


def _byte_window(holder: Any, size: int) -> torch.Tensor:
    """Return the first bytes of a storage, whatever the dtype of the tensors over it."""
    empty = torch.empty(0, dtype=torch.uint8, device=_device_of(holder))
    return empty.set_(_BASE.untyped_storage(holder), 0, (size,), (1,))


# Writes, each seen before it happens.


_STATISTICS = ("running_mean", "running_var", "running_min", "running_max", "dropout_state")
"""Arguments that normalization operators write without saying so in their schema."""
_READ_ONLY = ("backward", "functional", "no_training", "no_update")


class Writing(NamedTuple):
    """What an operator does to its arguments.

    Attributes:
        func: the operator, kept alive so that its id stays unique.
        places, names: positions and names of the arguments that it writes.
        reshapes: it changes only a tensor's view of its storage.
    """

    func: Any
    places: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    reshapes: bool = False


_known: dict[int, Writing] = {}
"""Writes by id of the operator. Its hash would be a call of Python code."""


def find_writes(func: Any) -> Writing:
    """Return what an operator writes."""
    schema = getattr(func, "_schema", None)
    if schema is None:  # of a higher-order operator, whose parts are seen themselves
        return _known.setdefault(id(func), Writing(func))
    silent = not any(word in schema.name for word in _READ_ONLY)
    places, names = [], []
    for place, argument in enumerate(schema.arguments):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written or (silent and argument.name in _STATISTICS):
            places.append(place)
            names.append(argument.name)
    return _known.setdefault(id(func), Writing(func, tuple(places), tuple(names), torch.Tag.inplace_view in func.tags))


class WriteMode(DispatchMode):
    """Saves storages before they are written. One instance per thread."""

    def __init__(self, storages: SavedStorages) -> None:
        self._storages = storages

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = _known.get(id(func)) or find_writes(func)
        if known.places:
            self._save_written(known, args, kwargs)
        return redispatch(func, args, kwargs)

    def _save_written(self, known: Writing, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        values = [args[place] for place in known.places if place < len(args)]
        values += [kwargs[name] for name in known.names if name in kwargs]
        if known.reshapes:
            save = self._storages.note_reshaped
        else:
            save = self._storages.before_write
        with hide_from_modes(), torch_internals.DisableTorchFunction(), no_gradients():
            for tensor in tensors_in(values, 2):
                save(tensor)


_UNSEEN = ("apply_", "map_", "map2_", "numpy", "__array__", "__dlpack__")
"""Methods that write without the dispatcher, or pass memory to code that does."""


def watch_handed_out(storages: SavedStorages, undo: Undo) -> None:
    """Save what these methods write, or let this thread write, before they do.

    Writes of other threads are not restored. NumPy does not know memory of a device, and copying it would sync.
    """
    # Weak: what is imported during the step may keep the method for ever, and storages lead to the whole model.
    kept, thread = weakref.ref(storages), threading.get_ident()

    def save_first(original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
        found = kept()
        if found is not None:
            with hide_from_modes(), torch_internals.DisableTorchFunction(), no_gradients():
                if tensor.device.type == "cpu":
                    found.before_write(tensor)
        return original(tensor, *args, **kwargs)

    for name in _UNSEEN:
        listen(lambda: threading.get_ident() == thread, torch.Tensor, name, save_first, undo)
