"""Programs across torch's less used surface give plain's numbers when they are recorded, with and without healing."""

import pytest

from devwidget import record
from tests import programs


@pytest.mark.parametrize("heal", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_recorded_numbers_are_those_of_plain(name, heal):
    numbers = programs.plain(name)
    with record(heal=heal) as recording:
        recorded = programs.run(name, "cpu")
    assert programs.equal(numbers, recorded)
    assert [finding.headline for finding in recording.trace.findings] == []
    assert [reason for reason in recording.trace.not_checked if reason.startswith("recorder")] == []
