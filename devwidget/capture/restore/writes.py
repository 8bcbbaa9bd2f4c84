"""See each write into a tensor before it happens, and save memory that is passed to code where torch sees no write."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import no_gradients
from devwidget.capture.patching.mode_stack import DispatchMode, redispatch
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.patching.registry import listen
from devwidget.capture.restore.storages import SavedStorages
from devwidget.capture.tensors import tensors_in
from devwidget.capture.undo import Undo

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
