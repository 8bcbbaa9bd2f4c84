"""An open panel reads a model again only where something has changed."""

import torch
from torch import nn

import devwidget
from devwidget.live_model import Rereader


def watched(model, **more):
    """A reader that has looked three times: the second look is the first that expects a third."""
    again = Rereader(lambda: 0)
    return again, [again.snapshot(model, **more) for _ in range(3)]


def test_nothing_is_read_again_while_nothing_changes():
    _, (_, second, third) = watched(nn.Linear(2, 2))
    assert third.modules is second.modules


def test_every_look_says_what_a_snapshot_says():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.Adam(model.parameters())
    again, _ = watched(model, optimizer=optimizer)
    for change in (
        lambda: model[1].half(),
        lambda: model[0](torch.ones(1, 2)).sum().backward(),
        optimizer.step,
        lambda: model.append(nn.ReLU()),
        lambda: None,
    ):
        change()
        assert again.snapshot(model, optimizer=optimizer) == devwidget.snapshot(model, optimizer=optimizer)


def test_memory_is_read_each_time():
    with devwidget.simulate(gpus=1):
        model = nn.Linear(2, 2).to("cuda:0")
        again = Rereader(lambda: 1)
        looks = [again.snapshot(model) for _ in range(3)]
        kept = torch.ones(1024, device="cuda:0")
        later = again.snapshot(model)
        assert later.modules is looks[1].modules
        assert later == devwidget.snapshot(model)
        assert later.memory[0].activations - looks[2].memory[0].activations == kept.nbytes


def test_a_model_that_needs_full_readings_gets_them():
    model = nn.ParameterList([torch.eye(2).to_sparse()])
    again, _ = watched(model)
    model.append(torch.ones(2))
    assert again.snapshot(model) == devwidget.snapshot(model)
