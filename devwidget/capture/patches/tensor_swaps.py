"""Swapped tensors: `swap_tensors`, by which `Module.to` can be made to move, is not kept from it by our weak references."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.patching import registry
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.recording.tensor_ref import OURS
from devwidget.capture.undo import Undo


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
        """Those of others."""
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
