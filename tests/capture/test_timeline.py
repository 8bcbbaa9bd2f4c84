"""Boxes, bands and hops of the timeline, against an independent count of module calls and phases."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

import devwidget
from devwidget.views.timeline import timeline


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 2).to("cuda:1")

    def forward(self, x):
        return self.second(self.first(x).to("cuda:1"))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(self.inner(x)).relu()[:, :2]


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.near, self.far = nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 2).to("cuda:1")
        self.far.register_forward_pre_hook(lambda module, args: (args[0].to("cuda:1"),))

    def forward(self, x):
        return self.far(self.near(x))


def sequence(*parts):
    return nn.Sequential(*parts).to("cuda:0")


MODELS = {
    "linear": lambda: nn.Linear(4, 2).to("cuda:0"),
    "sequence": lambda: sequence(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
    "nested": lambda: sequence(sequence(nn.Linear(4, 4), nn.Tanh()), sequence(nn.Linear(4, 2))),
    "normed": lambda: sequence(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)),
    "twice": lambda: Twice().to("cuda:0"),
    "split": Split,
    "hooked": Hooked,
    "parallel": lambda: nn.DataParallel(sequence(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), [0, 1]),
    "parallel of three": lambda: nn.DataParallel(nn.Linear(4, 2).to("cuda:0"), [0, 1, 2]),
    "attention": lambda: sequence(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Linear(4, 2)),
}


def calls_counted(model, x):
    """How often each module is called, by torch's own hooks; replicas count for their originals."""
    names = {module: path for path, module in model.named_modules()}
    calls = {}

    def count(module, args):
        if module in names:
            calls[names[module]] = calls.get(names[module], 0) + 1

    handle = register_module_forward_pre_hook(count)
    try:
        model(x)
    finally:
        handle.remove()
    return calls


@pytest.mark.parametrize("name", MODELS)
def test_boxes_bands_and_hops_are_those_of_an_independent_count(name):
    with devwidget.simulate(gpus=3):
        torch.manual_seed(0)
        model, x = MODELS[name](), torch.rand(6, 4, device="cuda:0")
        counted = calls_counted(model, x)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trace = devwidget.trace(model, x, loss_fn=lambda out: out.square().mean(), optimizer=optimizer)
    assert trace.error == ""
    lanes = timeline(trace)
    own = {box.path: box for box in lanes.boxes if box.replica < 0}
    assert {path: box.calls for path, box in own.items()} == {path: calls for path, calls in counted.items() if path in own}
    assert all(path in own or any(box.path == path for box in lanes.boxes) for path in counted)
    bands = {band.phase: band for band in lanes.bands}
    assert [band.phase for band in lanes.bands] == ["forward", "loss", "backward", "optimizer"]
    for box in lanes.boxes:
        assert bands["forward"].start - 1 <= box.start <= box.stop <= bands["loss"].start
        outer = own.get(box.path.rpartition(".")[0]) if box.path else None
        if outer is not None and outer is not box:
            assert outer.start < box.start <= box.stop < outer.stop
    crossed = sum(move.count for move in trace.moves if move.source != move.target)
    assert sum(arrow.count for arrow in lanes.arrows) == crossed


def test_a_fault_of_the_loss_stands_in_the_loss():
    with devwidget.simulate(gpus=1):
        model, x, y = nn.Linear(4, 2).to("cuda:0"), torch.rand(6, 4, device="cuda:0"), torch.rand(6, 2)
        trace = devwidget.trace(model, x, loss_fn=nn.functional.mse_loss, target=y)
    lanes = timeline(trace)
    (cross,) = lanes.crosses
    loss = next(band for band in lanes.bands if band.phase == "loss")
    assert loss.start <= cross.at < loss.stop
    assert cross.headline == trace.findings[0].headline


def test_a_call_that_raises_ends_too():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    with devwidget.simulate(gpus=1):
        model = sequence(nn.Linear(4, 4), Fails())
        trace = devwidget.trace(model, torch.rand(2, 4, device="cuda:0"))
    ended = {event.path: event.stopped for event in trace.modules}
    assert ended["0"] < ended["1"] < ended[""]
    assert all(event.failed for event in trace.modules if event.path != "0")
