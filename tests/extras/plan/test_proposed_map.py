"""A layout in the picture of devices: its blocks in the columns of their GPUs, and what crosses."""

from devwidget.extras.plan.page.proposed import proposed_content
from devwidget.extras.plan.records.answers import BlockCost, Layout, PlacedGpu
from devwidget.extras.plan.views import propose_picture
from devwidget.records.device import DeviceId
from devwidget.views.placement import PlacementTable

GPU0, GPU1 = DeviceId("cuda", 0), DeviceId("cuda", 1)
MIB = 1 << 20
GPUS = tuple(PlacedGpu(device, 2 * MIB, 4 * MIB) for device in (GPU0, GPU1))


def layout(*devices):
    costs = (
        BlockCost(f"h.{at}", device, MIB, passed=1 << 18, dtype="float32", shape=(2, 8)) for at, device in enumerate(devices)
    )
    return Layout("Net", True, tuple(costs), GPUS, 2, 1 << 19)


def test_blocks_of_one_gpu_are_joined_and_what_crosses_is_what_the_last_of_them_passes_on():
    drawn = propose_picture(layout(GPU0, GPU0, GPU1), PlacementTable())
    assert [block.paths for block in drawn.blocks if block.what == "module"] == [("h.0", "h.1"), ("h.2",)]
    assert [(way.source, way.target, way.bytes) for way in drawn.ways] == [(0, 1, 1 << 18), (1, 2, 1 << 18)]
    assert drawn.blocks[2].what == "tensor"
    assert [column.device for column in drawn.columns] == [GPU0, GPU1]


def test_a_last_block_that_is_on_the_first_gpu_again_has_no_way_back():
    drawn = propose_picture(layout(GPU0, GPU1, GPU0), PlacementTable())
    assert [(way.source, way.target) for way in drawn.ways] == [(0, 1), (1, 2)]


def test_a_layout_on_one_gpu_is_one_block_without_crossings():
    drawn = propose_picture(layout(GPU0, GPU0), PlacementTable())
    assert (len(drawn.blocks), drawn.ways) == (1, ())


def test_the_panel_is_given_the_sentence_and_the_figure():
    content = proposed_content(layout(GPU0, GPU1), PlacementTable())
    assert content["words"][0].startswith("Layout: Net over 2 GPUs: fits")
    assert all(text.startswith("<svg") for text in content["drawn"].values())
