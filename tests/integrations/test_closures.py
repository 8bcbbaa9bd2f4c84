"""A step inside of `optimizer.step(closure)`, as Lightning takes it: what the closure runs is not the optimizer."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

import devwidget.integrations
from devwidget.watching import step_hooks
from tests.integrations.trainers import Points, virtual_cards
from tests.watching.loops import Clock, line_of, told
from tests.watching.test_step_hooks import Slowly, parts_of

pytestmark = pytest.mark.filterwarnings("ignore")


class Thinking(torch.optim.SGD):
    """Takes time beside the closure, and runs it as often as it was told."""

    def __init__(self, parameters, clock, times=1):
        parameters = list(parameters)
        torch.optim.SGD(parameters, 0.01)  # whose step torch wraps from then on
        super().__init__(parameters, 0.01)
        self.clock, self.times = clock, times

    def step(self, closure=None):
        for _ in range(self.times):
            loss = closure()
            self.clock.pass_time(2)
        super().step()
        return loss


def fit(clock, folder, *, reads=False, accumulate=1, steps=12, **options):
    lightning = pytest.importorskip("lightning.pytorch")

    class SlowPoints(Points):
        def __getitem__(self, index):
            clock.pass_time(11)
            return super().__getitem__(index)

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 4)

        def forward(self, x):
            if reads and x.sum().item() > 1e9:
                x = -x
            return Slowly.apply(self.linear(x), clock)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body = Body()

        def training_step(self, batch, index):
            out = self.body(batch["x"])
            clock.pass_time(5)
            return out.square().mean()

        def configure_optimizers(self):
            return Thinking(self.parameters(), clock)

    callback = devwidget.integrations.LightningCallback(**options)
    trainer = lightning.Trainer(
        max_steps=steps, callbacks=[callback], default_root_dir=folder, logger=False, enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, accelerator="gpu", devices=1,
        accumulate_grad_batches=accumulate,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(SlowPoints(), 1))
    return callback.run


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(step_hooks.time, "perf_counter_ns", lambda: clock.now)
    return clock


@pytest.mark.parametrize("accumulate", [1, 3])
def test_what_a_closure_runs_is_no_time_of_the_optimizer(clock, tmp_path, accumulate):
    with virtual_cards(1):
        run = fit(clock, tmp_path, accumulate=accumulate)
    each = {"data": 11 * accumulate, "forward": 5 * accumulate, "backward": 7 * accumulate, "optimizer": 2}
    assert [parts_of(run.steps, at) for at in range(2, 9)] == [each] * 7


def test_what_a_closure_runs_is_no_phase_of_the_optimizer(clock, tmp_path):
    with virtual_cards(1):
        run = fit(clock, tmp_path, reads=True)
    phases = Counter()
    for op in run.recorded[10].ops:
        if not op.name.startswith("profiler::"):
            phases[op.name, op.phase] += op.count
    assert phases["addmm", "forward"] == 1
    assert phases["mean", "loss"] == phases["square", "loss"] + phases["pow", "loss"] == 1
    assert {phase for (name, phase) in phases if name == "mm"} == {"backward"}
    assert [phase for (name, phase) in phases if name.startswith("_foreach_add")] == ["optimizer"]
    wait = told(run, "host-sync")
    assert line_of(wait) == "if reads and x.sum().item() > 1e9:"


def test_an_optimizer_that_evaluates_twice_thinks_in_between(clock):
    model = nn.Linear(2, 2)
    optimizer = Thinking(model.parameters(), clock, times=2)

    def closure():
        clock.pass_time(1)
        loss = Slowly.apply(model(torch.ones(1, 2)), clock).sum()
        clock.pass_time(5)
        loss.backward()
        return loss

    with devwidget.watch(model, optimizer) as run:
        for _ in range(3):
            clock.pass_time(11)
            optimizer.step(closure)
    assert parts_of(run.steps, 1) == {"data": 12, "loss": 10 + 14, "optimizer": 5}
