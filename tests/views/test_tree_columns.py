"""The tree as packed columns."""

from array import array

from devwidget.views.overlay import overlay
from devwidget.views.placement import place
from devwidget.views.tree_columns import ATTRIBUTE, GRADIENT, mark_columns, tree_columns
from tests.views.builders import one_step, split_model


def unpacked(kind, data):
    return list(array(kind, data))


def test_columns_give_back_the_rows():
    table = place(split_model())
    columns = tree_columns(table)
    assert columns["rows"] == 8
    assert [columns["names"][code] for code in unpacked("I", columns["name"])] == table.names
    assert [columns["classes"][code] for code in unpacked("I", columns["class"])] == table.classes
    assert unpacked("H", columns["depth"]) == table.depths
    assert unpacked("d", columns["bytes"]) == table.bytes


def test_devices_and_dtypes_are_coded_as_sets():
    table = place(split_model())
    columns = tree_columns(table)
    assert columns["devices"][unpacked("I", columns["device"])[0]] == ["cuda:0", "cuda:1", "cpu"]
    assert columns["dtypes"][unpacked("I", columns["dtype"])[4]] == ["bool"]


def test_flags_tell_gradients_and_attributes():
    table = place(split_model())
    flags = dict(zip(table.paths, unpacked("B", tree_columns(table)["flags"]), strict=True))
    assert flags["encoder.embed"] == GRADIENT
    assert flags["encoder.attention.mask"] == ATTRIBUTE
    assert flags["decoder.head"] == 0


def test_marks_travel_for_the_few_rows_that_have_some():
    table = place(split_model())
    columns = mark_columns(table, overlay(table, one_step()))
    assert columns["marks"]["6"] == [0, 0, [0], [], 3, 0]
    assert "2" not in columns["marks"]
    assert columns["flows"][unpacked("I", columns["flow"])[5]] == "cuda:0 → cuda:1"


def test_without_a_trace_there_are_no_marks():
    table = place(split_model())
    assert mark_columns(table, overlay(table, None)) == {"flows": [], "flow": b"", "marks": {}}
