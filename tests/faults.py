"""Faults on demand: Ctrl-C at a chosen line of devwidget's own code, and what may not be left behind afterwards."""

from __future__ import annotations

import contextlib
import linecache
import pathlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.nn.parallel import _functions, comm, data_parallel, parallel_apply, replicate, scatter_gather
from torch.optim import optimizer as optimizer_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import devwidget

Line = tuple[str, int]
"""File and line number."""
OURS = str(pathlib.Path(devwidget.__file__).parent)
_CACHES = ("_cached_device_count", "__abstractmethods__")
"""What torch itself remembers."""
OWNERS = (
    torch, torch.Tensor, torch.autograd.Function, torch.cuda, torch.accelerator, torch.overrides, torch.optim.Optimizer,
    nn.Module, nn.DataParallel, _functions.Broadcast, _functions.ReduceAddCoalesced, _functions.Scatter, _functions.Gather,
    comm, data_parallel, parallel_apply, replicate, scatter_gather, threading.Thread,
)  # fmt: skip


def world(*users: type) -> dict[object, object]:
    """All that devwidget may replace, install or hold in this process, and in classes of the user's."""
    hooks = [table for owner in (module_hooks, optimizer_hooks) for name, table in vars(owner).items() if "_global_" in name]
    names = [(owner, name) for owner in (*OWNERS, *users) for name in vars(owner) if name not in _CACHES]
    return {
        **{(id(owner), name): id(vars(owner)[name]) for owner, name in names},
        "hooks": [list(table) for table in hooks if isinstance(table, dict)],
        "function modes": [id(mode) for mode in _get_current_function_mode_stack()],
        "dispatch modes": [id(mode) for mode in _get_current_dispatch_mode_stack()],
        "grad mode": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "SIGINT": signal.getsignal(signal.SIGINT),
        "trace": sys.gettrace(),
    }


def left_behind(before: dict[object, object], *users: type) -> list[object]:
    """What has changed since."""
    after = world(*users)
    return [key for key in before | after if before.get(key) != after.get(key)]


class _Lines:
    """Follows every line that a thread runs in devwidget."""

    def __enter__(self) -> _Lines:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(OURS) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.reached((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def reached(self, line: Line) -> None:
        raise NotImplementedError


class LinesRun(_Lines):
    """Counts how often each line runs, in the order of their first time."""

    def __init__(self) -> None:
        self.counts: dict[Line, int] = {}

    def reached(self, line: Line) -> None:
        self.counts[line] = self.counts.get(line, 0) + 1


class _At(_Lines):
    """Strikes before a line runs for the nth time."""

    def __init__(self, line: Line, nth: int = 1) -> None:
        self._at, self._left = line, nth

    def reached(self, line: Line) -> None:
        if line == self._at:
            self._left -= 1
            if self._left == 0:
                self.strike()

    def strike(self) -> None:
        raise NotImplementedError


class InterruptAt(_At):
    """Ctrl-C, as the kernel's stop button sends it."""

    def strike(self) -> None:
        signal.raise_signal(signal.SIGINT)


class Fault(MemoryError):
    """What no guard can hold back: a full memory, or an exception that another thread has sent."""


class RaiseAt(_At):
    """A line that raises."""

    def strike(self) -> None:
        raise Fault


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt inside the block, whoever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cannot_be_interrupted(line: Line) -> bool:
    """Lines where a signal strikes never, or where Python itself gives no hold.

    Signals are looked for after calls, not between `depth += 1` and its `try`. Before an `__exit__` holds interrupts back
    nothing can keep Python from raising in it, and what is raised in a finalizer is dropped.
    """
    file, number = line
    text = linecache.getline(file, number).strip()
    return (
        text == "try:"
        or text.startswith(("with uninterrupted()", "if self._session is None", "labels.inside.depth"))
        or file.endswith(("interrupts.py", "identity.py", "labels.py"))
    )
