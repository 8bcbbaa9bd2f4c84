"""No word over healthy runs, and every number of theirs as without us."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from torch import nn

import devwidget
from tests.extras.watch.loops import Loop, unwatched
from tests.sampling import sample

STEPS = 200


def varying_lengths(loop):
    lengths = random.Random(0)
    return lambda step: loop.go_back(loop.model(loop.draw_batch(lengths.randrange(1, 12))))


def accumulating(loop):
    def turn(step):
        for _ in range(3):
            loop.model(loop.draw_batch()).square().mean().backward()
        loop.go_back(loop.model(loop.draw_batch()))

    return turn


def evaluating(loop):
    def turn(step):
        if step % 30 == 29:
            loop.model.eval()
            with torch.no_grad():
                sum(loop.model(loop.draw_batch(32)).mean() for _ in range(3)).item()
            loop.model.train()
        loop.go_back(loop.model(loop.draw_batch()))

    return turn


def with_a_moving_copy(loop):
    moving = copy.deepcopy(loop.model)

    def turn(step):
        loop.go_back(loop.model(loop.draw_batch()))
        with torch.no_grad():
            for ours, theirs in zip(moving.parameters(), loop.model.parameters(), strict=True):
                ours.lerp_(theirs, 0.01)
        if step % 60 == 59:
            copy.deepcopy(loop.model)(loop.draw_batch())

    return turn


def under_a_closure(loop):
    def turn(step):
        def closure():
            loop.optimizer.zero_grad()
            loss = loop.model(loop.draw_batch()).square().mean()
            loss.backward()
            return loss

        loop.losses.append(loop.optimizer.step(closure).detach())

    return turn


def with_a_schedule_and_a_callback_from_step_50(loop):
    schedule, means = torch.optim.lr_scheduler.StepLR(loop.optimizer, 100), []

    def turn(step):
        loss = loop.go_back(loop.model(loop.draw_batch()))
        schedule.step()
        if step >= 50:
            means.append(loss.detach().square())
            del means[:-3]

    return turn


def clipping_under_autocast_with_a_scaler(loop):
    scaler = torch.amp.GradScaler("cuda")

    def turn(step):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loop.model(loop.draw_batch()).square().mean()
        scaler.scale(loss).backward()
        if step % 2:
            scaler.unscale_(loop.optimizer)
            nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
            scaler.step(loop.optimizer)
            scaler.update()
            loop.optimizer.zero_grad()

    return turn


def with_a_second_model_and_optimizer(loop):
    other = Loop(unwatched)

    def turn(step):
        other.go_back(other.model(loop.draw_batch()))
        loop.go_back(loop.model(loop.draw_batch()) - other.model(loop.draw_batch()).detach())

    return turn


def with_outputs_that_are_let_go_each_epoch(loop):
    def turn(step):
        out = loop.model(loop.draw_batch(64))
        loop.go_back(out)
        loop.kept = [] if step % 100 == 0 else [*loop.kept, out.detach()]

    return turn


def with_lengths_that_grow_up_to_a_bound(loop):
    return lambda step: loop.go_back(loop.model(loop.draw_batch(min(4 + step // 10, 16))))


HEALTHY = [
    varying_lengths, accumulating, evaluating, with_a_moving_copy, under_a_closure,
    with_a_schedule_and_a_callback_from_step_50, clipping_under_autocast_with_a_scaler, with_a_second_model_and_optimizer,
    with_outputs_that_are_let_go_each_epoch, with_lengths_that_grow_up_to_a_bound,
]  # fmt: skip


@pytest.mark.parametrize("healthy", sample(HEALTHY, every=3), ids=lambda each: each.__name__)
def test_a_healthy_run_is_silent_and_bit_identical(healthy):
    numbers = []
    for watcher in (devwidget.watch, unwatched):
        with devwidget.simulate(1, memory="1GiB"):
            loop = Loop(watcher, STEPS)
            run = loop.run(healthy(loop))
            parameters = (parameter.detach().cpu() for parameter in loop.model.parameters())
            numbers.append([*loop.losses, *parameters, torch.get_rng_state()])
            if run is not None:
                assert run.findings == ()
                assert run.result.not_checked == ()
                assert run.steps.total >= STEPS // 2
                assert 10 in run.recorded
    assert all(map(torch.equal, *numbers))
