"""The step of one stage of a pipeline: 1F1B, forwards of some microbatches in flight before each backward."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import replace_tensors, tensors_in
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message
from devwidget.records.trace import Phase

Passed = tuple[tuple[tuple[int, ...], torch.dtype], ...]
"""Shapes and dtypes of what one stage passes on to the next."""


def order(stage: int, stages: int, microbatches: int) -> Iterator[Phase]:
    """What a stage does one after the other: as many forwards ahead as there are stages behind it, then one of each in turn."""
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
        self.order = list(order(*stage, microbatches))
        self.is_last = stage[0] == stage[1] - 1
        self.given, self.passed = given, given
        self.args, self.target = (
            replace_tensors(each, lambda tensor: _share(tensor, microbatches)) for each in (inputs.args, inputs.target)
        )

    def phases(self) -> Iterator[tuple[Phase, Callable[[], None]]]:
        """The parts of the step in order."""
        yield "backward", self._alternate
        if self.optimizer is not None:
            yield "optimizer", self._step

    def _alternate(self) -> None:
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        flying: deque[Any] = deque()
        for what in self.order:
            if what == "forward":
                flying.append(self._forward())
            else:
                self._backward(*flying.popleft())

    def _forward(self) -> tuple[Any, Any]:
        """What arrived and what came of it: both stay until the microbatch comes back."""
        arrived = self.args if self.given is None else tuple(_received(*each) for each in self.given)
        out = self.part(*arrived)
        self.passed = tuple((tuple(each.shape), each.dtype) for each in tensors_in(out))
        return arrived, self.loss_fn(out, self.target) if self.is_last else out

    def _backward(self, arrived: Any, out: Any) -> None:
        passed = [each for each in tensors_in(out) if each.requires_grad]
        torch.autograd.backward(passed, None if self.is_last else [torch.empty_like(each) for each in passed])

    def _step(self) -> None:
        if self.optimizer is not None:
            self.optimizer.step()


def _share(tensor: torch.Tensor, microbatches: int) -> torch.Tensor:
    if not tensor.dim() or tensor.shape[0] % microbatches:
        raise DevwidgetError(
            Message(
                "a batch of shape {shape} has no {microbatches} equal parts",
                shape=list(tensor.shape),
                microbatches=microbatches,
            ),
            instead="microbatches=...",
        )
    return tensor[: tensor.shape[0] // microbatches]


def _received(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, requires_grad=dtype.is_floating_point)
