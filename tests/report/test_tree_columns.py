"""The tree as a page draws it."""

from devwidget.records.device import DeviceId
from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.report.page.tree_columns import mark_columns, tree_table
from devwidget.report.style.units import format_bytes
from devwidget.views.overlay import make_overlay
from devwidget.views.placement import tabulate_snapshot
from tests.views.builders import CPU, one_step, split_model, tensor
from tests.views.test_repeats import stack


def shown_rows(table):
    columns = tree_table(table)
    return [columns["kinds"][kind] for kind in columns["kind"]]


def test_kinds_give_back_the_rows():
    table = tabulate_snapshot(split_model())
    rows, columns = shown_rows(table), tree_table(table)
    assert [columns["names"][name] for name in columns["name"]] == table.names
    assert [row["class"] for row in rows] == table.classes
    assert [row["depth"] for row in rows] == table.depths
    assert [row["amounts"]["bytes"] for row in rows] == table.bytes


def test_rows_that_look_alike_travel_once():
    table = tabulate_snapshot(stack(40))
    columns = tree_table(table)
    assert len(columns["kind"]) == 122
    assert len(columns["kinds"]) == 4  # the model, its list, a block, a layer


def test_rows_name_their_devices_and_dtypes():
    rows = shown_rows(tabulate_snapshot(split_model()))
    assert rows[0]["devices"] == ["cuda:0", "cuda:1", "cpu"]
    assert rows[4]["dtypes"] == ["bool"]


def test_devices_whose_numbers_follow_each_other_are_one_word():
    devices = [CPU, *(DeviceId("cuda", number) for number in (0, 1, 2, 3, 5))]
    tensors = tuple(tensor(f"weight{at}", device=device, storage=at + 1) for at, device in enumerate(devices))
    table = tabulate_snapshot(Snapshot((ModuleFacts("", "Net", -1, 0, tensors),)))
    assert shown_rows(table)[0]["device_runs"] == "cuda:0-3 cuda:5 cpu"


def test_rows_tell_gradients_and_attributes():
    table = tabulate_snapshot(split_model())
    rows = dict(zip(table.paths, shown_rows(table), strict=True))
    facts = {path: (row["has_gradient"], row["is_attribute"]) for path, row in rows.items()}
    assert facts["encoder.embed"] == (True, False)
    assert facts["encoder.attention.mask"] == (False, True)
    assert facts["decoder.head"] == (False, False)


def test_marks_travel_for_the_few_rows_that_have_some():
    table = tabulate_snapshot(split_model())
    columns = mark_columns(table, make_overlay(table, one_step()))
    assert columns["marks"]["6"] == [0, 0, [0], [], 3, 0]
    assert "2" not in columns["marks"]
    assert columns["flows"][columns["flow"][5]] == [["cuda:0"], ["cuda:1"]]
    assert columns["hops"] == {"5": [[1, 4, "64 KiB"]], "3": [[0, 1, "1.00 MiB"]]}


def test_amounts_are_written_as_in_every_other_report():
    table = tabulate_snapshot(split_model())
    shown = [row["texts"]["bytes"] for row in shown_rows(table)]
    assert shown == [format_bytes(size) if size else "" for size in table.bytes]
