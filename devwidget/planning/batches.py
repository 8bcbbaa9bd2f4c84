"""The batch of a plan, on the GPUs on which the copy of the model expects it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch.nn.utils.rnn import PackedSequence

from devwidget.capture.object_fields import parts_of
from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import DEEPEST, is_tensor, replace_tensors
from devwidget.planning.child.tensors import place_of
from devwidget.planning.placement import PlacedCopy
from devwidget.records.errors import DevwidgetError
from devwidget.simulator.devices.labels import CPU_DEVICE
from devwidget.simulator.without_values.meta_copies import MetaCopies


class LengthsOnGpu(DevwidgetError):
    """A model packs sequences by the lengths that it is given, which CUDA wants on the CPU."""


Result = TypeVar("Result")


def with_lengths(run: Callable[[bool], Result]) -> Result:
    """What a step gives: run with all of the batch on GPUs; where lengths have to stay on the CPU, again without them.

    Args:
        run: is told whether lengths stay.
    """
    try:
        return run(False)
    except LengthsOnGpu:
        return run(True)


def batch_for(copied: PlacedCopy, inputs: Arguments, lengths_stay: bool) -> Arguments:
    """What the copy is called with."""
    packed = {id(sizes) for sizes in step_sizes((inputs.args, inputs.kwargs, inputs.target))}
    cpu = MetaCopies(lambda tensor: CPU_DEVICE)

    def on(device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
        there = MetaCopies(lambda tensor: device)

        def copy(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) in packed:  # C++ reads its memory
                return tensor
            return cpu.copy_tensor(tensor) if lengths_stay and _may_be_lengths(tensor) else there.copy_tensor(tensor)

        return copy

    args, kwargs = replace_tensors((inputs.args, inputs.kwargs), on(copied.home))
    return Arguments(args, kwargs, replace_tensors(inputs.target, on(copied.last)))


def _may_be_lengths(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.int64 and tensor.dim() == 1 and place_of(tensor).type == "cpu"


def step_sizes(value: Any, depth: int = DEEPEST) -> Iterator[torch.Tensor]:
    """How many sequences of each packed batch have each step: on the CPU wherever the batch is."""
    if issubclass(type(value), PackedSequence):
        yield value.batch_sizes
    elif depth and not is_tensor(value):
        for part in parts_of(value):
            yield from step_sizes(part, depth - 1)
