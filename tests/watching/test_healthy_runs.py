"""No word over healthy runs, and every number of theirs as without us."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from torch import nn

import devwidget
from tests.watching.loops import Loop, unwatched

STEPS = [300, pytest.param(1000, marks=[pytest.mark.fuzz, pytest.mark.timeout(900)])]


def plain(loop):
    return lambda step: loop.go_back(loop.model(loop.draw_batch()))


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


def logging(loop):
    def turn(step):
        loss = loop.go_back(loop.model(loop.draw_batch()))
        if step % 50 == 10:
            loop.kept.append(loss.item())

    return turn


def with_a_bounded_history(loop):
    def turn(step):
        loop.kept = [*loop.kept[-20:], loop.go_back(loop.model(loop.draw_batch())).detach()]

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


def clipping(loop):
    def turn(step):
        loop.model(loop.draw_batch()).square().mean().backward()
        nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
        loop.optimizer.step()
        loop.optimizer.zero_grad()

    return turn


def with_gradient_penalty(loop):
    def turn(step):
        x = loop.draw_batch().requires_grad_()
        (slope,) = torch.autograd.grad(loop.model(x).sum(), x, create_graph=True)
        loop.go_back(loop.model(x) + slope.square().mean())

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


def saving_to_the_host(loop):
    def turn(step):
        loop.go_back(loop.model(loop.draw_batch()))
        if step % 70 == 10:
            loop.kept = [value.cpu() for value in loop.model.state_dict().values()]

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


HEALTHY = [
    plain, varying_lengths, accumulating, evaluating, logging, with_a_bounded_history, with_a_moving_copy, clipping,
    with_gradient_penalty, under_a_closure, saving_to_the_host, with_a_schedule_and_a_callback_from_step_50,
]  # fmt: skip


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("healthy", HEALTHY, ids=lambda each: each.__name__)
def test_a_healthy_run_is_silent_and_bit_identical(healthy, steps):
    numbers = []
    for watcher in (devwidget.watch, unwatched):
        with devwidget.simulate(1, memory="1GiB"):
            loop = Loop(watcher, steps)
            run = loop.run(healthy(loop))
            parameters = (parameter.detach().cpu() for parameter in loop.model.parameters())
            numbers.append([*loop.losses, *parameters, torch.get_rng_state()])
            if run is not None:
                assert run.findings == ()
                assert run.result.not_checked == ()
                assert run.steps.total == steps
                assert 10 in run.recorded
    assert all(map(torch.equal, *numbers))
