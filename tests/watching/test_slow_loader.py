"""A loader that slows: the part of the step that takes the time, on the CPU."""

import torch
from torch import nn

import devwidget
from devwidget.watching import slow_steps, step_hooks
from tests.watching.loops import Clock, told


def test_a_loader_that_slows_is_told_as_what_takes_the_time(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(step_hooks.time, "perf_counter_ns", lambda: clock.now)
    monkeypatch.setattr(slow_steps.WaitingClock, "take_microseconds", lambda _: 0)
    model = nn.Linear(16, 4)
    model.register_forward_hook(lambda *_: clock.pass_time(2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def batches():
        for step in range(240):
            clock.pass_time(20 if step >= 120 else 1)
            yield torch.randn(8, 16)

    with devwidget.watch(model, optimizer, every=10**9) as run:
        for batch in batches():
            model(batch).sum().backward()
            optimizer.step()
    slow = told(run, "slow-steps")
    assert slow.headline == "a step has taken 22 ms since step 129, before 3 ms"
    assert slow.notes == ("what lies between the steps, the loader for one, takes 20 ms of it, before 1 ms",)
    assert any(step.reason == "steps have become slow" for step in run.result.recorded_steps)
