"""The half of `plan` that needs torch: places a copy of the model on virtual GPUs and watches one step of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import all_tensors
from devwidget.capture.step.batch import Arguments, arguments
from devwidget.capture.step.sources import kept_source
from devwidget.capture.validation import refuse_model
from devwidget.planning.batches import with_lengths
from devwidget.planning.changes import Changed
from devwidget.planning.child.process import ask
from devwidget.planning.placement import Placement, placed_copy
from devwidget.planning.refusals import refuse
from devwidget.planning.rehearsal import rehearse
from devwidget.planning.watcher import Watcher, bytes_by_gpu
from devwidget.planning.what_if import WhatIf
from devwidget.records.plan import Plan, may_be_asked
from devwidget.simulator.cluster import parse_cluster


def make_plan(
    model: nn.Module,
    batch: Any,
    *,
    gpus: int,
    memory: int | str | Sequence[int | str] | None,
    card: str | None,
    loss_fn: Callable[..., Any] | None,
    target: Any,
    optimizer: torch.optim.Optimizer | type[torch.optim.Optimizer] | None,
    placement: Placement,
) -> Plan:
    """See `devwidget.plan`."""
    refuse_model(model)
    asked = {"gpus": gpus, "memory": memory, "card": card, "loss_fn": loss_fn, "optimizer": optimizer, "placement": placement}
    parse_cluster(gpus, memory, False, card=card)
    refuse(optimizer, placement)
    with kept_source(batch):
        inputs = arguments(model, batch, target=target, has_loss=loss_fn is not None)
    plan = ask(plan_of, model, inputs, asked, Changed())
    return may_be_asked(plan, WhatIf(model, inputs, asked, plan, plan_of))


def plan_of(model: nn.Module, inputs: Arguments, asked: dict[str, Any], changed: Changed) -> Plan:
    """The plan of one step, with something changed; see `devwidget.plan`."""
    refuse(asked["optimizer"], asked["placement"])
    return with_lengths(lambda lengths_stay: _plan_of(model, inputs, asked, changed, lengths_stay))


def _plan_of(model: nn.Module, inputs: Arguments, asked: dict[str, Any], changed: Changed, lengths_stay: bool) -> Plan:
    cluster = parse_cluster(asked["gpus"], asked["memory"], False, card=asked["card"])
    placement, watcher = asked["placement"], Watcher(asked["gpus"])
    with placed_copy(model, placement, cluster, watcher, changed) as (copied, accounts):
        weights = bytes_by_gpu(all_tensors(copied.inner))
        with changed.around():
            step = model, copied, inputs, asked["loss_fn"], asked["optimizer"], watcher
            phases = rehearse(*step, lengths_stay=lengths_stay, accumulated=changed.accumulated)
        devices = tuple(watcher.device(index, account, weights.get(index, 0)) for index, account in enumerate(accounts))
    name = placement if isinstance(placement, str) else "device map"
    guesses = tuple(moment.record() for moment in watcher.guesses)
    return Plan(type(model).__name__, name, tuple(phases), devices, copied.device_map, guesses, asked["card"] or "")
