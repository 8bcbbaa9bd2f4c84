"""Programs across torch's less used surface give plain's numbers on virtual GPUs while they are recorded."""

import pytest

from devwidget import record
from devwidget.gpus import simulate
from tests import programs
from tests.older_torch import SPARSE, before
from tests.sampling import sample

MARKS = {"sparse_product": before((2, 11), SPARSE)}
PROGRAMS = [pytest.param(name, marks=MARKS.get(name, ())) for name in programs.PROGRAMS]


@pytest.mark.parametrize("name", sample(PROGRAMS, every=8))
def test_recorded_numbers_are_those_of_plain(name):
    numbers = programs.plain(name)
    with simulate(2), record(heal=True) as recording:
        assert programs.equal(numbers, programs.run(name, "cuda:0"))
    kinds = {finding.kind for finding in recording.trace.findings if finding.severity == "error"}
    assert kinds == set()
    assert [reason for reason in recording.trace.not_checked if reason.startswith("recorder")] == []
