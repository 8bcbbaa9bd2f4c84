"""`torch.nn.parallel.data_parallel` is told as `nn.DataParallel` is, and does what it does without us."""

import dataclasses

import pytest
import torch
from torch import nn

import devwidget


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to("cuda:0")


def trace_of(call):
    with devwidget.simulate(gpus=2), devwidget.record() as recording:
        model, x = make_model(), torch.rand(8, 4).to("cuda:0")
        out = call(model, x)
        out.sum().backward()
        gradient = model[0].weight.grad.clone()
    return recording.trace, gradient


def test_its_moves_and_replicas_are_those_of_the_wrapper():
    told, gradient = trace_of(lambda model, x: nn.parallel.data_parallel(model, x, range(2)))
    wanted, wanted_gradient = trace_of(lambda model, x: nn.DataParallel(model, range(2))(x))
    assert [(move.cause, move.source, move.target, move.bytes) for move in told.moves if move.cause != "explicit"] == [
        (move.cause, move.source, move.target, move.bytes) for move in wanted.moves if move.cause != "explicit"
    ]
    untimed = {"started": 0.0, "seconds": 0.0, "thread": "", "call": 0, "wrapper": "", "peak_bytes": 0}
    assert [dataclasses.replace(each, **untimed) for each in told.replicas] == [
        dataclasses.replace(each, **untimed) for each in wanted.replicas
    ]
    assert len(told.parallel) == 1
    assert {"0", "1", "2"} <= {event.path for event in told.modules}
    assert torch.equal(gradient, wanted_gradient)


def test_a_call_on_one_device_is_a_plain_call():
    told, _ = trace_of(lambda model, x: nn.parallel.data_parallel(model, x, [0]))
    assert told.parallel == ()


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("no forward")


def test_a_call_that_fails_ends_and_the_next_one_is_told():
    with devwidget.simulate(gpus=2), devwidget.record() as recording:
        x = torch.rand(8, 4, device="cuda:0")
        with pytest.raises(ValueError, match="no forward"):
            nn.parallel.data_parallel(Fails(), x, [0, 1])
        nn.parallel.data_parallel(make_model(), x, [0, 1])
    assert len(recording.trace.parallel) == 2
    assert recording.trace.moves[-1].module == "Sequential"
