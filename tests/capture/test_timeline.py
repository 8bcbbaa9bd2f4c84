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
