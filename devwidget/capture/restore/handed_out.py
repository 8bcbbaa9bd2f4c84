"""Memory that a tensor hands out or has written element by element: NumPy, DLPack and pointers pass torch's dispatcher by."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.gradients_off import no_gradients
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.patching.registry import make_patch
from devwidget.capture.restore.storages import SavedStorages
from devwidget.capture.undo import Undo

_WRITE = ("apply_", "map_", "map2_")
_HAND_OUT = ("numpy", "__array__", "__dlpack__", "data_ptr")


def watch_handed_out(storages: SavedStorages, undo: Undo) -> None:
    """Save what these methods write, or give this thread to write, before they do."""
    undo.gather_contexts()
    for name in (*_WRITE, *_HAND_OUT):
        saving = functools.partial(_save_first, weakref.ref(storages), name in _WRITE, threading.get_ident())
        undo.enter_context(make_patch(torch.Tensor, name, saving))
    undo.enter_gathered()


def _save_first(
    kept: weakref.ref[SavedStorages], writes: bool, thread: int, original: Callable[..., Any]
) -> Callable[..., Any]:
    # Weak: what is imported during the step may keep this function for ever, and storages lead to the whole model.
    @functools.wraps(original)
    def watched(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        # What another thread writes stays. Memory of a device is unknown to NumPy, and to copy it would wait for the device.
        storages = kept()
        if storages is not None and threading.get_ident() == thread:
            with hide_from_modes(), torch_internals.DisableTorchFunction(), no_gradients():
                if tensor.device.type == "cpu":
                    storages.before_write(tensor, declared=writes)
        return original(tensor, *args, **kwargs)

    return watched
