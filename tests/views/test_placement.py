"""The rows of the module tree."""

from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.views.placement import nearest_row, tabulate_snapshot
from tests.views.builders import CPU, GPU0, GPU1, MIB, split_model, tensor


def test_a_row_shows_the_devices_of_everything_below_it():
    table = tabulate_snapshot(split_model())
    assert table.devices_of(table.paths.index("")) == (GPU0, GPU1, CPU)
    assert table.devices_of(table.paths.index("encoder.embed")) == (GPU0,)


def test_a_plain_attribute_has_its_own_row_below_its_owner():
    table = tabulate_snapshot(split_model())
    row = table.paths.index("encoder.attention.mask")
    assert table.paths[table.parents[row]] == "encoder.attention"
    assert table.bytes[row] == MIB
    assert table.tensors[row] is not None


def test_a_tied_weight_counts_once_in_each_subtree():
    table = tabulate_snapshot(split_model())
    embedding = 1000 * 512
    head = embedding + 1000
    assert table.parameters[table.paths.index("decoder.tied")] == embedding
    assert table.parameters[table.paths.index("decoder")] == embedding + head
    assert table.parameters[0] == embedding + 512 * 512 + head
    assert table.bytes[0] == 4 * (embedding + 512 * 512 + 512 + head) + MIB


def test_views_of_one_storage_in_one_module_count_once():
    parts = (tensor("left", (4,), storage=9), tensor("right", (4,), storage=9))
    table = tabulate_snapshot(Snapshot((ModuleFacts("", "Net", -1, 0, parts),)))
    assert table.bytes == [16]


def test_lazy_tensors_count_nothing():
    lazy = tensor("weight", (1,), storage=1)
    lazy = type(lazy)("weight", "parameter", None, "float32", CPU, 0, 1, 0)
    table = tabulate_snapshot(Snapshot((ModuleFacts("", "Net", -1, 0, (lazy,)),)))
    assert (table.parameters, table.bytes) == ([0], [0])


def test_a_path_without_a_row_belongs_to_its_nearest_ancestor():
    table = tabulate_snapshot(split_model())
    index = {path: row for row, path in enumerate(table.paths)}
    assert nearest_row(index, "encoder.attention.softmax") == index["encoder.attention"]
    assert nearest_row(index, "elsewhere") == 0


def test_an_empty_snapshot_has_no_rows():
    assert len(tabulate_snapshot(Snapshot(()))) == 0
