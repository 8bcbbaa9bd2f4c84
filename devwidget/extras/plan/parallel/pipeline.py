"""Pipelines: the step of one stage as a plan runs it (1F1B)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import replace_tensors, tensors_in
from devwidget.extras.plan.watcher import virtual_gpu
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.records.trace import Phase

Passed = tuple[tuple[tuple[int, ...], torch.dtype], ...]
"""Shapes and dtypes of what one stage passes on to the next."""


def list_stage_phases(stage: int, stages: int, microbatches: int) -> Iterator[Phase]:
    """Yield a stage's phases: one forward ahead for each stage behind it, then one of each in turn."""
    ahead = min(stages - stage - 1, microbatches)
    for _ in range(ahead):
        yield "forward"
    for _ in range(microbatches - ahead):
        yield "forward"
        yield "backward"
    for _ in range(ahead):
        yield "backward"


class StageStep:
    """What a rank of a pipeline runs in one step. Forward and backward alternate, so they are one part of the step.

    Attributes:
        passed: what one microbatch of it passes on.
    """

    def __init__(
        self,
        part: nn.Module,
        inputs: Arguments,
        loss_fn: Callable[..., Any] | None,
        optimizer: torch.optim.Optimizer | None,
        stage: tuple[int, int],
        microbatches: int,
        given: Passed | None,
    ) -> None:
        if inputs.kwargs or loss_fn is None:
            raise DevwidgetError(
                Message("a pipeline needs a loss, and a batch without names"), instead="loss_fn=..., target=..."
            )
        self.part, self.optimizer, self.loss_fn = part, optimizer, loss_fn
        self.order = list(list_stage_phases(*stage, microbatches))
        self.is_last = stage[0] == stage[1] - 1
        self.given, self.passed = given, given
        self.args, self.target = (
            replace_tensors(each, lambda tensor: _cut_microbatch(tensor, microbatches)) for each in (inputs.args, inputs.target)
        )

    def list_phases(self) -> Iterator[tuple[Phase, Callable[[], None]]]:
        """Yield the parts of the step in order."""
        yield "backward", self._run_alternating
        if self.optimizer is not None:
            yield "optimizer", self.optimizer.step

    def _run_alternating(self) -> None:
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        flying: deque[Any] = deque()
        for what in self.order:
            if what == "forward":
                flying.append(self._run_forward())
            else:
                self._run_backward(*flying.popleft())

    def _run_forward(self) -> tuple[Any, Any]:
        """Return what arrived and what came of it: both stay until the microbatch comes back."""
        arrived = self.args
        if self.given is not None:
            arrived = tuple(_make_arrived(shape, dtype) for shape, dtype in self.given)
        out = self.part(*arrived)
        self.passed = tuple((tuple(each.shape), each.dtype) for each in tensors_in(out))
        if self.is_last:
            return arrived, self.loss_fn(out, self.target)
        return arrived, out

    def _run_backward(self, arrived: Any, out: Any) -> None:
        passed = [each for each in tensors_in(out) if each.requires_grad]
        torch.autograd.backward(passed, None if self.is_last else [torch.empty_like(each) for each in passed])


def _make_arrived(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=virtual_gpu(0), requires_grad=dtype.is_floating_point)


def _cut_microbatch(tensor: torch.Tensor, microbatches: int) -> torch.Tensor:
    if not tensor.dim() or tensor.shape[0] % microbatches:
        facts = {"shape": list(tensor.shape), "microbatches": microbatches}
        what = Message("a batch of shape {shape} cannot be split into {microbatches} equal parts", **facts)
        raise DevwidgetError(what, instead="microbatches=...")
    return tensor[: tensor.shape[0] // microbatches]
