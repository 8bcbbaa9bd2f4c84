"""Edits of an exception, or of a recording, are tried on the call that was seen, with the label that a trace gives them."""

import gc
import weakref

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.errors import DevwidgetError

SEEN = []


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def act(self):
        pass

    def forward(self, x, scale=1):
        self.act()
        shift = torch.zeros(4)
        return self.layer(x) * scale + shift


def batch():
    return torch.ones(2, 4, device="cuda:0")


def failure(model, *args, **kwargs):
    with pytest.raises(RuntimeError) as caught:
        model(*args, **kwargs)
    return caught.value


def test_an_edit_of_an_explanation_can_be_tried_on_the_call_that_failed():
    model = Shifted().to("cuda:0")
    error = failure(model, batch(), scale=2)  # which keeps the batch
    first = devwidget.explain(error).findings[0].fixes[0]
    tried = first.try_it()
    assert (first.verified, tried.verified, tried.runs) == (False, True, 2)
    assert tried.confidence == "likely"  # nobody went back
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert first.try_it().confidence == "sure"


def test_what_is_run_again_leaves_model_and_random_numbers_as_they_were():
    class Counting(Shifted):
        count = 0

        def act(self):
            self.count += 1

            SEEN.append(torch.rand(1))

    model = Counting().to("cuda:0")
    error, before = failure(model, batch()), torch.get_rng_state()
    assert devwidget.explain(error).findings[0].fixes[0].try_it().verified
    assert (model.count, len(SEEN)) == (1, 1)
    assert torch.equal(torch.get_rng_state(), before)
    SEEN.clear()


def test_nothing_is_run_where_nobody_asks_for_it():
    model = Shifted().to("cuda:0")
    error = failure(model, batch())
    model.act = lambda: pytest.fail("run again")
    (found,) = devwidget.explain(error).findings
    assert not found.fixes[0].verified


@pytest.mark.parametrize("heal", [True, False])
def test_edits_of_a_recording_can_be_tried_as_long_as_its_batch_is_there(heal):
    model, x, loss = Shifted().to("cuda:0"), batch(), nn.MSELoss()
    try:
        with devwidget.record(heal=heal) as recording:
            loss(model(x, scale=3), torch.zeros(2, 4, device="cuda:0")).backward()
    except RuntimeError:
        assert not heal
    first = recording.trace.findings[0].fixes[0]
    tried = first.try_it()
    assert (first.verified, tried.verified, tried.confidence, tried.runs) == (False, True, "likely", 2)
    if heal:
        del x
        with pytest.raises(DevwidgetError, match="can no longer be tried"):
            first.try_it()


def test_a_recording_keeps_nothing_alive_for_trials():
    model, x = Shifted().to("cuda:0"), batch()
    with devwidget.record(heal=True) as recording:
        model(x)
    last = [weakref.ref(model), weakref.ref(x)]
    del model, x
    gc.collect()
    assert [each() for each in last] == [None, None]
    with pytest.raises(DevwidgetError):
        recording.trace.findings[0].fixes[0].try_it()
