"""A loader that slows: the part of the step that takes the time, on the CPU."""

import time

import torch
from torch import nn

import devwidget
from tests.watching.loops import told


def test_a_loader_that_slows_is_told_as_what_takes_the_time():
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def batches():
        for step in range(240):
            if step >= 120:
                time.sleep(0.02)
            yield torch.randn(8, 16)

    with devwidget.watch(model, optimizer) as run:
        for batch in batches():
            model(batch).sum().backward()
            optimizer.step()
    slow = told(run, "slow-steps")
    assert slow.notes[0].startswith("what lies between the steps, the loader for one, takes")
