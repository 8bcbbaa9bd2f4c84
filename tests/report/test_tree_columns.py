"""The tree as packed columns."""

from array import array

from devwidget.report.page.tree_columns import ATTRIBUTE, GRADIENT, mark_columns, tree_table
from devwidget.report.style.units import format_bytes
from devwidget.views.overlay import make_overlay
from devwidget.views.placement import tabulate_snapshot
from tests.views.builders import one_step, split_model


def unpacked(kind, data):
    return list(array(kind, data))


def test_columns_give_back_the_rows():
    table = tabulate_snapshot(split_model())
    columns = tree_table(table)
    assert columns["rows"] == 8
    assert [columns["names"][code] for code in unpacked("I", columns["name"])] == table.names
    assert [columns["classes"][code] for code in unpacked("I", columns["class"])] == table.classes
    assert unpacked("H", columns["depth"]) == table.depths
    assert unpacked("I", columns["column:bytes"]) == [sorted(set(table.bytes)).index(size) for size in table.bytes]


def test_devices_and_dtypes_are_coded_as_sets():
    table = tabulate_snapshot(split_model())
    columns = tree_table(table)
    assert columns["devices"][unpacked("I", columns["device"])[0]] == ["cuda:0", "cuda:1", "cpu"]
    assert columns["dtypes"][unpacked("I", columns["dtype"])[4]] == ["bool"]


def test_flags_tell_gradients_and_attributes():
    table = tabulate_snapshot(split_model())
    flags = dict(zip(table.paths, unpacked("B", tree_table(table)["flags"]), strict=True))
    assert flags["encoder.embed"] == GRADIENT
    assert flags["encoder.attention.mask"] == ATTRIBUTE
    assert flags["decoder.head"] == 0


def test_marks_travel_for_the_few_rows_that_have_some():
    table = tabulate_snapshot(split_model())
    columns = mark_columns(table, make_overlay(table, one_step()))
    assert columns["marks"]["6"] == [0, 0, [0], [], 3, 0]
    assert "2" not in columns["marks"]
    assert columns["flows"][unpacked("I", columns["flow"])[5]] == (("cuda:0",), ("cuda:1",))
    assert columns["hops"] == {"5": [[1, 4, "64 KiB"]], "3": [[0, 1, "1.00 MiB"]]}


def test_amounts_are_written_as_in_every_other_report_and_sort_by_their_codes():
    table = tabulate_snapshot(split_model())
    packed = tree_table(table)
    head = next(head for head in packed["heads"] if head["key"] == "bytes")
    codes = unpacked("I", packed["column:bytes"])
    assert [head["texts"][code] for code in codes] == [format_bytes(size) if size else "" for size in table.bytes]
    assert sorted(table.bytes) == [size for _, size in sorted(zip(codes, table.bytes, strict=True))]
