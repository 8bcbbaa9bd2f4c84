"""The second step of a trial: held against one of a healed step, but where the first has left what a healed one has left."""

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.restore import keep_state
from devwidget.trying.reference_step import results_of
from tests.trying.models import Faulty, first_fix, offer_instead


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


class Remembering(nn.Module):
    """Each step adds to what the next one begins with."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.memory = [torch.zeros(4, device="cuda:0")]

    def forward(self, x):
        y = self.layer(x) + self.memory[0]
        shift = torch.ones(4)
        self.memory[0] = self.memory[0] + shift.to(y.device)
        return y + shift


def traced(model):
    return devwidget.trace(model, torch.ones(2, 4, device="cuda:0"), loss_fn=torch.sum)


def test_a_right_edit_is_held_against_the_healed_step_alone():
    trace = traced(Remembering().to("cuda:0"))
    assert (trace.step_runs, first_fix(trace).verified) == (3, True)


def test_an_edit_that_harms_only_the_second_step_is_found_out(monkeypatch):
    harm = "self.memory.__setitem__(0, self.memory[0] + 7) or torch.ones(4,"
    offer_instead(monkeypatch, lambda text: text.replace("torch.ones(4,", harm))
    trace = traced(Remembering().to("cuda:0"))
    (found,) = trace.findings
    assert trace.step_runs > 3
    assert not any("__setitem__" in edit.text for fix in found.fixes for edit in fix.edits)
    assert any("in the second step its output differs" in note for note in found.notes) or found.fixes[0].verified


def left_by(model, act, optimizer=None):
    with keep_state(model, optimizer) as kept:
        act(model)
        return results_of({}, model, kept.list_changed())


def test_two_runs_that_leave_the_same_are_told_alike():
    model = Remembering()
    first, second = (left_by(model, lambda model: model.memory.append({"seen": torch.ones(3)})) for _ in range(2))
    assert first.leaves_as_much(second)
    assert left_by(model, lambda model: None).left == ()


@pytest.mark.parametrize(
    "other",
    [lambda: torch.ones(3, dtype=torch.float64), lambda: torch.ones(2), lambda: torch.ones(3, device="cuda:0")],
    ids=["dtype", "values", "device"],
)
def test_what_differs_is_told_apart(other):
    model = Remembering()
    first, second = (left_by(model, lambda m, value=value: m.memory.append(value)) for value in (torch.ones(3), other()))
    assert not first.leaves_as_much(second)


def test_what_an_optimizer_leaves_is_measured():
    model = Faulty().to("cuda:0")
    optimizer = torch.optim.AdamW(model.parameters())

    def step(model):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    first, second = (left_by(model, step, optimizer) for _ in range(2))
    assert first.leaves_as_much(second)
    assert len(first.left) == 8  # of two parameters themselves, their steps and both averages
