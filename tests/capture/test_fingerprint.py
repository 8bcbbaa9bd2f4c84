"""A fingerprint misses no change that a snapshot tells, and holds nothing."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.capture.snapshot_changes import Fingerprint, NotWatchable
from devwidget.gpus import simulate


class Helper:
    def __init__(self) -> None:
        self.table = torch.zeros(2)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("absent", None)
        self.again = self.first
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3))
        self.mask, self.kept, self.helper, self.width = torch.zeros(3), {"key": [torch.zeros(2)]}, Helper(), 4
        self.empty: list[torch.Tensor] = []


class Wider(nn.Linear):
    pass


def rename(values: dict[str, object], before: str, after: str) -> None:
    values[after] = values.pop(before)


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()


CHANGES: dict[str, Callable[[Net], object]] = {
    "data of another dtype": lambda net: setattr(net.scale, "data", net.scale.data.double()),
    "parameter on another device": lambda net: setattr(net.first, "weight", nn.Parameter(net.first.weight.to("meta"))),
    "data of another shape": lambda net: setattr(net.scale, "data", net.scale.data.view(2, 2)),
    "data in a longer storage": lambda net: setattr(net.scale, "data", torch.empty(8)[:4]),
    "data in the storage of another": lambda net: setattr(net.second.weight, "data", net.first.weight.data),
    "a longer storage": lambda net: storage_of(net.scale).resize_(64),
    "shape in place": lambda net: net.scale.unsqueeze_(0),
    "moved below": lambda net: net.blocks[1].to("meta"),
    "frozen": lambda net: net.second.weight.requires_grad_(False),
    "a gradient": lambda net: setattr(net.second.weight, "grad", torch.ones(4, 4)),
    "eval mode below": lambda net: net.blocks[0].eval(),
    "new parameter": lambda net: net.first.register_parameter("extra", nn.Parameter(torch.ones(1))),
    "parameter gone": lambda net: net.first.register_parameter("bias", None),
    "another role": lambda net: net._parameters.update(scale=nn.Parameter(net._buffers.pop("scale"))),
    "child renamed": lambda net: rename(net._modules, "second", "third"),
    "child replaced": lambda net: setattr(net, "second", Wider(4, 4)),
    "class changed": lambda net: setattr(net.second, "__class__", Wider),
    "child added": lambda net: net.blocks.append(nn.ReLU()),
    "shared child": lambda net: setattr(net, "second", net.first),
    "tied": lambda net: setattr(net.second, "weight", net.first.weight),
    "plain attribute moved": lambda net: setattr(net, "mask", net.mask.to("meta")),
    "plain attribute added": lambda net: setattr(net.blocks[2], "table", torch.ones(1)),
    "plain attribute gone": lambda net: delattr(net, "mask"),
    "inside a container": lambda net: net.kept["key"].append(torch.ones(1)),
    "an empty list is filled": lambda net: net.empty.append(torch.ones(1)),
    "inside a helper": lambda net: setattr(net.helper, "table", torch.ones(3)),
    "attribute computed with autograd": lambda net: setattr(net, "mask", torch.zeros(3, requires_grad=True) * 2),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_a_snapshot_tells_is_not_missed(change: Callable[[Net], object]) -> None:
    net = Net()
    before, fingerprint = take_snapshot(net).modules, Fingerprint(net, None)
    assert fingerprint.still_fits(net, None)
    change(net)
    assert take_snapshot(net).modules != before
    assert not fingerprint.still_fits(net, None)


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_are_not_missed(seed: int) -> None:
    pick, net = random.Random(seed), Net()
    for change in pick.sample(list(CHANGES.values()), 12):
        before, fingerprint = take_snapshot(net).modules, Fingerprint(net, None)
        try:
            change(net)
        except (AttributeError, KeyError, RuntimeError, ValueError):
            continue  # what it would change is gone already
        assert fingerprint.still_fits(net, None) <= (take_snapshot(net).modules == before)


def test_values_may_change() -> None:
    net = Net()
    fingerprint = Fingerprint(net, None)
    with torch.no_grad():
        net.first.weight.mul_(2)
    net.width, net.scale = 5, net.scale
    net.first.register_forward_hook(lambda *_: None)
    assert fingerprint.still_fits(net, None)


def test_optimizer_state_is_seen() -> None:
    net = Net()
    optimizer = torch.optim.Adam(net.second.parameters())
    fingerprint = Fingerprint(net, optimizer)
    assert fingerprint.still_fits(net, optimizer)
    assert fingerprint.still_fits(net, None)  # nothing there yet
    net.second(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert not fingerprint.still_fits(net, optimizer)
    later = Fingerprint(net, optimizer)
    assert later.still_fits(net, optimizer)
    optimizer.state[net.second.weight]["exp_avg"] = torch.zeros(4, 4, device="meta")
    assert not later.still_fits(net, optimizer)


def test_a_parameter_that_the_optimizer_lost_is_seen() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.second.parameters(), momentum=0.9)
    optimizer.state[net.second.weight]["momentum_buffer"] = torch.zeros(4, 4)
    fingerprint = Fingerprint(net, optimizer)
    net.second.weight = nn.Parameter(torch.zeros(4, 4))
    assert not fingerprint.still_fits(net, optimizer)


def test_a_class_attribute_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    fingerprint = Fingerprint(net, None)
    monkeypatch.setattr(Net, "mean", torch.zeros(3), raising=False)
    assert not fingerprint.still_fits(net, None)
    with pytest.raises(NotWatchable):
        Fingerprint(net, None)


def test_a_move_between_virtual_gpus_is_seen() -> None:
    with simulate(gpus=2):
        net = Net().to("cuda:0")
        fingerprint = Fingerprint(net, None)
        assert fingerprint.still_fits(net, None)
        net.second.weight.data = net.second.weight.data.to("cuda:1")
        assert not fingerprint.still_fits(net, None)


def test_of_a_shared_helper_it_counts_where_a_snapshot_meets_it_first() -> None:
    net = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    net[0][0].helper = net[1].helper = Helper()
    before, fingerprint = take_snapshot(net).modules, Fingerprint(net, None)
    net[0][0].helper = Helper()
    del net[0][0].helper.table
    assert take_snapshot(net).modules != before
    assert not fingerprint.still_fits(net, None)


def test_a_tree_of_many_stretches_and_a_module_that_holds_itself() -> None:
    net = nn.Sequential(*(nn.Linear(1, 1) for _ in range(700)))
    net[650].register_module("back", net)
    fingerprint = Fingerprint(net, None)
    assert fingerprint.still_fits(net, None)
    net[699].bias.requires_grad_(False)
    assert not fingerprint.still_fits(net, None)
    del net[650]._modules["back"]


def test_nothing_is_held() -> None:
    net = Net()
    gone = [weakref.ref(each) for each in (net, net.first.weight, net.mask, net.helper)]
    fingerprint = Fingerprint(net, None)
    assert fingerprint.still_fits(net, None)
    del net
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4
