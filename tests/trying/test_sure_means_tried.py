"""Sure is what was run, twice, and gave what the same step gives with everything on one device."""

import dataclasses

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.finding import Edit, Fix
from tests.trying.models import Faulty, first_fix, offer_instead, traced


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


@pytest.mark.parametrize("edits", [(), (Edit("program.py", 1, 1, "a = 2", "a = 1"),)])
def test_what_was_not_run_is_likely_whatever_a_rule_thinks_of_it(edits):
    assert Fix("write", "a = 2", "sure", edits=edits).confidence == "likely"
    assert Fix("write", "a = 2", "sure", edits=edits, verified=True, not_compared="it draws").confidence == "likely"
    assert Fix("write", "a = 2", "sure", edits=edits, verified=True).confidence == "sure"


def test_an_edit_is_sure_once_it_was_tried_and_not_before():
    assert first_fix(traced(Faulty(), verify=False)).confidence == "likely"
    assert (first_fix(traced(Faulty())).confidence, first_fix(traced(Faulty())).verified) == ("sure", True)


@dataclasses.dataclass
class Batch:
    x: torch.Tensor


class OfObject(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, batch):
        return self.out(batch.x)


def test_an_edit_with_which_every_replica_takes_the_whole_batch_is_not_offered():
    model = nn.DataParallel(OfObject().to("cuda:0"), device_ids=[0, 1])
    (found,) = devwidget.trace(model, Batch(torch.ones(6, 4, device="cuda:0"))).findings
    assert not any(fix.edits or fix.verified for fix in found.fixes)
    assert found.kind == "parallel-io"
    assert model.device_ids == [0, 1]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        shift = torch.zeros(3)
        out = self.layer(x) + shift
        self.count += 1
        return out


def test_an_edit_that_mends_the_first_call_alone_falls_behind(monkeypatch):
    offer_instead(
        monkeypatch, lambda text: text.rstrip() + "; out = self.layer(x) + shift; self.layer.to('cuda:1'); return out"
    )
    model = Faulty()
    fix = first_fix(traced(model))
    assert fix.verified
    assert "cuda:1" not in fix.code
    assert {str(parameter.device) for parameter in model.parameters()} == {"cuda:0"}


def test_an_edit_that_loses_a_write_falls_behind_though_the_output_is_the_same(monkeypatch):
    offer_instead(monkeypatch, lambda text: text + "; self.count -= 1")
    (found,) = devwidget.trace(Counting().to("cuda:0"), torch.ones(2, 3, device="cuda:0")).findings
    assert found.fixes[0].verified
    assert "count" not in found.fixes[0].edits[0].text


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x) + torch.zeros(4)


def test_values_that_one_device_cannot_tell_make_no_edit_sure():
    model = nn.DataParallel(Noisy().to("cuda:0"), device_ids=[0, 1])
    (found,) = devwidget.trace(model, torch.randn(6, 4, device="cuda:0")).findings
    assert (found.fixes[0].verified, found.fixes[0].confidence) == (True, "likely")
    assert "its result was not compared: on one device its values differ" in str(found)


def test_an_edit_that_doubles_the_gradient_alone_falls_behind(monkeypatch):
    offer_instead(monkeypatch, lambda text: text + "; x = x + self.layer.weight.sum() - self.layer.weight.sum().detach()")
    fix = first_fix(traced(Faulty(), loss_fn=nn.MSELoss(), target=torch.ones(2, 4, device="cuda:0")))
    assert fix.verified
    assert "detach" not in fix.edits[0].text
