"""A full memory or Ctrl-C at any line of a trial: code, names, model, output and logs are as they were."""

import contextlib
import logging
import pathlib
import sys

import pytest
import torch
from torch import nn

import devwidget
from devwidget import trying
from tests import faults
from tests.described import described


class Striped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.scale = torch.full((3,), 2.0)

    def forward(self, x):
        x = self.layer(x) * self.scale
        x = x + torch.ones(3)
        return x + SHIFT


SHIFT = torch.ones(3)
TRYING = pathlib.Path(trying.__file__).parent


def look(model):
    codes = [function.__code__ for function in (Striped.__init__, Striped.forward)]
    names = globals()  # reading the name itself would be a use of it beside the step
    return described(model), codes, id(names["SHIFT"]), sys.stdout, sys.stderr, logging.root.manager.disable


def struck(strike, every):
    """The lines of trials after which something was left, and how many were struck."""
    model, batch = Striped().to("cuda:0"), torch.ones(2, 3, device="cuda:0")

    def act():
        return devwidget.trace(model, batch)

    assert [finding.fixes[0].verified for finding in act().findings] == [True, True, False]  # an edit of the class is not run
    with faults.LinesRun() as lines:
        act()
    chosen = [(line, count) for line, count in lines.counts.items() if TRYING in pathlib.Path(line[0]).parents][::every]
    before, left = look(model), []
    for line, nth in chosen:
        with faults.interrupts(), contextlib.suppress(faults.Fault, KeyboardInterrupt), strike(line, nth):
            act()
        if look(model) != before:
            left.append((line, nth))
    print(f"{strike.__name__}: {len(chosen)} lines, {len(left)} left")
    return left


@pytest.mark.parametrize("every", [pytest.param(83, marks=pytest.mark.slow), pytest.param(11, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("strike", [faults.RaiseAt, faults.InterruptAt])
@pytest.mark.timeout(900)
def test_what_strikes_a_line_of_a_trial_leaves_nothing(strike, every):
    with devwidget.simulate(gpus=1):
        assert struck(strike, every) == []
