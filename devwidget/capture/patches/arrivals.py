"""Tensors that appear without a call that a mode sees: from loaders, numpy and files, and through `swap_tensors`."""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from devwidget.capture import torch_internals
from devwidget.capture.patching.registry import Patch
from devwidget.capture.recording.births import OURS, Birth
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, raw_site
from devwidget.capture.tensors import tensors_in
from devwidget.capture.undo import Undo

_MAKERS = ("from_numpy", "frombuffer", "from_dlpack", "load")


def watch_arrivals(state: RecordingState, undo: Undo) -> None:
    """Remember the user's line behind every tensor that comes from numpy or a file, and the loader behind each batch."""
    for name in _MAKERS:
        state.listen(torch, name, functools.partial(_note_arrival, name, state), undo)
    state.listen(DataLoader, "__init__", functools.partial(_note_loader, state), undo)
    state.listen(DataLoader, "__iter__", functools.partial(_note_iterator, state), undo)
    if batches := torch_internals.BatchIterator:
        state.listen(batches, "__next__", functools.partial(_note_batch, state), undo)


def _note_arrival(name: str, state: RecordingState, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    out = original(*args, **kwargs)
    site = raw_site(sys._getframe(1))
    for tensor in tensors_in(out):
        if name == "load" or state.births.find_birth(tensor) is None:  # read from a file it was an empty tensor at first
            state.births.put_birth(tensor, Birth.make_birth(tensor, state.log.number(), call=name, site=site))
    return out


def _find_loader(state: RecordingState, source: Any) -> RawSite | None:
    """Return the line that created a loader, stored on it or on its iterator."""
    return state.loaders.get(source)  # type: ignore[no-untyped-call, no-any-return]


def _note_loader(state: RecordingState, original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    state.loaders[self] = raw_site(sys._getframe(1))


def _note_iterator(state: RecordingState, original: Callable[..., Any], self: Any) -> Any:
    batches = original(self)
    state.loaders[batches] = _find_loader(state, self)
    return batches


def _note_batch(state: RecordingState, original: Callable[..., Any], self: Any) -> Any:
    loader = _find_loader(state, self)
    batch = state.loader_clock.time_batch(original, self, loader)
    for tensor in tensors_in(batch):
        state.loaded[tensor] = loader
    return batch


def watch_swaps(state: RecordingState, undo: Undo) -> None:
    """Update the creation site of a tensor that got the content of another."""
    undo.enter_context(Patch(torch.utils, "weakref", value=_Weakref("weakref")))
    state.listen(torch.utils, "swap_tensors", functools.partial(_swap_births, state), undo)


class _Weakref(types.ModuleType):
    """Replaces the module of that name and ignores devwidget's references."""

    def __getattr__(self, name: str) -> Any:
        return getattr(weakref, name)

    @staticmethod
    def getweakrefs(value: object) -> list[Any]:
        """Return the weak references to a tensor, without devwidget's own."""
        return [each for each in weakref.getweakrefs(value) if not isinstance(each, OURS)]


def _swap_births(state: RecordingState, original: Callable[..., None], t1: torch.Tensor, t2: torch.Tensor) -> None:
    births = state.births
    new = births.find_birth(t2), births.find_birth(t1)
    original(t1, t2)
    for tensor, birth in zip((t1, t2), new, strict=True):
        if birth is not None:
            births.put_birth(tensor, birth)
