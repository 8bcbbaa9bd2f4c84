"""Pipeline schedules of torch as records: what each rank computes, in the order of torch's own visualiser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from devwidget.capture import torch_internals
from devwidget.records.errors import DevwidgetError, error_text
from devwidget.records.ranks.pipeline import ActionKind, Pipeline, PipelineAction
from devwidget.records.schema.message import Message

_KINDS: dict[str, tuple[ActionKind, int]] = {
    "FORWARD": ("forward", 1),
    "FULL_BACKWARD": ("backward", 2),
    "BACKWARD_INPUT": ("input gradient", 1),
    "BACKWARD_WEIGHT": ("weight gradient", 1),
    "OVERLAP_F_B": ("forward and backward", 3),
}
"""Kinds of torch, and how long torch's visualiser draws each."""
_GRADIENT = "gradient"
"""A stage gives its input's gradient to the stage before it, whichever kind of action computes it."""

Done = dict[tuple[str, int, int], int]


def read_pipeline(schedule: Any, ranks: int, microbatches: int, stages_per_rank: int | None) -> Pipeline:
    """The schedule of this name or class, or of an object of torch, which knows its own sizes.

    Raises:
        DevwidgetError: if torch knows no such schedule, or refuses these sizes.
    """
    torch_internals.check("drawing a pipeline")
    order = getattr(schedule, "pipeline_order", None)
    if isinstance(order, dict):
        actions = [order[rank] for rank in sorted(order)]
        return timed(type(schedule).__name__, actions)
    try:
        found = torch_internals.schedule_class(schedule) if isinstance(schedule, str) else schedule
        actions = torch_internals.schedule_ops(found, ranks, microbatches, stages_per_rank)
    except (ValueError, TypeError, AssertionError) as error:
        instead = 'devwidget.pipeline("1F1B", ranks=4, microbatches=8)'
        raise DevwidgetError(Message("torch has no such schedule: {error}", error=error_text(error)), instead=instead) from None
    return timed(found.__name__, actions)


def timed(name: str, order: Iterable[Iterable[Any]]) -> Pipeline:
    """Each action as early as what it needs is there, on its own rank in its order.

    Raises:
        DevwidgetError: if ranks wait for each other for ever.
    """
    waiting = [_in_order([each for each in actions if _computes(each)]) for actions in order]
    every = [each for actions in waiting for part in actions for each in _parts(part)]
    last = max((each.stage_index for each in every), default=0)
    done: Done = {}
    rows: list[list[PipelineAction]] = [[] for _ in waiting]
    while any(waiting):
        moved = False
        for row, actions in zip(rows, waiting, strict=True):
            while actions and (ready := _ready(actions[0], done, last)) is not None:
                start = max(ready, row[-1].start + row[-1].width if row else 0)
                row.append(_placed(actions.pop(0), start, done))
                moved = True
        if not moved:
            raise DevwidgetError(Message("the ranks of {name} wait for each other for ever", name=name))
    microbatches = len({each.microbatch_index for each in every})
    return Pipeline(name, last + 1, microbatches, tuple(map(tuple, rows)))


def _computes(action: Any) -> bool:
    """Not a gap, and not what moves data."""
    return action is not None and action.computation_type.name in _KINDS


def _in_order(actions: list[Any]) -> list[Any]:
    """The same with the forwards counted from 0: torch 2.13 tells those of the last stage of 1F1B as 1 to n."""
    forward = [each.microbatch_index for each in actions if each.computation_type.name == "FORWARD"]
    if forward != list(range(1, len(forward) + 1)):
        return actions
    counted = (each._replace(microbatch_index=each.microbatch_index - 1) for each in actions)
    return [new if old.computation_type.name == "FORWARD" else old for old, new in zip(actions, counted, strict=True)]


def _parts(action: Any) -> tuple[Any, ...]:
    return tuple(action.sub_actions or (action,))


def _ready(action: Any, done: Done, last: int) -> int | None:
    """When what an action needs is there; None while it is not."""
    needs = [need for part in _parts(action) for need in _needs(part, last)]
    return None if any(need not in done for need in needs) else max((done[need] for need in needs), default=0)


def _needs(action: Any, last: int) -> list[tuple[str, int, int]]:
    stage, batch, kind = action.stage_index, action.microbatch_index, action.computation_type.name
    if kind == "FORWARD":
        return [("FORWARD", stage - 1, batch)] if stage else []
    if kind == "BACKWARD_WEIGHT":
        return [(_GRADIENT, stage, batch)]
    return [(_GRADIENT, stage + 1, batch) if stage < last else ("FORWARD", stage, batch)]


def _placed(action: Any, start: int, done: Done) -> PipelineAction:
    kind, width = _KINDS[action.computation_type.name]
    at = start
    for part in _parts(action):
        at += _KINDS[part.computation_type.name][1]
        what = _GRADIENT if part.computation_type.name in ("FULL_BACKWARD", "BACKWARD_INPUT") else part.computation_type.name
        done[what, part.stage_index, part.microbatch_index] = at
    first = _parts(action)[0]
    return PipelineAction(kind, first.stage_index, first.microbatch_index, start, width)
