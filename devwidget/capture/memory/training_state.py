"""Read gradients and optimizer state while a cell trains, in the thread that trains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import torch
from torch import nn

from devwidget.capture.interrupts import Lock
from devwidget.capture.object_fields import dict_of
from devwidget.capture.patching.global_hooks import STEP_BEGINS
from devwidget.capture.recording.event_log import device_id
from devwidget.capture.snapshot.optimizer_state import parameters_of
from devwidget.capture.tensors import gradient_of, own_tensors, tensors_in, walk_modules
from devwidget.capture.undo import Undo
from devwidget.records.device import DeviceId
from devwidget.records.memory import allocated_bytes

_lock = Lock()


class TrainingWatch:
    """Reads the bytes of gradients and of optimizer state when a step begins, in the thread that steps.

    Reading `.grad` of a parameter while autograd runs in another thread crashes the interpreter.

    Args:
        model: returns the model, None if it no longer exists.
        optimizer: returns its optimizer, if one is known.
    """

    def __init__(self, model: Callable[[], nn.Module | None], optimizer: Callable[[], torch.optim.Optimizer | None]) -> None:
        self._model, self._optimizer = model, optimizer
        self._bytes: dict[DeviceId, dict[str, int]] = {}
        self._asked: Undo | None = None

    @_lock
    def take_figures(self) -> dict[DeviceId, dict[str, int]]:
        """Return the figures at the start of the last observed step, and observe the next one."""
        if self._asked is None:
            self._asked = Undo()
            STEP_BEGINS.call_hook(self._before_step, self._asked)
        return self._bytes

    @_lock
    def end_watch(self) -> None:
        """Stop observing."""
        if self._asked is not None:
            self._asked.run_steps()
            self._asked = None

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        model, trained = self._model(), set(map(id, parameters_of(optimizer)))
        if model is not None and any(id(tensor) in trained for tensor in _list_parameters(model)):
            self._bytes = training_bytes(model, self._optimizer())
            self.end_watch()


def training_bytes(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[DeviceId, dict[str, int]]:
    """Return bytes of gradients and of optimizer state by device. Call it in the thread that trains."""
    held: defaultdict[DeviceId, dict[str, int]] = defaultdict(Counter)
    state = dict_of(optimizer).get("state") if optimizer is not None else None
    parts = {"gradients": map(gradient_of, _list_parameters(model)), "optimizer": tensors_in(dict(state or {}), depth=4)}
    for category, tensors in parts.items():
        for tensor in {id(tensor): tensor for tensor in tensors}.values():  # tied ones once
            if tensor is not None and tensor.layout is torch.strided:
                device = device_id(tensor.device)
                held[device][category] += allocated_bytes(tensor.nbytes, device.kind)
    return held


def _list_parameters(model: nn.Module) -> Iterator[torch.Tensor]:
    return (tensor for _, module in walk_modules(model) for tensor in own_tensors(module).values())
