"""Values followed back through lines that still run: comprehensions, and what was moved to where another tensor is."""

import pytest
import torch
from torch import nn

import devwidget
from tests.capture.test_diagnosis import line_of


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def explained(model, *batch):
    with pytest.raises(RuntimeError) as caught:
        model(*batch)
    return devwidget.explain(caught.value).findings


def on_gpu(*shape):
    return torch.ones(*shape, device="cuda:0")


class Unpacked(nn.Module):
    def parts(self, x):
        return x, torch.zeros(x.shape[-1])

    def forward(self, x):
        kept, beside = (each * 2 for each in self.parts(x))
        return kept + beside


def test_what_a_comprehension_unpacks_is_the_same_item_of_what_it_runs_over():
    (found,) = explained(Unpacked(), on_gpu(2, 3))
    assert found.birth.line == line_of(Unpacked, "torch.zeros")


class Zipped(nn.Module):
    def forward(self, x):
        moved, stayed = on_gpu(3), torch.ones(3)
        scale, shift = [a + b for a, b in zip((moved, stayed), (moved * 2, stayed * 2), strict=True)]
        return x * scale + shift


def test_variables_of_a_zip_are_told_apart():
    (found,) = explained(Zipped(), on_gpu(2, 3))
    assert found.birth.line == line_of(Zipped, "moved, stayed =")


class Shadowed(nn.Module):
    def forward(self, x):
        pairs = [torch.ones(3), torch.ones(3)]
        (first, _) = [x.exp() for x in pairs]
        return x + first


def test_a_variable_of_a_comprehension_is_not_the_argument_of_its_name():
    (found,) = explained(Shadowed(), on_gpu(2, 3))
    assert found.birth.line == line_of(Shadowed, "pairs =")


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("table", torch.ones(16, 4))

    def forward(self, x, positions):
        table = self.table
        if table.device != positions.device:
            table = table.to(positions.device)
            self.table = table
        return self.lin(x) * table[positions]


class Follower(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary = Rotary()

    def forward(self, x):
        positions = torch.arange(x.shape[1])
        return self.rotary(x, positions)


def test_a_buffer_that_was_moved_to_where_a_tensor_is_blames_the_tensor():
    (found,) = explained(Follower().to("cuda:0"), on_gpu(2, 4, 4))
    assert found.birth.line == line_of(Follower, "torch.arange")
    assert "device=x.device" in found.fixes[0].code
