import pytest
import torch
from torch import nn

import devwidget
from tests.described import described, differences


class Asking(torch.optim.Optimizer):
    """Asks for the loss twice, by a closure that it cannot do without."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})
        self.losses = []

    def step(self, closure):
        for _ in range(2):
            with torch.enable_grad():
                loss = closure()
            self.losses.append(loss.item())
            for parameter in self.param_groups[0]["params"]:
                parameter.data.sub_(parameter.grad, alpha=0.1)


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, Asking])
def test_an_optimizer_that_needs_a_closure_gets_one(kind):
    model = nn.Linear(4, 4)
    optimizer = kind(model.parameters())
    before = described(model, optimizer)
    traced = devwidget.trace(model, torch.rand(2, 4), loss_fn=nn.MSELoss(), target=torch.rand(2, 4), optimizer=optimizer)
    assert traced.error == ""
    assert {"forward", "loss", "backward", "optimizer"} <= {op.phase for op in traced.ops}
    assert differences(before, described(model, optimizer)) == []


def test_the_closure_runs_the_step_as_it_was_asked_for():
    model, batch, target = nn.Linear(4, 4), torch.rand(2, 4), torch.rand(2, 4)
    optimizer = Asking(model.parameters())
    devwidget.trace(model, batch, loss_fn=nn.MSELoss(), target=target, optimizer=optimizer, restore=False)
    assert optimizer.losses[1] < optimizer.losses[0]
