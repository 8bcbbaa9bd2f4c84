"""Tensors that arrive from outside torch's calls (numpy, files): no mode sees them made."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from devwidget.capture.patching.registry import patched
from devwidget.capture.recording.births import Birth
from devwidget.capture.recording.state import State
from devwidget.capture.source_code.call_sites import raw_site
from devwidget.capture.tensors import tensors_in

_DOORS = ("from_numpy", "frombuffer", "from_dlpack", "load")


@contextlib.contextmanager
def arrivals(state: State) -> Iterator[None]:
    """Remember the user's line behind every tensor that comes in from numpy or a file."""
    with contextlib.ExitStack() as stack:
        for name in _DOORS:
            stack.enter_context(patched(torch, name, functools.partial(_watched, name, state)))
        yield


def _watched(name: str, state: State, original: Callable[..., Any]) -> Callable[..., Any]:
    def door(*args: Any, **kwargs: Any) -> Any:
        out = original(*args, **kwargs)
        if state.is_elsewhere():
            return out
        site = raw_site(sys._getframe(1))
        for tensor in tensors_in(out):
            if state.births.get(tensor) is None:
                state.births.put(tensor, Birth(tensor, state.log.number(), call=name, site=site))
        return out

    return door
