"""Memory of any size that is no tensor: what was changed is named, and what cannot be written is not read."""

import mmap

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


@pytest.mark.parametrize("table", [numpy.zeros((5 * MIB, 2))[:, 0], numpy.full(17 * MIB // 8, None)], ids=["part", "objects"])
def test_a_large_array_that_changed_is_named(table):
    named = ("`table` (it was changed, and more than 16 MiB are not copied)",)
    assert _traced(lambda m, x: m.table.__setitem__(-5, 1), table) == named
    assert _traced(lambda m, x: None, table) == ()


def _in_a_file(tmp_path, mode):
    file = tmp_path / "table"
    with file.open("wb") as opened:
        opened.truncate(20 * MIB)
    return numpy.memmap(file, mode=mode)


def _read_only(table):
    table.flags.writeable = False
    return table


def test_what_cannot_be_written_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_checksum_block", lambda owner: pytest.fail("it was read"))
    monkeypatch.setattr(blocks, "_copy_block", lambda owner: pytest.fail("it was copied"))
    view, opened = _in_a_file(tmp_path, "r"), mmap.mmap(-1, 4096, access=mmap.ACCESS_READ)
    tables = [view, view[5:].reshape(-1, 1), _read_only(numpy.zeros(5 * MIB)), numpy.frombuffer(bytes(64)), opened]
    assert _traced(lambda m, x: None, tables) == ()


def test_a_read_only_view_of_what_can_be_written_is_looked_at():
    base = numpy.zeros(4)
    assert _traced(lambda m, x: m.table.base.fill(1), _read_only(base[:])) == ()
    assert base.tolist() == [0, 0, 0, 0]


def test_a_large_file_that_is_mapped_to_be_written_is_named_unread(tmp_path):
    named = ("`table` (not looked at, it is too large to be read)",)
    assert _traced(lambda m, x: None, _in_a_file(tmp_path, "r+")) == named
