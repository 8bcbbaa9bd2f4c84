"""Faults of optimizers as a recording writes them, and what the frames tell of optimizers that are older than it."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from devwidget.capture.faults import operand_names
from devwidget.capture.object_fields import is_a
from devwidget.capture.patches.untrained import UntrainedParameters
from devwidget.capture.recording.descriptions import fault_at, operand_of
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.snapshot.optimizer_state import parameters_of
from devwidget.capture.source_code.call_sites import raw_site
from devwidget.capture.source_code.reachable_objects import TooManyObjects, reachable_objects
from devwidget.records.site import Site
from devwidget.records.trace import Fault, FaultDetails, Operand


def describe_operand(name: str, tensor: torch.Tensor) -> Operand:
    """A tensor that is not where, or in which, it should be."""
    return operand_of(tensor, name, name, stray=True)


def make_fault(
    state: RecordingState, names: operand_names.Names, frame: Any, what: Any, error: str, operands: tuple[Operand, ...],
    details: FaultDetails, birth: Site | None = None, target: Any = None,
) -> Fault:  # fmt: skip
    """The fault of a step, or of the construction, of an optimizer."""
    return fault_at(
        state.tracker,
        what,
        "step" if what == "optimizer" else "add_param_group",
        raw_site(frame),
        module=None,
        error=error,
        operands=operands,
        target=target,
        healed=state.heal,
        birth=birth,
        model_name=names.model_name(),
        details=details,
    )


def mark_reachable(frame: FrameType, missing: UntrainedParameters) -> bool:
    """Mark as trained what the optimizers have that the program can reach, also those that do not step in this recording.

    Returns:
        False if there is too much to look through.
    """
    try:
        for each in reachable_objects(frame):
            if is_a(each, torch.optim.Optimizer):
                missing.mark_trained(parameters_of(each))
    except TooManyObjects:
        return False
    return True
