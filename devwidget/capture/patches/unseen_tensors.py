"""Tensors that come without a call that a mode sees: from numpy and files, and by `swap_tensors`."""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching import registry
from devwidget.capture.patching.registry import make_patch
from devwidget.capture.recording.births import OURS, Birth
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


def watch_swaps(state: RecordingState, undo: Undo) -> None:
    """A tensor that got the content of another lives where that was put."""
    undo.enter_context(registry.make_replacement(torch.utils, "weakref", _Weakref("weakref")))
    undo.enter_context(registry.make_patch(torch.utils, "swap_tensors", functools.partial(_wrap_swap, state)))


class _Weakref(types.ModuleType):
    """The module of that name, which does not count ours."""

    def __getattr__(self, name: str) -> Any:
        return getattr(weakref, name)

    @staticmethod
    def getweakrefs(value: object) -> list[Any]:
        """The weak references to a tensor, without our own."""
        return [each for each in weakref.getweakrefs(value) if not isinstance(each, OURS)]


def _wrap_swap(state: RecordingState, original: Callable[..., None]) -> Callable[..., None]:
    def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> None:
        births = {id(t1): state.births.find_birth(t2), id(t2): state.births.find_birth(t1)}
        original(t1, t2)
        if not state.is_elsewhere():
            for tensor in (t1, t2):
                birth = births[id(tensor)]
                if birth is not None:
                    state.births.put_birth(tensor, birth)

    return swap_tensors
