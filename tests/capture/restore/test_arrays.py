"""Arrays of NumPy: copied as long as there is room, and what cannot be written is not touched."""

import numpy
import pytest
import torch

import devwidget
from tests.capture.restore.changing_models import Changing

MIB = 1 << 20


def _traced(change, table):
    traced = devwidget.trace(Changing(change, table=table), torch.rand(2, 4))
    assert traced.error == ""
    return traced.not_restored


def test_an_array_of_another_size_is_put_back():
    table = numpy.arange(3.0)
    assert _traced(lambda m, x: m.table.resize(5, refcheck=False), table) == ()
    assert table.tolist() == [0, 1, 2]


def _read_only(table):
    table.flags.writeable = False
    return table


@pytest.mark.parametrize("table", [_read_only(numpy.zeros(5)), numpy.frombuffer(bytes(64)), numpy.zeros(20 * MIB)[:1]])
def test_an_array_that_stays_as_it_is_is_not_named(table):
    assert _traced(lambda m, x: None, table) == ()
