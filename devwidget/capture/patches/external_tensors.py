"""Tensors that arrive from outside torch's calls (numpy, files): no mode sees them made."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching.registry import make_patch
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import raw_site
from devwidget.capture.tensors import tensors_in
from devwidget.capture.undo import Undo

_MAKERS = ("from_numpy", "frombuffer", "from_dlpack", "load")


def watch_arrivals(state: RecordingState, undo: Undo) -> None:
    """Remember the user's line behind every tensor that comes in from numpy or a file."""
    for name in _MAKERS:
        undo.enter_context(make_patch(torch, name, functools.partial(_wrap_source, name, state)))


def _wrap_source(name: str, state: RecordingState, original: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        if state.is_elsewhere():
            return out
        site = raw_site(sys._getframe(1))
        for tensor in tensors_in(out):
            if name == "load" or state.births.find_birth(tensor) is None:  # read from a file it was an empty tensor at first
                state.births.put_birth(tensor, Birth.make_birth(tensor, state.log.number(), call=name, site=site))
        return out

    return watched
