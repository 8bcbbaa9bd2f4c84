"""Plans a step with torch: places a copy of the model on virtual GPUs and watches one step of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments, kept_source, make_arguments
from devwidget.capture.tensors import all_tensors
from devwidget.capture.validation import refuse_counts, refuse_model
from devwidget.extras.plan.changes import Changed, class_of_optimizer, prepare_checkpointing, take_partial
from devwidget.extras.plan.child_process import ask_child
from devwidget.extras.plan.loops import CHECKPOINTING, RunningLoop, parse_loop
from devwidget.extras.plan.placement import place_copy, retry_with_lengths
from devwidget.extras.plan.records.plan import DevicePlan, LoopPeak, Plan, may_be_asked
from devwidget.extras.plan.rehearsal import rehearse_step, run_other_loops
from devwidget.extras.plan.watcher import Watcher, bytes_by_gpu
from devwidget.extras.plan.what_if import WhatIf
from devwidget.gpus.state import simulation
from devwidget.gpus.virtual_machine import parse_cluster
from devwidget.records.errors import DevwidgetError, nearest, require_package
from devwidget.records.schema.message import Message


def make_plan(model: nn.Module, batch: Any, target: Any, asked: dict[str, Any], options: dict[str, Any]) -> Plan:
    """See `devwidget.plan`; `asked` are its arguments, `options` the arguments of the loop."""
    inputs = read_step(model, batch, target, asked, options)
    plan = ask_child(plan_step, model, inputs, {**asked, "others": options["loop"] is None}, Changed())
    return may_be_asked(plan, WhatIf(model, inputs, asked, plan, plan_step))


def read_step(model: nn.Module, batch: Any, target: Any, asked: dict[str, Any], options: dict[str, Any]) -> Arguments:
    """Return what a model is called with, and add the loop to what was asked for; raise DevwidgetError for what is wrong."""
    refuse_model(model)
    refuse_counts(gpus=asked["gpus"])
    parse_cluster(asked["gpus"], asked["memory"], False, card=asked["card"])
    asked |= ask_for_loop(asked["optimizer"], asked["loss_fn"], target, options)
    refuse_plan(asked["optimizer"], asked["placement"])
    with kept_source(batch):
        return make_arguments(model, batch, target=target, loss_fn=asked["loss_fn"])


def ask_for_loop(optimizer: Any, loss_fn: Any, target: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the optimizer, the loop and the checkpointing that were asked for.

    Raises:
        DevwidgetError: if they are none, or do not go together.
    """
    options = dict(options)
    checkpointing = options.pop("checkpointing")
    if checkpointing not in CHECKPOINTING:
        what = Message("`checkpointing` is {given}", given=repr(checkpointing))
        raise DevwidgetError(what, instead='checkpointing=True, checkpointing="reentrant"')
    loop = parse_loop(**options, has_optimizer=optimizer is not None)
    if loop.is_own and (loss_fn is not None or target is not None):
        raise DevwidgetError(
            Message("your own loop computes its own loss"),
            why=Message("it receives the model, the batch and the optimizer"),
            instead=Message("leave `loss_fn` out, and put the target into the batch"),
        )
    return {"optimizer": take_partial(optimizer), "loop": loop, "checkpointing": checkpointing}


def plan_step(model: nn.Module, inputs: Arguments, asked: dict[str, Any], changed: Changed) -> Plan:
    """Plan one step with something changed; see `devwidget.plan`."""
    refuse_plan(asked["optimizer"], asked["placement"])
    return retry_with_lengths(lambda lengths_stay: _plan_step_with_lengths(model, inputs, asked, changed, lengths_stay))


def _plan_step_with_lengths(
    model: nn.Module, inputs: Arguments, asked: dict[str, Any], changed: Changed, lengths_stay: bool
) -> Plan:
    cluster = parse_cluster(asked["gpus"], asked["memory"], False, card=asked["card"])
    placement, watcher, loop = asked["placement"], Watcher(asked["gpus"]), asked["loop"]
    devices, others = list[DevicePlan](), list[LoopPeak]()
    with place_copy(model, placement, cluster, watcher, prepare_checkpointing(changed, asked)) as (copied, accounts):
        weights = bytes_by_gpu(all_tensors(copied.inner))

        def look_back(running: RunningLoop) -> None:
            simulation.ledger.settle_freed()
            for index, account in enumerate(accounts):
                devices.append(watcher.describe_device(index, account, weights.get(index, 0)))
            # One that fails where the planned one runs, such as clipping of sparse gradients, is not told of.
            with contextlib.suppress(DevwidgetError):
                others.extend(run_other_loops(running, accounts, watcher) if asked.get("others") else ())

        step = model, copied, inputs, asked["loss_fn"], asked["optimizer"], watcher, loop
        phases = rehearse_step(*step, after_steps=look_back, lengths_stay=lengths_stay)
    name = placement if isinstance(placement, str) else "device map"
    guesses = tuple(dict.fromkeys(moment.to_record(0) for moment in watcher.guesses))
    said = guesses, asked["card"] or "", loop.to_record(asked["checkpointing"]), tuple(others)
    return Plan(type(model).__name__, name, tuple(phases), tuple(devices), copied.device_map, *said)


_WORDS = ("as is", "data parallel", "auto")


def refuse_plan(optimizer: object, placement: object) -> None:
    """Raise DevwidgetError, with what would have been right, for an invalid optimizer or placement."""
    kind = class_of_optimizer(optimizer)
    if optimizer is not None and not issubclass(kind, torch.optim.Optimizer):
        raise DevwidgetError(
            Message("the optimizer is a `{kind}`", kind=kind.__name__), instead=Message("pass an optimizer or its class")
        )
    if not isinstance(placement, Mapping) and placement not in _WORDS:
        raise DevwidgetError(
            Message("`placement` cannot be {placement}{hint}", placement=repr(placement), hint=nearest(str(placement), _WORDS)),
            instead=Message("one of {known}, or a dict such as {'encoder': 0, 'head': 1}", known=", ".join(map(repr, _WORDS))),
        )
    if placement not in _WORDS[:2]:
        require_package("accelerate", Message("a device map"))  # its hooks carry activations between the parts
