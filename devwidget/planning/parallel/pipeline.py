"""Pipelines: the step of one stage as a plan runs it (1F1B), and torch's schedules as records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import replace_tensors, tensors_in
from devwidget.capture.validation import refuse_counts
from devwidget.planning.watcher import virtual_gpu
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.ranks.parallel_plan import ActionKind, Pipeline, PipelineAction
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
        made = tuple(
            torch.empty(shape, dtype=dtype, device=virtual_gpu(0), requires_grad=dtype.is_floating_point)
            for shape, dtype in self.given or ()
        )
        arrived = self.args if self.given is None else made
        out = self.part(*arrived)
        self.passed = tuple((tuple(each.shape), each.dtype) for each in tensors_in(out))
        return arrived, self.loss_fn(out, self.target) if self.is_last else out

    def _run_backward(self, arrived: Any, out: Any) -> None:
        passed = [each for each in tensors_in(out) if each.requires_grad]
        torch.autograd.backward(passed, None if self.is_last else [torch.empty_like(each) for each in passed])


def _cut_microbatch(tensor: torch.Tensor, microbatches: int) -> torch.Tensor:
    if not tensor.dim() or tensor.shape[0] % microbatches:
        facts = {"shape": list(tensor.shape), "microbatches": microbatches}
        what = Message("a batch of shape {shape} has no {microbatches} equal parts", **facts)
        raise DevwidgetError(what, instead="microbatches=...")
    return tensor[: tensor.shape[0] // microbatches]


# Kinds of torch, and how long torch's visualiser draws each.
_KINDS: dict[str, tuple[ActionKind, int]] = {
    "FORWARD": ("forward", 1),
    "FULL_BACKWARD": ("backward", 2),
    "BACKWARD_INPUT": ("input gradient", 1),
    "BACKWARD_WEIGHT": ("weight gradient", 1),
    "OVERLAP_F_B": ("forward and backward", 3),
}
# A stage gives its input's gradient to the stage before it, whichever kind of action computes it.
_GRADIENT = "gradient"

Done = dict[tuple[str, int, int], int]


def read_pipeline(schedule: Any, ranks: int, microbatches: int, stages_per_rank: int | None) -> Pipeline:
    """Read the schedule of a name, a class or an object of torch; raise DevwidgetError if torch refuses it."""
    torch_internals.check_names("drawing a pipeline")
    order = getattr(schedule, "pipeline_order", None)
    if isinstance(order, dict):
        actions = [order[rank] for rank in sorted(order)]
        return _time_actions(type(schedule).__name__, actions)
    refuse_counts(ranks=ranks, microbatches=microbatches, stages_per_rank=1 if stages_per_rank is None else stages_per_rank)
    try:
        found = torch_internals.schedule_class(schedule) if isinstance(schedule, str) else schedule
        actions = torch_internals.schedule_ops(found, ranks, microbatches, stages_per_rank)
    except (ValueError, TypeError, AssertionError) as error:
        instead = 'devwidget.pipeline("1F1B", ranks=4, microbatches=8)'
        raise DevwidgetError(Message("torch has no such schedule: {error}", error=error_text(error)), instead=instead) from None
    return _time_actions(found.__name__, actions)


def _time_actions(name: str, order: Iterable[Iterable[Any]]) -> Pipeline:
    """Place each action as early as its inputs are there; raise DevwidgetError if ranks wait for each other for ever."""
    # Neither gaps, which are None, nor what moves data.
    computed = ([each for each in actions if each is not None and each.computation_type.name in _KINDS] for actions in order)
    waiting = [_count_from_zero(actions) for actions in computed]
    every = [each for actions in waiting for part in actions for each in _list_parts(part)]
    last = max((each.stage_index for each in every), default=0)
    done: Done = {}
    rows: list[list[PipelineAction]] = [[] for _ in waiting]
    while any(waiting):
        moved = False
        for row, actions in zip(rows, waiting, strict=True):
            while actions and (ready := _find_ready_time(actions[0], done, last)) is not None:
                start = max(ready, row[-1].start + row[-1].width if row else 0)
                row.append(_place_action(actions.pop(0), start, done))
                moved = True
        if not moved:
            raise DevwidgetError(Message("the ranks of {name} wait for each other for ever", name=name))
    microbatches = len({each.microbatch_index for each in every})
    return Pipeline(name, last + 1, microbatches, tuple(map(tuple, rows)))


def _count_from_zero(actions: list[Any]) -> list[Any]:
    """Count the forwards from 0: torch 2.13 numbers those of the last stage of 1F1B 1 to n."""
    forward = [each.microbatch_index for each in actions if each.computation_type.name == "FORWARD"]
    if forward != list(range(1, len(forward) + 1)):
        return actions
    counted = (each._replace(microbatch_index=each.microbatch_index - 1) for each in actions)
    return [new if old.computation_type.name == "FORWARD" else old for old, new in zip(actions, counted, strict=True)]


def _list_parts(action: Any) -> tuple[Any, ...]:
    return tuple(action.sub_actions or (action,))


def _find_ready_time(action: Any, done: Done, last: int) -> int | None:
    """Return when what an action needs is there; None while it is not."""
    needs = [need for part in _list_parts(action) for need in _list_needs(part, last)]
    return None if any(need not in done for need in needs) else max((done[need] for need in needs), default=0)


def _list_needs(action: Any, last: int) -> list[tuple[str, int, int]]:
    stage, batch, kind = action.stage_index, action.microbatch_index, action.computation_type.name
    if kind == "FORWARD":
        return [("FORWARD", stage - 1, batch)] if stage else []
    if kind == "BACKWARD_WEIGHT":
        return [(_GRADIENT, stage, batch)]
    return [(_GRADIENT, stage + 1, batch) if stage < last else ("FORWARD", stage, batch)]


def _place_action(action: Any, start: int, done: Done) -> PipelineAction:
    kind, width = _KINDS[action.computation_type.name]
    at = start
    for part in _list_parts(action):
        at += _KINDS[part.computation_type.name][1]
        what = _GRADIENT if part.computation_type.name in ("FULL_BACKWARD", "BACKWARD_INPUT") else part.computation_type.name
        done[what, part.stage_index, part.microbatch_index] = at
    first = _list_parts(action)[0]
    return PipelineAction(kind, first.stage_index, first.microbatch_index, start, width)
