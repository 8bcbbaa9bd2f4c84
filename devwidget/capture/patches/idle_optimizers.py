"""Find optimizers that change nothing of the model: they have none of its parameters, and no gradient reaches theirs.

This happens if you run the model's cell again but not the optimizer's: each step then trains the old model.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from types import FrameType

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from devwidget.capture import torch_internals
from devwidget.capture.modules import named_tensors
from devwidget.capture.object_fields import class_name, is_a
from devwidget.capture.patches.untrained import UntrainedParameters, make_fault, trains_model
from devwidget.capture.recording.descriptions import operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.snapshot.optimizer_state import parameters_of, tensors_of
from devwidget.capture.source_code.provenance import find_construction
from devwidget.capture.source_code.reachable_objects import TooManyObjects, reachable_objects
from devwidget.capture.source_code.stack import user_frames
from devwidget.capture.tensors import gradient_of
from devwidget.records.fault_details import MissingParameters
from devwidget.records.site import Site
from devwidget.records.trace import Held


class IdleOptimizers:
    """Which optimizers of a recording changed something, and which parameters the others lack.

    Args:
        state: state of the recording.
        missing: parameters without an optimizer.
    """

    def __init__(self, state: RecordingState, missing: UntrainedParameters) -> None:
        self._state, self._missing = state, missing
        self._at_work: MutableMapping[torch.optim.Optimizer, bool] = WeakIdKeyDictionary()
        self._all_known: bool | None = None

    def leave_out(self, optimizer: torch.optim.Optimizer) -> None:
        """Skip an optimizer that works or is already reported."""
        self._at_work[optimizer] = True

    def check_step(self, optimizer: torch.optim.Optimizer, built: Site | None, frame: FrameType) -> None:
        """Check an optimizer before it steps.

        Args:
            optimizer: the optimizer.
            built: where it was built, if in this recording.
            frame: frame of torch's code that steps.
        """
        key = "another model", id(optimizer)
        if optimizer in self._at_work:
            return
        with torch_internals.DisableTorchFunction():  # function modes must not see our reads
            has_gradients = any(gradient_of(each) is not None for each in tensors_of(optimizer))
        if has_gradients or trains_model(self._state, optimizer):
            self.leave_out(optimizer)
            self._missing.faults.pop(key, None)
            return
        if key in self._missing.faults or not self._knows_all_optimizers(frame):
            return
        built = built or find_construction(user_frames(frame), optimizer)
        root = self._find_meant_root(optimizer, built)
        if root is None:
            return
        model_line = find_construction(user_frames(frame), root)
        lacking = _list_with_gradients(root)
        held = [Held("", name, "parameter", class_name(type(root)), built=model_line) for name, _ in lacking]
        named = zip(lacking, held, strict=True)
        operands = tuple(operand_of(tensor, name, name, stray=True, held=each) for (name, tensor), each in named)
        detail = MissingParameters(class_name(type(optimizer)), "another model")
        fault = make_fault(self._state, frame, "optimizer", "", operands, detail, built)
        self._missing.faults[key] = fault, tuple(id(each) for _, each in lacking)

    def _list_waiting_roots(self) -> list[nn.Module]:
        """Return models with gradients, none of whose parameters are in a known optimizer."""
        roots = [root for ref in self._state.tracker.roots if (root := ref()) is not None]
        waiting, trained = filter(_list_with_gradients, roots), self._missing.trained
        return [root for root in waiting if not any(id(each) in trained for _, each in named_tensors(root, "_parameters"))]

    def _knows_all_optimizers(self, frame: FrameType) -> bool:
        """Return whether all reachable optimizers are known, if there is a model to ask for."""
        if "backward" not in self._state.tracker.phases or not self._list_waiting_roots():
            return False
        if self._all_known is None:  # much is looked at: once is enough
            self._all_known = mark_reachable(frame, self._missing)
        return self._all_known

    def _find_meant_root(self, optimizer: torch.optim.Optimizer, built: Site | None) -> nn.Module | None:
        """Return the model that an optimizer was intended for; None if unknown.

        This is a model with the same shapes. Else the line that built the optimizer must name the parameters of a model, and
        no model may be trained: if one is, another may be left out on purpose.
        """
        roots, shapes = self._list_waiting_roots(), [each.shape for each in tensors_of(optimizer)]
        for root in roots:
            if [each.shape for _, each in named_tensors(root, "_parameters")] == shapes:
                return root
        asks = built is not None and "parameters(" in built.text
        if roots and asks and len(roots) == sum(ref() is not None for ref in self._state.tracker.roots):
            return roots[0]
        return None


def mark_reachable(frame: FrameType, missing: UntrainedParameters) -> bool:
    """Mark as trained the parameters of all reachable optimizers, including those that do not step in this recording.

    Returns:
        False if there are too many objects to search.
    """
    try:
        for each in reachable_objects(frame):
            if is_a(each, torch.optim.Optimizer):
                missing.mark_trained(parameters_of(each))
    except TooManyObjects:
        return False
    return True


def _list_with_gradients(root: nn.Module) -> list[tuple[str, torch.Tensor]]:
    parameters = named_tensors(root, "_parameters")
    return [(name, each) for name, each in parameters if each.requires_grad and each.grad is not None]
