"""Ends on the timeline: of a step whose loss fails, of a call that raises."""

from __future__ import annotations

import torch
from torch import nn

import devwidget
from devwidget.views.timeline import make_timeline


def test_a_fault_of_the_loss_stands_in_the_loss():
    with devwidget.simulate(gpus=1):
        model, x, y = nn.Linear(4, 2).to("cuda:0"), torch.rand(6, 4, device="cuda:0"), torch.rand(6, 2)
        trace = devwidget.trace(model, x, loss_fn=nn.functional.mse_loss, target=y)
    lanes = make_timeline(trace)
    (cross,) = lanes.crosses
    loss = next(band for band in lanes.bands if band.phase == "loss")
    assert loss.start <= cross.at < loss.stop
    assert cross.headline == trace.findings[0].headline


def test_a_call_that_raises_ends_too():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    with devwidget.simulate(gpus=1):
        model = nn.Sequential(nn.Linear(4, 4), Fails()).to("cuda:0")
        trace = devwidget.trace(model, torch.rand(2, 4, device="cuda:0"))
    ended = {event.path: event.stopped for event in trace.modules}
    assert ended["0"] < ended["1"] < ended[""]
    assert all(event.failed for event in trace.modules if event.path != "0")


class Around(nn.Module):
    """Two halves that are replicated one after the other, and layers before, between and behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.between, self.last = nn.Linear(8, 16), nn.Linear(32, 16), nn.Linear(8, 4)
        self.down = nn.DataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32)), [0, 1])
        self.up = nn.DataParallel(nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 8)), [0, 1])

    def forward(self, x):
        return self.last(self.up(self.between(self.down(self.first(x)))))


def test_backward_shows_whose_gradients_each_replica_computed_and_nothing_of_a_replica_elsewhere():
    with devwidget.simulate(gpus=2):
        model = Around().to("cuda:0")
        trace = devwidget.trace(model, torch.rand(16, 8, device="cuda:0"), loss_fn=lambda out: out.square().mean())
    gradients = [box for box in make_timeline(trace).boxes if box.is_gradient]
    leaves = [box.path for box in gradients if not any(other.path.startswith(f"{box.path}.") for other in gradients)]
    on = {path: sorted(str(box.lane) for box in gradients if box.path == path) for path in leaves}
    replicated = [f"{half}.module.{place}" for half in ("up", "down") for place in (2, 1, 0)]
    assert list(dict.fromkeys(leaves)) == ["last", *replicated[:3], "between", *replicated[3:], "first"]
    assert all(on[path] == ["cuda:0", "cuda:1"] for path in replicated)
    assert all(on[path] == ["cuda:0"] for path in ("first", "between", "last"))
