"""Programs across torch's less used surface give plain's numbers when they are recorded, with and without healing."""

import pytest
from torch import nn

from devwidget import Inputs, record, trace
from tests import programs
from tests.sampling import as_slow, sample


class Running(nn.Module):
    """Runs a program in its forward, where it compares the numbers too: what a step keeps is put back."""

    def __init__(self, name, numbers):
        super().__init__()
        self.name, self.numbers = name, numbers

    def forward(self):
        assert programs.equal(self.numbers, programs.run(self.name, "cpu"))


def test_other_numbers_in_a_traced_forward_would_be_seen():
    assert trace(Running("autocast", programs.plain("profiled")), Inputs()).error


@pytest.mark.parametrize("name", sample(programs.PROGRAMS, every=8))
def test_numbers_in_a_traced_forward_are_those_of_plain(name):
    traced = trace(Running(name, programs.plain(name)), Inputs())
    assert (traced.error, traced.not_restored, [finding.headline for finding in traced.findings]) == ("", (), [])
    assert [reason for reason in traced.not_checked if reason.startswith("recorder")] == []


@pytest.mark.parametrize("heal", [True, as_slow(False)])
@pytest.mark.parametrize("name", sample(programs.PROGRAMS, every=8, first=4))
def test_recorded_numbers_are_those_of_plain(name, heal):
    numbers = programs.plain(name)
    with record(heal=heal) as recording:
        recorded = programs.run(name, "cpu")
    assert programs.equal(numbers, recorded)
    assert [finding.headline for finding in recording.trace.findings] == []
    assert [reason for reason in recording.trace.not_checked if reason.startswith("recorder")] == []
