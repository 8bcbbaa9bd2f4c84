import copy
import random

import numpy
import pytest
import torch
from torch import nn

from devwidget.capture.restore import keep_state


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
        self.calls = 0
        self.seen = []
        self.state = torch.zeros(2, 4)
        self.register_buffer("wide", torch.zeros(1, 4).expand(8, 4))

    def forward(self, x):
        self.calls += 1
        self.seen.append(self.calls)
        self.last = x
        self.state.add_(1)
        self.state = self.state * 2
        return self.body(x) + self.wide[:2]


def facts(model, optimizer):
    return (
        copy.deepcopy(model.state_dict()),
        [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        copy.deepcopy(optimizer.state_dict()),
        (model.calls, list(model.seen), model.state.clone(), model.training, sorted(model.__dict__)),
        (torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1]),
    )


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    numpy.random.rand()
    random.random()
    model.eval()


def same(left, right):
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, numpy.ndarray):
        return (left == right).all()
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.mark.parametrize("warm", [False, True], ids=["fresh optimizer", "optimizer with state"])
@pytest.mark.parametrize("fails", [None, ValueError, KeyboardInterrupt])
def test_a_step_leaves_everything_as_it_was(warm, fails):
    model = Counting()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    if warm:
        step(model, optimizer)
        model.train()
    before, weight, state = facts(model, optimizer), model.body[0].weight, model.state
    try:
        with keep_state(model, optimizer):
            step(model, optimizer)
            assert not same(before, facts(model, optimizer))
            if fails:
                raise fails
    except (ValueError, KeyboardInterrupt):
        assert fails
    assert same(before, facts(model, optimizer))
    assert model.body[0].weight is weight
    assert model.state is state
