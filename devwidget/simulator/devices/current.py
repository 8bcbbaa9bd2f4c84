"""The current GPU of each thread, and the current stream of each GPU there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

DEFAULT_STREAM = 0
"""Its number, on each GPU."""


class _Current(threading.local):
    index = 0
    streams: Mapping[int, int] = MappingProxyType({})
    """GPU -> number of its current stream, if that is not the default one. Never changed, but replaced."""


_current = _Current()


def index() -> int:
    """The current GPU of this thread."""
    return _current.index


def set_index(gpu: int) -> None:
    """Make a GPU the current one of this thread."""
    _current.index = gpu


def reset() -> None:
    """In this thread the first GPU, and all default streams."""
    _current.index, _current.streams = 0, _Current.streams


def streams() -> Mapping[int, int]:
    """The current streams of this thread, as they are now."""
    return _current.streams


def stream_of(gpu: int) -> int:
    """The number of the current stream of a GPU, in this thread."""
    return _current.streams.get(gpu, DEFAULT_STREAM)


def set_stream(gpu: int, number: int) -> None:
    """Make a stream the current one of its GPU, in this thread."""
    _current.streams = {**_current.streams, gpu: number}


def put(gpu: int, at: Mapping[int, int]) -> None:
    """Make a GPU and streams of earlier the current ones of this thread."""
    _current.index, _current.streams = gpu, at


def call_on(gpu: int, at: Mapping[int, int], function: Callable[..., Any], *args: Any) -> Any:
    """Call a function with a GPU as the current one, on streams of earlier; any other number than a GPU's changes nothing."""
    if gpu < 0:
        return function(*args)
    before = _current.index, _current.streams
    put(gpu, at)
    try:
        return function(*args)
    finally:
        put(*before)
