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


def test_a_probe_is_trained_and_the_backbone_is_not():
    def program():
        head = nn.Linear(8, 2).to("cuda")
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        train(optimizer, nn.Sequential(nn.Linear(4, 8).to("cuda"), head))

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


def optimizer_of(parameters):
    return torch.optim.SGD([*parameters], lr=0.1)


def test_where_nobody_knows_what_was_asked_all_else_of_a_model_is_trained():
    def program():
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to("cuda")
        optimizer = optimizer_of(model.parameters())
        model[1] = nn.Linear(8, 3).to("cuda")
        train(optimizer, model)

    assert len(found_in(program)) == 1


def test_a_headline_names_a_few_of_many():
    def program():
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)]).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(14):
            model.append(nn.Linear(4, 4).to("cuda"))
        train(optimizer, model)

    (found,) = found_in(program)
    assert "`3.weight` and 27 more" in found.headline


def test_a_loss_that_only_looks_is_not_trained():
    def program():
        model, judge = nn.Linear(4, 4).to("cuda"), nn.Linear(4, 1).to("cuda").eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        judge(model(torch.rand(3, 4, device="cuda"))).sum().backward()
        optimizer.step()

    assert found_in(program) == []


def test_the_model_moved_after_the_first_step_and_the_state_did_not():
    def program():
        model = nn.Linear(4, 2)
        optimizer = torch.optim.Adam(model.parameters())
        train(optimizer, model, torch.rand(2, 4))
        model.to("cuda")
        model.zero_grad()
        train(optimizer, model)

    (found, *_) = found_in(program, heal=True)
    assert found.why.startswith("the state was allocated beside the parameters, which moved afterwards")
    assert found.birth.text == 'model.to("cuda")'
