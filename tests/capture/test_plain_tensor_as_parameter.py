"""A plain tensor that is assigned where a module has a parameter."""

import pytest
import torch
from torch import nn

import devwidget
from tests.capture.test_explained import explained


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def test_a_computed_tensor_is_wrapped():
    layer, vectors = nn.Embedding(3, 2).cuda(), torch.ones(3, 2)

    def program():
        layer.weight = vectors.cuda()

    found = explained(program)
    assert (found.kind, found.headline) == (
        "unregistered-tensor",
        "`weight` of `Embedding` is a parameter and got a plain tensor",
    )
    assert found.fixes[0].code == "layer.weight = nn.Parameter(vectors.cuda())"
    assert "module.weight.data.copy_(tensor)" in found.notes[0]


def test_a_tensor_goes_to_the_device_of_the_parameter():
    layer, bias = nn.Linear(3, 2).cuda(), torch.ones(2)

    def program():
        layer.bias = bias

    assert explained(program).fixes[0].code == "layer.bias = nn.Parameter(bias.to(layer.bias.device))"


def test_a_parameter_without_a_value_has_no_device():
    layer, bias = nn.Linear(3, 2, bias=False).cuda(), torch.ones(2)

    def program():
        layer.bias = bias

    assert explained(program).fixes[0].code == "layer.bias = nn.Parameter(bias)"
