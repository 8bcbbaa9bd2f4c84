"""What is said of an exception."""

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.errors import of_worker


class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        if len(x) < 3:
            raise ValueError("too few rows\nfor this layer")
        return self.layer(x)


@pytest.fixture
def model():
    with devwidget.simulate(gpus=2):
        yield nn.DataParallel(Picky().to("cuda:0"))


def test_an_error_of_a_worker_is_told_without_the_traceback_that_it_carries(model):
    trace = devwidget.trace(model, torch.ones(4, 3, device="cuda:0"))
    assert of_worker(trace.error) == ("ValueError: too few rows\nfor this layer", "in replica 0 on device 0")
    assert "ended with ValueError: Caught ValueError in replica 0 on device 0." in str(trace)


def test_an_explanation_begins_with_what_the_worker_raised(model):
    with pytest.raises(ValueError, match="too few rows") as caught:
        model(torch.ones(4, 3, device="cuda:0"))
    text = str(devwidget.explain(caught.value))
    assert text.splitlines()[0] == "ValueError: too few rows (in replica 0 on device 0)"
    assert "each replica gets a part of the batch" in text


@pytest.mark.parametrize("text", ["ValueError: nothing", "", "E: Caught E in replica 1", "Original Traceback (most recent"])
def test_any_other_error_is_left_as_it_is(text):
    assert of_worker(text) == (text, "")
