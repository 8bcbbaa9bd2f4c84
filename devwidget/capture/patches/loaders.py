"""What a DataLoader hands out, and the user's line that made the loader."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from devwidget.capture import torch_internals
from devwidget.capture.patching.registry import make_patch
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, raw_site
from devwidget.capture.tensors import tensors_in
from devwidget.capture.undo import Undo


def watch_loaders(state: RecordingState, undo: Undo) -> None:
    """Remember the loader behind each of its batches."""
    undo.enter_context(make_patch(DataLoader, "__init__", functools.partial(_wrap_making, state)))
    undo.enter_context(make_patch(DataLoader, "__iter__", functools.partial(_wrap_beginning, state)))
    if batches := torch_internals.BatchIterator:
        undo.enter_context(make_patch(batches, "__next__", functools.partial(_wrap_batch, state)))


def _find_loader(state: RecordingState, source: Any) -> RawSite | None:
    """The line that made a loader, told by it or by its iterator."""
    return state.loaders.get(source)  # type: ignore[no-untyped-call, no-any-return]


def _wrap_making(state: RecordingState, original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if state.is_here():
            state.loaders[self] = raw_site(sys._getframe(1))

    return functools.wraps(original)(__init__)


def _wrap_beginning(state: RecordingState, original: Callable[..., Any]) -> Callable[..., Any]:
    def __iter__(self: Any) -> Any:
        batches = original(self)
        if state.is_here():
            state.loaders[batches] = _find_loader(state, self)
        return batches

    return functools.wraps(original)(__iter__)


def _wrap_batch(state: RecordingState, original: Callable[..., Any]) -> Callable[..., Any]:
    def __next__(self: Any) -> Any:
        batch = original(self)
        if state.is_here():
            for tensor in tensors_in(batch):
                state.loaded[tensor] = _find_loader(state, self)
        return batch

    return functools.wraps(original)(__next__)
