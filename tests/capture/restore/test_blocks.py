"""Memory that is no tensor: what can be written is put back or named, what cannot is not read."""

import array
import ctypes
import mmap
import resource

import numpy
import pytest
import torch

import devwidget
from devwidget.capture.restore import blocks
from tests.capture.restore.changing_models import Changing

MIB = 1 << 20


def _traced(change, table):
    traced = devwidget.trace(Changing(change, table=table), torch.rand(2, 4))
    assert traced.error == ""
    return traced.not_restored


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_double))


def _mapped():
    found = mmap.mmap(-1, 4096)
    found[:3] = b"abc"
    return found


SMALL = {
    "an array of C": ((ctypes.c_int * 3)(1, 2, 3), lambda m, x: m.table.__setitem__(1, 9), list),
    "a number of C": (ctypes.c_double(2), lambda m, x: setattr(m.table, "value", 9), lambda table: table.value),
    "a structure": (Pair(1, 2), lambda m, x: setattr(m.table, "b", 9), lambda table: (table.a, table.b)),
    "mapped memory": (_mapped(), lambda m, x: m.table.__setitem__(slice(0, 2), b"zz"), lambda table: table[:4]),
    "an array of Python": (array.array("i", [1, 2]), lambda m, x: m.table.append(3), list),
    "objects in an array": (numpy.array([[1], {}], dtype=object), lambda m, x: m.table[0].append(2), list),
    "an array of objects": (numpy.array([1, None], dtype=object), lambda m, x: m.table.__setitem__(1, 2), list),
    "a view of memory": (memoryview(bytearray(b"abc")), lambda m, x: m.table.__setitem__(0, 9), bytes),
    "a part of an array": (
        numpy.arange(12.0).reshape(3, 4)[:, ::2],
        lambda m, x: m.table.fill(1),
        lambda table: table.tolist(),
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_small_block_is_put_back(name):
    table, change, read = SMALL[name]
    before = str(read(table))
    assert _traced(change, table) == ()
    assert str(read(table)) == before


@pytest.mark.parametrize("table", [numpy.zeros((5 * MIB, 2))[:, 0], numpy.zeros(5 * MIB), numpy.full(5 * MIB, None)])
def test_a_large_array_that_changed_is_named(table):
    named = ("`table` (it was changed, and more than 16 MiB are not copied)",)
    assert _traced(lambda m, x: m.table.__setitem__(-5, 1), table) == named
    assert _traced(lambda m, x: None, table) == ()


def _in_a_file(tmp_path, mode, size=20 * MIB):
    file = tmp_path / "table"
    with file.open("wb") as opened:
        opened.truncate(size)
    return numpy.memmap(file, mode=mode)


def _read_only():
    table = numpy.zeros(20 * MIB, dtype=numpy.uint8)
    table.flags.writeable = False
    return table


def test_what_cannot_be_written_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_checksum_block", lambda owner: pytest.fail("it was read"))
    monkeypatch.setattr(blocks, "_copy_block", lambda owner: pytest.fail("it was copied"))
    view = _in_a_file(tmp_path, "r")
    opened = mmap.mmap(-1, 4096, access=mmap.ACCESS_READ)
    for table in (view, view[5:].reshape(-1, 1), _read_only(), numpy.frombuffer(bytes(64)), opened):
        assert _traced(lambda m, x: None, table) == ()


def test_a_read_only_view_of_what_can_be_written_is_looked_at():
    base = numpy.zeros(4)
    view = base[:]
    view.flags.writeable = False
    assert _traced(lambda m, x: m.table.base.fill(1), view) == ()
    assert base.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_a_large_file_that_is_mapped_to_be_written_is_named_unread(tmp_path, mode):
    assert _traced(lambda m, x: None, _in_a_file(tmp_path, mode)) == ("`table` (not looked at, it is too large to be read)",)


@pytest.mark.slow
def test_a_file_of_six_gibibytes_takes_no_memory(tmp_path):
    table = _in_a_file(tmp_path, "r", 6 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _traced(lambda m, x: None, table) == ()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
