"""Tensors of the model that no optimizer trains: not registered by any module, or left out of all optimizers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import FrameType

import torch
from torch import nn

from devwidget.capture.faults import owners
from devwidget.capture.faults.leaves import leaf_behind
from devwidget.capture.faults.operand_names import Names
from devwidget.capture.modules import named_tensors, registered_entries
from devwidget.capture.recording.descriptions import fault_at, operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.snapshot.optimizer_state import parameters_of
from devwidget.capture.source_code import classes
from devwidget.capture.source_code.call_sites import raw_site, to_site
from devwidget.capture.tensors import is_leaf, is_parameter
from devwidget.records.device import DeviceId
from devwidget.records.fault_details import FaultDetail, MissingParameters
from devwidget.records.site import Site
from devwidget.records.trace import Family, Fault, Held, Operand


def describe_operand(name: str, tensor: torch.Tensor) -> Operand:
    """Describe a tensor that is not where it should be, or not registered where it should be."""
    return operand_of(tensor, name, name, stray=True)


def make_fault(
    state: RecordingState, frame: FrameType, what: Family, error: str, operands: tuple[Operand, ...],
    detail: FaultDetail | None, birth: Site | None = None, target: DeviceId | None = None,
) -> Fault:  # fmt: skip
    """Return a fault of the step or the construction of an optimizer."""
    call = "step" if what == "optimizer" else "add_param_group"
    return fault_at(state.tracker, what, call, raw_site(frame), module=None, error=error, operands=operands, target=target,
                    healed=state.heal, birth=birth, model_name=Names(state, frame).model_name(), detail=detail)  # fmt: skip


class UntrainedParameters:
    """Parameters that one optimizer lacks. Parameters that another one trains are removed when the recording ends.

    Attributes:
        trained: ids of parameters that have an optimizer.
        covered: ids of optimizers that `check_coverage` has seen.
        faults: key -> fault with one operand per parameter, and the ids of the parameters.
    """

    def __init__(self) -> None:
        self.trained: set[int] = set()
        self.covered: set[int] = set()
        self.faults: dict[object, tuple[Fault, tuple[int, ...]]] = {}

    def mark_trained(self, parameters: Iterable[object]) -> None:
        """Note that these parameters have an optimizer."""
        self.trained.update(map(id, parameters))

    def write_untrained(self, state: RecordingState) -> None:
        """At the end of the recording, record the parameters that no optimizer trains."""
        for fault, ids in self.faults.values():
            left = tuple(o for o, each in zip(fault.operands, ids, strict=True) if each not in self.trained)
            needs_all = isinstance(fault.detail, MissingParameters) and fault.detail.reason == "another model"
            if left and (len(left) == len(ids) or not needs_all):
                state.log.log_fault(dataclasses.replace(fault, operands=left))


def check_coverage(state: RecordingState, optimizer: torch.optim.Optimizer, missing: UntrainedParameters) -> None:
    """Check at the first step of an optimizer whether it lacks something that it should train."""
    if id(optimizer) in missing.covered or not trains_model(state, optimizer):
        return
    missing.covered.add(id(optimizer))
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
        fault = fault_at(state.tracker, what, "step", site, module=path, phase="optimizer", operands=(operand,),
                         model_name=state.tracker.model_name)  # fmt: skip
        missing.faults["untrained", id(leaf)] = fault, (id(leaf),)


def trains_model(state: RecordingState, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an optimizer has a parameter of the model."""
    mine = {id(parameter) for parameter in parameters_of(optimizer)}
    return any(
        id(p) in mine for _, module in state.tracker.list_modules() for _, p in registered_entries(module, "_parameters")
    )


def _find_use(state: RecordingState, module: nn.Module, held: Held, tensor: torch.Tensor) -> tuple[str | None, Site | None]:
    """Return the path of the module that used a parameter, and where."""
    path, used = held.module, classes.attribute_read(type(module), held.name)
    for stranger, (owner, site) in list(state.tracker.strangers.items()):
        if any(parameter is tensor for _, parameter in named_tensors(stranger, "_parameters")):
            path, used = owner, to_site(site) or used
    return path, used or held.assigned
