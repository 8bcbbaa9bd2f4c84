"""Memory of any size that is no tensor: what was changed is named, and what cannot be written is not read."""

import numpy
import pytest
import torch

import devwidget
from devwidget.capture.restore import arrays
from tests.capture.restore.changing_models import Changing

MIB = 1 << 20


def _traced(change, table):
    traced = devwidget.trace(Changing(change, table=table), torch.rand(2, 4))
    assert traced.error == ""
    return traced.not_restored


@pytest.mark.parametrize("table", [numpy.zeros((5 * MIB, 2))[:, 0], numpy.full(17 * MIB // 8, None)], ids=["part", "objects"])
def test_a_large_array_that_changed_is_named(table):
    named = ("`table` (a ndarray that has changed)",)
    assert _traced(lambda m, x: m.table.__setitem__(slice(None), 1), table) == named
    assert _traced(lambda m, x: None, table) == ()


def test_an_array_of_another_size_is_put_back():
    table = numpy.arange(3.0)
    assert _traced(lambda m, x: m.table.resize(5, refcheck=False), table) == ()
    assert table.tolist() == [0, 1, 2]


def _in_a_file(tmp_path, mode):
    file = tmp_path / "table"
    with file.open("wb") as opened:
        opened.truncate(20 * MIB)
    return numpy.memmap(file, mode=mode)


def _read_only(table):
    table.flags.writeable = False
    return table


def test_what_cannot_be_written_is_not_read(tmp_path):
    view = _in_a_file(tmp_path, "r")
    tables = [view, view[5:].reshape(-1, 1), _read_only(numpy.zeros(5 * MIB)), numpy.frombuffer(bytes(64))]
    chosen = [arrays.ArrayBudget().choose_keeper(table) for table in tables]
    assert all(keeper.read(table) is table.base for keeper, table in zip(chosen, tables, strict=True))


def test_a_read_only_view_of_what_can_be_written_is_looked_at():
    base = numpy.zeros(4)
    assert _traced(lambda m, x: m.table.base.fill(1), _read_only(base[:])) == ()
    assert base.tolist() == [0, 0, 0, 0]
