"""The state that torch's optimizers keep on the CPU by design is no finding."""

import pytest
import torch
from torch import nn

import devwidget

ON_PARAMETERS = """Adadelta Adafactor Adagrad Adam AdamW Adamax ASGD NAdam RAdam RMSprop Rprop SGD""".split()


@pytest.mark.parametrize("name", ON_PARAMETERS)
def test_an_optimizer_that_steps_where_its_parameters_are_is_no_finding(name):
    with devwidget.simulate(1):
        model, batch = nn.Linear(4, 2).cuda(), torch.randn(3, 4, device="cuda")
        optimizer = getattr(torch.optim, name)(model.parameters())
        with devwidget.record() as recording:
            for _ in range(2):
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
        assert not [each for each in recording.trace.findings if each.severity != "info"]
        traced = devwidget.trace(model, batch, loss_fn=torch.sum, optimizer=optimizer)
        assert not [each for each in traced.findings if each.severity != "info"]
