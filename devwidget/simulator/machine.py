"""The virtual machine that is running: its GPUs, and which of them is current in each thread."""

from __future__ import annotations

import threading

import torch

from devwidget.simulator import failures


class _Current(threading.local):
    index = 0


class Machine:
    """What the running simulation pretends to have."""

    gpus = 0


_current = _Current()


def current_index() -> int:
    """The current GPU of this thread."""
    return _current.index


def checked(index: int) -> int:
    """The same index, if there is such a GPU.

    Raises:
        torch.AcceleratorError: as CUDA does for an invalid ordinal.
    """
    if not 0 <= index < Machine.gpus:
        raise failures.invalid_ordinal()
    return index


def set_current(index: int) -> None:
    """Make a GPU the current one of this thread."""
    _current.index = checked(index)


def exchange(index: int) -> int:
    """Make a GPU the current one and return the one before; a negative index changes nothing."""
    before = _current.index
    if index < 0:
        return -1
    set_current(index)
    return before


def ordinal(device: torch.device) -> int:
    """The index of a cuda device, the current one where it names none."""
    return _current.index if device.index is None else checked(device.index)
