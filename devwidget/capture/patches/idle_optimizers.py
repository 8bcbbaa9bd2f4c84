"""Optimizers that change nothing of the model: they have none of its parameters, and no gradient reaches those that they have.

A cell that makes the model is run again, and the cell of the optimizer is not: each step then trains the old model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import MutableMapping
from types import FrameType

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from devwidget.capture import torch_internals
from devwidget.capture.faults import operand_names
from devwidget.capture.modules import named_tensors
from devwidget.capture.object_fields import class_name
from devwidget.capture.patches.optimizer_faults import describe_operand, make_fault, mark_reachable
from devwidget.capture.patches.untrained import UntrainedParameters
from devwidget.capture.recording.births import TensorRef
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.snapshot.optimizer_state import parameters_of
from devwidget.capture.source_code.provenance import find_construction
from devwidget.capture.source_code.stack import user_frames
from devwidget.capture.tensors import is_tensor
from devwidget.records.site import Site
from devwidget.records.trace import FaultDetails, Held, Operand

ANOTHER_MODEL = "another model"
"""`FaultDetails.reason` of an optimizer that has no parameter of the model."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Gradient:
    """A gradient as an optimizer found it. Weak: an id may be that of the gradient of the next step."""

    ref: TensorRef
    version: int

    def is_still(self, other: _Gradient) -> bool:
        """Whether nobody has computed it anew since."""
        tensor = self.ref()
        return tensor is not None and tensor is other.ref() and self.version == other.version


class IdleOptimizers:
    """Which optimizers of a recording have changed something, and what the others should have.

    Args:
        state: of the recording.
        missing: parameters that no optimizer has.
    """

    def __init__(self, state: RecordingState, missing: UntrainedParameters) -> None:
        self._state, self._missing = state, missing
        self._at_work: MutableMapping[torch.optim.Optimizer, bool] = WeakIdKeyDictionary()
        self._gradients: MutableMapping[torch.optim.Optimizer, list[_Gradient]] = WeakIdKeyDictionary()
        self._all_known: bool | None = None

    def check_step(self, optimizer: torch.optim.Optimizer, built: Site | None, frame: FrameType) -> None:
        """An optimizer is about to step.

        Args:
            optimizer: which one.
            built: where, if that was in this recording.
            frame: of torch's code that steps.
        """
        if optimizer in self._at_work:
            return
        gets_gradients = self._has_of_model(optimizer) or self._gets_gradients(optimizer)
        if gets_gradients:
            self._see_at_work(optimizer)
        elif gets_gradients is False and not self._missing.has_fault(self._key(optimizer)):
            self._note_idle(optimizer, built, frame)

    def check_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped: a closure may have computed the gradients meanwhile."""
        if optimizer not in self._at_work and self._gradients.get(optimizer) == [] and _read_gradients(optimizer):
            self._see_at_work(optimizer)

    def _see_at_work(self, optimizer: torch.optim.Optimizer) -> None:
        self._at_work[optimizer] = True
        self._missing.drop_fault(self._key(optimizer))

    @staticmethod
    def _key(optimizer: torch.optim.Optimizer) -> object:
        return ANOTHER_MODEL, id(optimizer)

    def _has_of_model(self, optimizer: torch.optim.Optimizer) -> bool:
        mine = {id(parameter) for parameter in parameters_of(optimizer)}
        return any(id(each) in mine for root in self._list_roots() for _, each in named_tensors(root, "_parameters"))

    def _gets_gradients(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Whether gradients reach an optimizer; None at its first step, if those that are there may be old."""
        before, now = self._gradients.get(optimizer), _read_gradients(optimizer)
        self._gradients[optimizer] = now
        if not now:
            return False
        if before is None:
            return None
        return len(before) != len(now) or not all(old.is_still(new) for old, new in zip(before, now, strict=True))

    def _list_roots(self) -> list[nn.Module]:
        return [root for ref in self._state.tracker.roots if (root := ref()) is not None]

    def leave_out(self, optimizer: torch.optim.Optimizer) -> None:
        """What is wrong with an optimizer is told already."""
        self._at_work[optimizer] = True

    def _note_idle(self, optimizer: torch.optim.Optimizer, built: Site | None, frame: FrameType) -> None:
        """Write down which model has gradients that no optimizer uses, if there is one."""
        roots = self._list_untrained_roots(frame)
        if not roots:
            return
        built = built or find_construction(user_frames(frame), optimizer)
        root = self._find_meant_root(optimizer, built, roots)
        if root is None:
            return
        model_line = find_construction(user_frames(frame), root)
        lacking = _list_with_gradients(root)
        names = operand_names.Names(self._state, frame)
        operands = tuple(_describe_parameter(name, each, root, model_line) for name, each in lacking)
        details = FaultDetails("missing", class_name(type(optimizer)), reason=ANOTHER_MODEL)
        fault = make_fault(self._state, names, frame, "optimizer", "", operands, details, built)
        ids = tuple(id(each) for _, each in lacking)
        self._missing.add_fault(self._key(optimizer), fault, ids, only_all=True)

    def _list_untrained_roots(self, frame: FrameType) -> list[nn.Module]:
        """Models with gradients that no optimizer has any parameter of."""
        waiting = [root for root in self._list_roots() if _list_with_gradients(root)]
        if not waiting or "backward" not in self._state.tracker.phases or not self._knows_all(frame):
            return []
        return [root for root in waiting if not self._has_trained(root)]

    def _find_meant_root(
        self, optimizer: torch.optim.Optimizer, built: Site | None, roots: list[nn.Module]
    ) -> nn.Module | None:
        """The model that an optimizer was meant for; None where that is not known.

        One with the same shapes is. Else the line that built the optimizer must have asked for the parameters of a model, and
        no model may be trained: beside others one may be left out on purpose.
        """
        shapes = [each.shape for each in _tensors_of(optimizer)]
        for root in roots:
            if [each.shape for _, each in named_tensors(root, "_parameters")] == shapes:
                return root
        asks = built is not None and "parameters(" in built.text
        if asks and len(roots) == len(self._list_roots()):
            return roots[0]
        return None

    def _knows_all(self, frame: FrameType) -> bool:
        if self._all_known is None:  # much is looked at: once is enough
            self._all_known = mark_reachable(frame, self._missing)
        return self._all_known

    def _has_trained(self, root: nn.Module) -> bool:
        return any(id(each) in self._missing.trained for _, each in named_tensors(root, "_parameters"))


def _read_gradients(optimizer: torch.optim.Optimizer) -> list[_Gradient]:
    with torch_internals.DisableTorchFunction():  # our looking is no call for function modes
        found = [each.grad for each in _tensors_of(optimizer)]
        return [_Gradient(TensorRef(grad), grad._version) for grad in found if grad is not None]


def _tensors_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [each for each in parameters_of(optimizer) if is_tensor(each)]


def _list_with_gradients(root: nn.Module) -> list[tuple[str, torch.Tensor]]:
    parameters = named_tensors(root, "_parameters")
    return [(name, each) for name, each in parameters if each.requires_grad and each.grad is not None]


def _describe_parameter(name: str, parameter: torch.Tensor, root: nn.Module, model_line: Site | None) -> Operand:
    held = Held("", name, "parameter", class_name(type(root)), built=model_line)
    return dataclasses.replace(describe_operand(name, parameter), held=held)
