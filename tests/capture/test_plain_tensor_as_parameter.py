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


def test_a_plain_tensor_is_to_be_wrapped():
    layer, vectors = nn.Embedding(3, 2).cuda(), torch.ones(3, 2)

    def program():
        layer.weight = vectors.cuda()

    found = explained(program)
    assert (found.kind, found.headline) == (
        "unregistered-tensor",
        "`weight` of `Embedding` is a parameter and got a plain tensor",
    )
    assert found.fixes[0].code == "module.weight = nn.Parameter(tensor)"
    assert "module.weight.data.copy_(tensor)" in found.notes[0]
