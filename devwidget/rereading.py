"""Snapshots of one live model, again and again: what has not changed is not read again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from devwidget.capture.changes.fingerprint import Fingerprint
from devwidget.capture.changes.module_watch import NotWatchable
from devwidget.capture.devices.memory import read_memory
from devwidget.capture.other_threads import running_thread
from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.memory import Held, categorize_memory, held_bytes
from devwidget.records.snapshot import Snapshot


class Rereader:
    """`devwidget.snapshot` for a panel, which asks after each cell. It holds no module and no tensor.

    Args:
        virtual_gpus: tells how many are active.
    """

    def __init__(self, virtual_gpus: Callable[[], int]) -> None:
        self._virtual_gpus = virtual_gpus
        self._last: Snapshot | None = None
        self._held: Held = {}
        self._fingerprint: Fingerprint | None = None

    def snapshot(self, model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None) -> Snapshot:
        """The same as `devwidget.snapshot`; its modules are the same objects as last time if nothing has changed."""
        gpus = self._virtual_gpus()
        last, known = self._last, self._fingerprint
        if (
            last is None
            or last.virtual_gpus != gpus
            or known is None
            or running_thread()
            or not known.still_fits(model, optimizer)
        ):
            return self._read(model, optimizer, gpus)
        self._last = replace(last, memory=categorize_memory(read_memory(gpus), self._held))
        return self._last

    def _read(self, model: nn.Module, optimizer: torch.optim.Optimizer | None, gpus: int) -> Snapshot:
        if self._last is not None:  # many models are shown once and never looked at again
            self._fingerprint = None if running_thread() else _fingerprint(model, optimizer)
        read = take_snapshot(model, optimizer=optimizer, virtual_gpus=gpus)
        self._held = held_bytes(read.modules, read.optimizer)
        self._last = replace(read, memory=categorize_memory(read.memory, self._held))
        return self._last


def _fingerprint(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Fingerprint | None:
    try:
        return Fingerprint(model, optimizer)
    except NotWatchable:
        return None  # such a model is read whole each time
