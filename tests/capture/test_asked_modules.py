"""What an optimizer lacks is wrong if it would have it, built in the same way again; parts are left untrained on purpose."""

import pytest
import torch
from torch import nn

import devwidget


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def found_in(program, *, heal=False):
    with devwidget.record(heal=heal) as recording:
        program()
    return [found for found in recording.trace.findings if found.kind == "optimizer-misplaced"]


def train(optimizer, model, x=None):
    model(torch.rand(3, 4, device="cuda") if x is None else x).sum().backward()
    optimizer.step()


def test_a_picture_is_trained_and_the_network_is_not():
    def program():
        picture = torch.rand(1, 3, 8, 8, device="cuda").requires_grad_(True)
        optimizer = torch.optim.Adam([picture])
        features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).to("cuda").eval()
        train(optimizer, features, picture)

    assert found_in(program) == []


@pytest.mark.parametrize("listed", [False, True])
def test_a_head_is_trained_and_the_backbone_freed_later_is_not(listed):
    def program():
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to("cuda")
        model[0].requires_grad_(False)
        head = model[1]
        given = list(head.parameters()) if listed else head.parameters()
        optimizer = torch.optim.SGD(given, lr=0.1)
        model[0].requires_grad_(True)
        train(optimizer, model)

    assert found_in(program) == []


@pytest.mark.parametrize("listed", [False, True])
def test_a_layer_that_the_same_line_would_give_is_missing(listed):
    def program():
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to("cuda")
        given = [each for each in model.parameters() if each.requires_grad]
        optimizer = torch.optim.SGD(given if listed else model.parameters(), lr=0.1)
        model[1] = nn.Linear(8, 3).to("cuda")
        train(optimizer, model)

    (found,) = found_in(program)
    assert "`1.weight, 1.bias`" in found.headline
