"""Numbers that each replica gives, of which DataParallel gathers vectors: told where backward refuses what is made of them."""

import pytest
import torch
from torch import nn

import devwidget

pytestmark = pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0:UserWarning")


class Losses(nn.Module):
    """Gives a number and a row for each sample, in a dict."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        logits = self.out(x)
        return {"loss": logits.square().mean(), "logits": logits}


def recorded(loss_of):
    """The trace of a backward that torch refuses, healed."""
    with devwidget.simulate(gpus=2), devwidget.record(heal=True) as recording:
        model = nn.DataParallel(Losses().to("cuda:0"), device_ids=[0, 1])
        loss = loss_of(model(torch.ones(2, 4, device="cuda:0")))
        loss.backward()
    return recording.trace


def test_a_number_among_what_a_dict_holds_is_one_finding_with_an_edit_of_the_line_that_goes_backward():
    (found,) = recorded(lambda given: given["loss"] * 2).findings
    assert (found.kind, found.fault.text) == ("parallel-io", 'return {"loss": logits.square().mean(), "logits": logits}')
    assert [edit.text.strip() for edit in found.fixes[0].edits] == ["loss.mean().backward()"]


def test_the_mean_of_the_numbers_of_the_replicas_is_how_it_is_meant():
    assert recorded(lambda given: given["loss"].mean()).findings == ()


def test_losses_of_samples_that_nobody_has_reduced_are_not_taken_for_them():
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        recorded(lambda given: given["logits"].mean(1) + given["loss"])
