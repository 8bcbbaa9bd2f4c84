"""Where operators of a recording run: virtual GPUs tell what they have found, which is what the tensors themselves say."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.trace import OpEvent
from devwidget.simulator.operators import dispatch_mode, propagate


def record_mixture() -> list[tuple[object, ...]]:
    """Views, moves, sums, scalars of the CPU, lists, results of several tensors, a keyword, and backward."""
    torch.manual_seed(0)
    with devwidget.simulate(2), devwidget.record() as recording:
        model = nn.GRU(4, 4).to("cuda:0")
        optimizer = torch.optim.Adam(model.parameters())
        x = torch.zeros(3, 1, 4).to("cuda:0")
        x[1][0][2] = 1
        far = model(x)[0].to("cuda:1")
        loss = (far.max(dim=0).values + torch.tensor(2.0)).sum() + torch.cat([far, far]).mean()
        loss.backward()
        torch.add(x, x, alpha=2)
        torch.split(x, 1)
        optimizer.step()
    return [describe_operator(op) for op in recording.trace.ops]


def describe_operator(op: OpEvent) -> tuple[object, ...]:
    return op.name, op.phase, op.inputs, op.output, op.count


def test_devices_that_are_told_are_those_that_tensors_say(monkeypatch: pytest.MonkeyPatch) -> None:
    told = record_mixture()
    deaf = types.SimpleNamespace(place=types.SimpleNamespace(asked=None))
    monkeypatch.setattr(propagate, "key_threads", deaf)
    monkeypatch.setattr(dispatch_mode, "key_threads", deaf)

    assert record_mixture() == told
    assert {str(device) for _, _, inputs, _, _ in told for device in inputs} == {"cpu", "cuda:0", "cuda:1"}
