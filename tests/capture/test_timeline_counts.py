"""Boxes, bands and hops of the timeline, compared with a count by plain hooks and a plain mode of torch."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import devwidget
from devwidget.views.timeline import make_timeline

MOVES = {"to", "cuda", "cpu"}


class Block(nn.Module):
    def __init__(self, width: int = 8, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, width)
        self.inner = inner or nn.Identity()

    def forward(self, x):
        return x + self.inner(self.up(self.norm(x)))


class Split(nn.Module):
    """Back and forth between two GPUs, so often."""

    def __init__(self, hops: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Block().to(f"cuda:{n % 2}") for n in range(hops + 1))

    def forward(self, x):
        for number, part in enumerate(self.parts):
            x = part(x.to(f"cuda:{number % 2}"))
        return x


class Shared(nn.Module):
    """One block, called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(self.block(self.block(x)))


class Hooked(nn.Module):
    """A hook of the user's brings the input over, as accelerate's do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block().to("cuda:0"), Block().to("cuda:1")
        self.second.register_forward_pre_hook(lambda module, args: (args[0].to("cuda:1"),))

    def forward(self, x):
        return self.second(self.first(x))


def on_gpu(model: nn.Module) -> nn.Module:
    return model.to("cuda:0")


MODELS = {
    "nested": lambda: on_gpu(Block(inner=Block(inner=Block()))),
    "shared block": lambda: on_gpu(Shared()),
    "split often": lambda: Split(7),
    "hooked": Hooked,
    "transformer": lambda: on_gpu(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)),
    "data parallel": lambda: nn.DataParallel(on_gpu(Block())),
    "data parallel inside": lambda: nn.Sequential(on_gpu(Block()), nn.DataParallel(on_gpu(Block(inner=Block())))),
}


class Crossings(TorchFunctionMode):
    """Counts what user code moves."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in MOVES and out.device != args[0].device:
            self.count += 1
        return out


def counted(model: nn.Module, batch: torch.Tensor) -> tuple[Counter[str], int]:
    """Calls of each module, replicas counted with their original, and crossings that were asked for, in a plain forward."""
    calls: Counter[str] = Counter()
    handles = [
        module.register_forward_hook(lambda *_, name=name: calls.update([name])) for name, module in model.named_modules()
    ]
    with Crossings() as crossings:
        model(batch)
    for handle in handles:
        handle.remove()
    return calls, crossings.count


@pytest.mark.parametrize("name", MODELS)
def test_the_timeline_has_the_boxes_bands_and_hops_that_were_counted(name):
    with devwidget.simulate(gpus=2):
        torch.manual_seed(0)
        model, batch = MODELS[name](), torch.randn(4, 6, 8, device="cuda:0")
        calls, crossings = counted(model, batch)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trace = devwidget.trace(model, batch, loss_fn=lambda out: out.square().mean(), optimizer=optimizer)
    lanes = make_timeline(trace)
    forward_boxes = [box for box in lanes.boxes if not box.is_gradient]
    drawn: Counter[str] = Counter()
    for path, _, count in {(box.path, box.replica, box.calls) for box in forward_boxes}:  # a part of it on each device
        drawn[path] += count
    assert drawn == calls
    explicit = sum(
        arrow.move.count for arrow in lanes.arrows if arrow.move.cause == "explicit" and arrow.move.phase == "forward"
    )
    assert explicit == crossings
    assert [band.phase for band in lanes.bands] == ["forward", "loss", "backward", "optimizer"]
    forward = lanes.bands[0]
    boxes = {(box.path, box.replica, box.lane): box for box in forward_boxes}
    for (path, replica, lane), box in boxes.items():
        assert box.start < box.stop <= forward.stop, "no module runs into the loss"
        outer = boxes.get((path.rpartition(".")[0], replica, lane)) if path else None
        if outer is not None and outer.calls == box.calls == 1:
            assert outer.start <= box.start
            assert box.stop <= outer.stop
