"""Tensors of the model that no optimizer trains, and optimizers that have none of its parameters.

The latter happens if you run the model's cell again but not the optimizer's: each step then trains the old model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, MutableMapping
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from devwidget.capture import torch_internals
from devwidget.capture.faults import owners
from devwidget.capture.faults.moves import leaf_behind
from devwidget.capture.faults.operand_names import Names
from devwidget.capture.modules import is_optimizer, named_tensors
from devwidget.capture.object_fields import class_name
from devwidget.capture.recording.event_log import operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.snapshot.optimizer_state import parameters_of, tensors_of
from devwidget.capture.source_code import classes
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.source_code.frames import reachable_objects
from devwidget.capture.source_code.provenance import find_construction
from devwidget.capture.source_code.stack import user_frames
from devwidget.capture.tensors import gradient_of, is_leaf, is_parameter
from devwidget.capture.walk import TooManyObjects
from devwidget.records.fault_details import MissingParameters
from devwidget.records.site import Site
from devwidget.records.trace import Family, Fault, Held, Operand


def describe_operand(name: str, tensor: torch.Tensor) -> Operand:
    """Describe a tensor that is not where it should be, or not registered where it should be."""
    return operand_of(tensor, name, name, stray=True)


def make_fault(state: RecordingState, frame: FrameType, what: Family, operands: tuple[Operand, ...], **fields: Any) -> Fault:
    """Return a fault of the step or the construction of an optimizer."""
    call = "step" if what == "optimizer" else "add_param_group"
    fields |= {"module": None, "operands": operands, "healed": state.heal, "model_name": Names(state, frame).model_name()}
    return state.tracker.describe_fault(what, call, raw_site(frame), **fields)


class UntrainedParameters:
    """Parameters that one optimizer lacks. Parameters that another one trains are removed when the recording ends.

    Attributes:
        trained: ids of parameters that have an optimizer.
        faults: key -> fault with one operand per parameter, and the ids of the parameters.
    """

    def __init__(self, state: RecordingState) -> None:
        self._state = state
        self.trained: set[int] = set()
        self.faults: dict[object, tuple[Fault, tuple[int, ...]]] = {}
        self._covered: set[int] = set()
        self._at_work: MutableMapping[torch.optim.Optimizer, bool] = WeakIdKeyDictionary()
        self._all_known: bool | None = None

    def mark_trained(self, parameters: Iterable[object]) -> None:
        """Note that these parameters have an optimizer."""
        self.trained.update(map(id, parameters))

    def mark_reachable(self, frame: FrameType) -> bool:
        """Mark as trained the parameters of all reachable optimizers, including those that do not step in this recording.

        Returns:
            False if there are too many objects to search.
        """
        try:
            for each in reachable_objects(frame):
                if is_optimizer(each):
                    self.mark_trained(parameters_of(each))
        except TooManyObjects:
            return False
        return True

    def write_untrained(self) -> None:
        """At the end of the recording, record the parameters that no optimizer trains."""
        for fault, ids in self.faults.values():
            left = tuple(o for o, each in zip(fault.operands, ids, strict=True) if each not in self.trained)
            needs_all = isinstance(fault.detail, MissingParameters) and fault.detail.reason == "another model"
            if left and (len(left) == len(ids) or not needs_all):
                self._state.log.log_fault(dataclasses.replace(fault, operands=left))

    def check_coverage(self, optimizer: torch.optim.Optimizer) -> None:
        """Check at the first step of an optimizer whether it lacks something that it should train."""
        state = self._state
        if id(optimizer) in self._covered or not trains_model(state, optimizer):
            return
        self._covered.add(id(optimizer))
        for owned in owners.unregistered_tensors(state.tracker):
            module, tensor = owned.module, owned.tensor
            leaf = tensor if is_leaf(tensor) else leaf_behind(tensor)
            if leaf is None or not module.training or not leaf.requires_grad or state.tracker.is_registered(leaf):
                continue
            if leaf is tensor and not (is_parameter(tensor) and tensor.grad is not None):
                continue
            held = owned.describe_holder()
            what: Family = "untrained" if leaf is tensor else "leaf"
            path, site, birth = held.module, held.assigned, held.assigned
            root = state.births.find_root(tensor)
            if leaf is tensor:
                path, site = _find_use(state, module, held, tensor)
            elif root is not None:
                site = to_site(root.site)
                birth = site or held.assigned
            name = f"self.{held.name}"
            operand = operand_of(tensor, name, name, stray=True, birth=birth, held=held)
            fault = state.tracker.describe_fault(what, "step", site, module=path, phase="optimizer", operands=(operand,))
            self.faults["untrained", id(leaf)] = fault, (id(leaf),)

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
            self.faults.pop(key, None)
            return
        if key in self.faults or "backward" not in self._state.tracker.phases or not self._list_waiting_roots():
            return
        if self._all_known is None:  # much is looked at: once is enough
            self._all_known = self.mark_reachable(frame)
        if not self._all_known:
            return
        built = built or find_construction(user_frames(frame), optimizer)
        root = self._find_meant_root(optimizer, built)
        if root is None:
            return
        model_line = find_construction(user_frames(frame), root)
        lacking, operands = _list_with_gradients(root), []
        for name, tensor in lacking:
            held = Held("", name, "parameter", class_name(type(root)), built=model_line)
            operands.append(operand_of(tensor, name, name, stray=True, held=held))
        detail = MissingParameters(class_name(type(optimizer)), "another model")
        fault = make_fault(self._state, frame, "optimizer", tuple(operands), detail=detail, birth=built)
        self.faults[key] = fault, tuple(id(each) for _, each in lacking)

    def _list_waiting_roots(self) -> list[nn.Module]:
        """Return models with gradients, none of whose parameters are in a known optimizer."""
        roots = [root for ref in self._state.tracker.roots if (root := ref()) is not None]
        waiting = filter(_list_with_gradients, roots)
        return [root for root in waiting if self.trained.isdisjoint(id(each) for _, each in named_tensors(root, "_parameters"))]

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


def trains_model(state: RecordingState, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer has a parameter of the model."""
    mine = set(map(id, parameters_of(optimizer)))
    return any(id(each) in mine for _, each in state.tracker.list_parameters())


def _find_use(state: RecordingState, module: nn.Module, held: Held, tensor: torch.Tensor) -> tuple[str | None, Site | None]:
    """Return the path of the module that used a parameter, and where."""
    path, used = held.module, classes.attribute_read(type(module), held.name)
    for stranger, (owner, site) in list(state.tracker.strangers.items()):
        if any(parameter is tensor for _, parameter in named_tensors(stranger, "_parameters")):
            path, used = owner, to_site(site) or used
    return path, used or held.assigned


def _list_with_gradients(root: nn.Module) -> list[tuple[str, torch.Tensor]]:
    parameters = named_tensors(root, "_parameters")
    return [(name, each) for name, each in parameters if each.requires_grad and each.grad is not None]
