"""Runs steps of the copy in a loop, phase by phase, with the user's optimizer made again for its parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from devwidget.capture.object_fields import parts_of
from devwidget.capture.snapshot.optimizer_state import groups_of
from devwidget.capture.source_code.call_sites import to_site
from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import named_tensors
from devwidget.extras.plan.changes import settings_of
from devwidget.extras.plan.current_module import CurrentModule
from devwidget.extras.plan.loops import PLAIN, STEP, TRAINER, Loop, MeanStep, RunningLoop, start_loop
from devwidget.extras.plan.placement import LengthsOnGpu, PlacedCopy, meta_copy_of_model, place_batch
from devwidget.extras.plan.records.plan import LoopPeak
from devwidget.extras.plan.watcher import Watcher, deepest_line, virtual_gpu
from devwidget.gpus.state import Account, simulation
from devwidget.records.errors import DevwidgetError, SimulationError, message
from devwidget.records.schema.message import Message
from devwidget.records.trace import Phase


def rehearse_step(
    model: nn.Module,
    copied: PlacedCopy,
    inputs: Arguments,
    loss_fn: Any,
    optimizer: Any,
    watcher: Watcher,
    loop: Loop,
    after_forward: Callable[[], None] = lambda: None,
    after_steps: Callable[[RunningLoop], None] = lambda running: None,
    lengths_stay: bool = False,
) -> list[Phase]:
    """Run the step; with an optimizer twice, because from the second on its state is there during backward.

    Args:
        loop: what is around it; one that keeps its output runs twice too.
        after_forward: called each time when a forward has ended.
        after_steps: receives the loop when all steps have run.
        lengths_stay: what may be the lengths of sequences is not moved to a GPU.

    Raises:
        LengthsOnGpu, SimulationError, DevwidgetError: as `run_phase`.
    """
    batch = place_batch(copied, inputs, lengths_stay)
    step = MeanStep(copied.placed, batch, _place_loss(loss_fn), remake_optimizer(model, copied.inner, optimizer))
    watcher.making = step.optimizer
    phases: list[Phase] = []
    running = start_loop(loop, step, watcher)
    looking = CurrentModule(copied.inner)
    with contextlib.closing(running), looking as watcher.where, watcher.counting_gradients(copied.inner):
        for _ in range(2 if step.optimizer is not None or loop.kind not in (STEP, TRAINER) else 1):
            phases = []
            watcher.begin_step()
            for phase, run in running.list_phases():
                phases.append(run_phase(phase, run, watcher))
                if phase == "forward":
                    after_forward()
            if step.optimizer is not None:
                watcher.count_optimizer_state(step.optimizer)
        after_steps(running)
    return list(dict.fromkeys(phases))


def run_other_loops(running: RunningLoop, accounts: tuple[Account, ...], watcher: Watcher) -> Iterator[LoopPeak]:
    """Continue with the same model and optimizer in the other loops, one step each, and measure what that takes."""
    planned, fits = _take_peaks(accounts), all(map(_has_room, accounts))
    goes_back = "loss" in running.seen and running.step.goes_back(running.seen["loss"])
    kinds = [PLAIN]
    if goes_back:
        kinds.append(TRAINER)
    for kind in kinds:
        running.loop = replace(running.loop, kind=kind)
        for account in accounts:
            account.release_cache()
            account.reset_peaks()
        for phase, run in running.list_phases():
            run_phase(phase, run, watcher)
        peaks = _take_peaks(accounts)
        # The first step of a loop that keeps its output is as the first that was planned.
        most = max(*peaks, *planned) if kind == PLAIN else max(peaks)
        yield LoopPeak(kind, most, all(map(_has_room, accounts)) and (fits or kind != PLAIN))


def _take_peaks(accounts: tuple[Account, ...]) -> list[int]:
    simulation.ledger.settle_freed()
    return [account.peak for account in accounts]


def _has_room(account: Account) -> bool:
    return max(account.peak, account.peak_in_segments) + account.context <= account.capacity


def _place_loss(loss_fn: Any) -> Any:
    """Copy a loss that is a module to the GPU: it has tensors too, such as class weights."""
    if not isinstance(loss_fn, nn.Module):
        return loss_fn
    return meta_copy_of_model(loss_fn, lambda tensor: virtual_gpu(0), lambda tensor: virtual_gpu(0))


def run_phase(phase: Phase, run: Callable[[], None], watcher: Watcher) -> Phase:
    """Run one part of the step.

    Raises:
        SimulationError: if it needs values that are not known.
        LengthsOnGpu: if it packs by lengths that are on a GPU.
        DevwidgetError: if it fails.
    """
    watcher.enter_phase(phase)
    try:
        run()
    except SimulationError as error:
        site = to_site(deepest_line(error.__traceback__))
        place = Message(" at {place}, `{source}`", place=str(site), source=site.text) if site is not None else ""
        facts = {"phase": Message(phase), "place": place, "problem": error.what}
        raise SimulationError(
            Message("the {phase} depends on values that a plan does not have{place}: {problem}", **facts),
            why=Message("a plan does not compute the values of activations"),
            instead=Message(
                "run the step with values, under `devwidget.simulate(...)`, and read `torch.{kind}.max_memory_allocated`",
                kind=virtual_gpu(0).type,
            ),
        ) from error
    except DevwidgetError:
        raise
    except (RuntimeError, TypeError, AttributeError) as error:  # what else is raised is the model's own
        kind = LengthsOnGpu if message(error).startswith("'lengths' argument should be") else DevwidgetError
        fails = Message("the {phase} fails in this placement: {error}", phase=Message(phase), error=message(error))
        instead = Message("print(devwidget.trace(model, batch, ...)), which runs the same step and reports where it fails")
        raise kind(fails, why=Message("the plan runs the step once"), instead=instead) from error
    return phase


def remake_optimizer(model: nn.Module, copied: nn.Module, optimizer: Any) -> torch.optim.Optimizer | None:
    """Make an optimizer of the same class and settings for the copy; groups match by names of parameters."""
    if optimizer is None:
        return None
    parameters = dict(named_tensors(copied, "_parameters"))
    if isinstance(optimizer, type):
        made: torch.optim.Optimizer = optimizer(parameters.values())
        return made
    names = {id(parameter): name for name, parameter in named_tensors(model, "_parameters")}
    groups = []
    for group in groups_of(optimizer):
        own = [parameters[names[id(each)]] for each in parts_of(group.get("params")) if id(each) in names]
        groups.append({**group, "params": own})
    same: torch.optim.Optimizer = type(optimizer)(groups, **settings_of(optimizer))
    return same
