"""The virtual machine that is running: its GPUs, which are visible, and which is current in each thread, with its stream."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from devwidget.gpus import errors as cuda_errors
from devwidget.gpus import torch_internals
from devwidget.gpus.simulation_state import SimulationState
from devwidget.gpus.state import Account
from devwidget.records.device import CUDA

DEFAULT_STREAM = 0
"""Its number, on each GPU."""


# CUDA too keeps the current device and stream for each thread.
class _Current(threading.local):
    index = 0
    streams: Mapping[int, int] = MappingProxyType({})
    """GPU -> number of its current stream, if that is not the default one. Never changed, but replaced."""


_current = _Current()


def current_index() -> int:
    """The current GPU of this thread."""
    return _current.index


def current_streams() -> Mapping[int, int]:
    """The current streams of this thread, as they are now."""
    return _current.streams


def current_stream_of(gpu: int) -> int:
    """The number of the current stream of a GPU, in this thread."""
    return _current.streams.get(gpu, DEFAULT_STREAM)


def set_current_stream(gpu: int, number: int) -> None:
    """Make a stream the current one of its GPU, in this thread."""
    _current.streams = {**_current.streams, gpu: number}


def restore_current(gpu: int, at: Mapping[int, int]) -> None:
    """Make a GPU and streams of earlier the current ones of this thread."""
    _current.index, _current.streams = gpu, at


def call_on(gpu: int, at: Mapping[int, int], function: Callable[..., Any], *args: Any) -> Any:
    """Call a function with a GPU as the current one, on streams of earlier; any other number than a GPU's changes nothing."""
    if gpu < 0:
        return function(*args)
    before = _current.index, _current.streams
    restore_current(gpu, at)
    try:
        return function(*args)
    finally:
        restore_current(*before)


class Machine:
    """What the running simulation pretends to have.

    Attributes:
        capacities: bytes of each GPU that is built in.
        open_account: opens the account of one, by its bytes.
        visible: the GPUs that the program sees, in its order.
        is_forked: whether this process began as a copy of one that had used a GPU.
        is_in_use: whether the program has used a GPU; from then on, as on a real one, what is visible stays.
    """

    capacities: tuple[int, ...] = ()
    open_account: Callable[[int], Account] = Account
    visible: tuple[int, ...] = ()
    is_in_use = False
    is_forked = False
    _read: str | None = None
    _ignored: str | None = None


def build_machine(capacities: tuple[int, ...], open_account: Callable[[int], Account] = Account) -> None:
    """Set up the GPUs of a simulation; none to take them away."""
    Machine.capacities, Machine.open_account = capacities, open_account
    Machine.is_in_use, Machine.is_forked = False, False
    given = _read_variable()
    # Set before the simulation, a list was of the real GPUs if there are any; an empty one hid them, and nobody asks for
    # virtual ones to see none of them.
    is_of_real = given is not None and (torch_internals.has_real() or not _parse_visible(given, len(capacities)))
    Machine._ignored = given if is_of_real else None
    _update_visible(given)
    _current.index, _current.streams = 0, _Current.streams


def count_gpus() -> int:
    """How many GPUs the program sees."""
    if not Machine.is_in_use and _read_variable() != Machine._read:
        _update_visible(_read_variable())
    return len(Machine.visible)


def _read_variable() -> str | None:
    return os.environ.get(CUDA.visible_variable)


def _update_visible(variable: str | None) -> None:
    Machine._read = variable
    count = len(Machine.capacities)
    every = variable is None or variable == Machine._ignored
    Machine.visible = tuple(range(count)) if every or variable is None else _parse_visible(variable, count)
    SimulationState.ledger.current_stream = current_stream_of
    SimulationState.ledger.accounts = tuple(Machine.open_account(Machine.capacities[number]) for number in Machine.visible)


def _parse_visible(variable: str, count: int) -> tuple[int, ...]:
    """The GPUs named before the first one that does not exist; none if one is named twice. Source: CUDA's manual."""
    found: list[int] = []
    for word in variable.split(","):
        if not word.strip().isdigit() or int(word) >= count:
            break
        if int(word) in found:
            return ()
        found.append(int(word))
    return tuple(found)


def _after_fork() -> None:
    Machine.is_forked = Machine.is_in_use


# A fork copies this process: what it had used of a GPU is all that tells the child.
os.register_at_fork(after_in_child=_after_fork)


def check_index(index: int) -> int:
    """The same index, if there is such a GPU.

    Raises:
        torch.AcceleratorError: for an invalid ordinal.
    """
    if Machine.is_forked:
        raise cuda_errors.forked_child()
    if not 0 <= index < count_gpus():
        raise cuda_errors.invalid_ordinal()
    Machine.is_in_use = True
    return index


def begin_use() -> None:
    """From now on the program uses GPUs.

    Raises:
        RuntimeError: in a child of a process that has used one, as CUDA does.
    """
    if Machine.is_forked:
        raise cuda_errors.forked_child()
    if not Machine.is_in_use:
        count_gpus()  # what is visible now stays
        Machine.is_in_use = True


def set_current(index: int) -> None:
    """Make a GPU the current one of this thread."""
    _current.index = check_index(index)


def exchange_current(index: int) -> int:
    """Make a GPU the current one and return the one before; a negative index changes nothing."""
    before = current_index()
    if index < 0:
        return -1
    set_current(index)
    return before


def maybe_exchange_current(index: int) -> int:
    """As `exchange`; dynamo wants two functions."""
    return exchange_current(index)


def ordinal_of(device: torch.device) -> int:
    """The index of a GPU, the current one where it names none."""
    # None for a plain type; the stub denies it.
    index: Any = device.index
    return check_index(current_index() if index is None else index)
