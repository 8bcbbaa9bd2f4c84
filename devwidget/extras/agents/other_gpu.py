"""Run a step on another GPU, to see whether an edit has chosen one."""

from __future__ import annotations

import torch

from devwidget.capture.step.batch import Arguments
from devwidget.capture.step.step import Step
from devwidget.capture.tensors import all_tensors, replace_tensors
from devwidget.trying.reference_step import modules_that_cut

Pair = tuple[torch.device, torch.device]
"""The GPU of a step, and another one."""


def find_other_gpu(step: Step) -> Pair | None:
    """Return the GPU of a step and another one; None if its model uses several devices, or there is no other."""
    devices = {tensor.device for module in step.list_modules() for tensor in all_tensors(module)}
    if len(devices) != 1 or modules_that_cut(step.list_modules()):
        return None
    (mine,) = devices
    if mine.type != "cuda" or torch.cuda.device_count() < 2:
        return None
    return mine, torch.device("cuda", 1 - min(mine.index or 0, 1))


def move_step(pair: Pair, step: Step) -> Arguments:
    """Move what the step is called with, its model and its loss, as the user would; undone after the trial."""
    old, device = pair

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device == old:
            return tensor.to(device)
        return tensor

    for module in (step.model, step.loss_fn):
        if isinstance(module, torch.nn.Module):
            module.to(device)
    inputs = step.inputs
    return Arguments(*(replace_tensors(part, move) for part in (inputs.args, inputs.kwargs, inputs.target)))
