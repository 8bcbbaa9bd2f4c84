"""Remember what a DataLoader returns, and the user's line that created the loader."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from devwidget.capture import torch_internals
from devwidget.capture.patching.registry import listen
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import RawSite, raw_site
from devwidget.capture.tensors import tensors_in
from devwidget.capture.undo import Undo


def watch_loaders(state: RecordingState, undo: Undo) -> None:
    """Remember the loader behind each of its batches."""
    listen(state.is_here, DataLoader, "__init__", functools.partial(_note_loader, state), undo)
    listen(state.is_here, DataLoader, "__iter__", functools.partial(_note_iterator, state), undo)
    if batches := torch_internals.BatchIterator:
        listen(state.is_here, batches, "__next__", functools.partial(_note_batch, state), undo)
        undo.add_step(state.loader_clock.end)


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
