"""Programs across torch's less used surface give plain's numbers on virtual GPUs while they are recorded."""

import pytest

from devwidget import record
from devwidget.simulator import simulate
from tests import programs
from tests.older_torch import SPARSE, before
from tests.sampling import sample

NO_EXPORT = before((2, 8), "it does not find what a strict export gave back on virtual GPUs")
EXPORTS = ("export_and_run", "export_trained", "export_with_factory", "export_decomposed")
MARKS = {"sparse_product": before((2, 11), SPARSE), **dict.fromkeys(EXPORTS, NO_EXPORT)}
PROGRAMS = [pytest.param(name, marks=MARKS.get(name, ())) for name in programs.PROGRAMS]


@pytest.mark.parametrize("name", sample(PROGRAMS, every=8))
def test_recorded_numbers_are_those_of_plain(name):
    numbers = programs.plain(name)
    with simulate(2), record(heal=True) as recording:
        assert programs.equal(numbers, programs.run(name, "cuda:0"))
    kinds = {finding.kind for finding in recording.trace.findings if finding.severity == "error"}
    assert kinds == set()
    assert [reason for reason in recording.trace.not_checked if reason.startswith("recorder")] == []
