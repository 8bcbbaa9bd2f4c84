"""A model on its devices: columns, blocks, what crosses."""

from dataclasses import replace

import pytest

from devwidget.records.memory import DeviceMemory
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Fault, ModuleEvent, Operand, Trace
from devwidget.report.text.device_words import block_kind, block_name, column_title, way_title
from devwidget.views.blocks import FEW_BLOCKS, MOST_BLOCKS
from devwidget.views.devices import make_picture
from devwidget.views.placement import tabulate_snapshot
from tests.views.builders import CPU, GPU0, GPU1, MIB, data_parallel, one_step, site, split_model, wrong_device
from tests.views.test_repeats import stack

SPLIT = stack(12, lambda block: GPU0 if block < 5 else GPU1)


def picture_of(snapshot, trace=None, **more):
    return make_picture(snapshot, tabulate_snapshot(snapshot), trace, **more)


def named(picture):
    """Blocks from top to bottom, as they are written."""
    shown = sorted(picture.blocks, key=lambda block: block.row)
    return [" ".join(filter(None, (block_name(block), block_kind(block)))) for block in shown]


def ends(picture, kind="copy"):
    """The ways of a kind by the names of their ends."""
    return [
        (block_name(picture.blocks[w.source]), block_name(picture.blocks[w.target])) for w in picture.ways if w.kind == kind
    ]


def crossing(module, number, source=GPU0, target=GPU1, **more):
    return replace(one_step().moves[0], module=module, number=number, source=source, target=target, site=site(40), **more)


def traced(*moves, **more):
    events = tuple(ModuleEvent(f"h.{n}", "Block", (), (), 1, 0.1, number=10 * n + 5, stopped=10 * n + 14) for n in range(12))
    return Trace(modules=events, moves=moves, **more)


def test_equal_blocks_on_one_device_are_one_in_a_column_each():
    picture = picture_of(SPLIT)
    assert [column.device for column in picture.columns] == [GPU0, GPU1]
    assert named(picture) == ["h.0–4 5 × Block", "h.5–11 7 × Block"]


def test_a_run_unfolds_into_its_blocks_and_a_block_into_its_parts():
    picture = picture_of(stack(3), opened=["h.0:h.2"])
    assert named(picture) == ["h.0 Block", "h.1 Block", "h.2 Block"]
    assert named(picture_of(stack(3), opened=["h.0:h.2", "h.1"]))[1] == "h.1.up, down 2 × Linear"
    assert named(picture_of(stack(3), every=True)) == ["h.0 Block", "h.1 Block", "h.2 Block"]


def test_a_block_in_which_an_error_was_found_is_by_itself_and_not_unfolded():
    found = replace(wrong_device(), module="h.2")
    picture = picture_of(stack(5), Trace(findings=(found,)))
    assert [(name, block.wrong) for name, block in zip(named(picture), picture.blocks, strict=True)] == [
        ("h.0–1 2 × Block", False), ("h.2 Block", True), ("h.3–4 2 × Block", False)]  # fmt: skip


def test_a_picture_unfolds_by_itself_only_as_far_as_it_stays_small():
    picture = picture_of(split_model())
    assert len(picture.blocks) <= FEW_BLOCKS
    assert "encoder.embed Embedding" in named(picture)


def test_what_crosses_goes_from_the_block_before_to_the_block_behind():
    back = crossing("", 200, GPU1, GPU0, phase="backward")
    picture = picture_of(SPLIT, traced(crossing("", 54), crossing("", 2, CPU, GPU0), back))
    assert ends(picture) == [("h.0–4", "h.5–11"), ("f32[8, 512]", "h.0–4")]
    assert ends(picture, "gradient") == [("h.5–11", "h.0–4")]
    assert [column.device for column in picture.columns] == [CPU, GPU0, GPU1]


def test_what_crosses_in_backward_on_no_way_of_forward_is_not_drawn():
    back = crossing("", 200, GPU1, GPU0, phase="backward", shape=(2, 2), bytes=16)
    assert ends(picture_of(SPLIT, traced(crossing("", 54), back)), "gradient") == []


def test_an_output_that_goes_home_is_a_tensor_behind_the_last_block():
    picture = picture_of(SPLIT, traced(crossing("", 54), crossing("", 130, GPU1, GPU0)))
    assert ends(picture)[1] == ("h.5–11", "f32[8, 512]")
    assert named(picture)[-1] == "f32[8, 512]"


def test_a_hook_of_accelerate_is_named_with_the_module_that_it_serves():
    picture = picture_of(SPLIT, traced(crossing("h.5", 54, cause="hook")))
    (way,) = picture.ways
    assert "hook of h.5" in way_title(way, picture)


def test_a_hop_inside_a_joined_block_arrives_there_whichever_of_its_parts_runs():
    picture = picture_of(SPLIT, traced(crossing("h.5", 54, cause="hook"), crossing("h.11.up", 115, cause="hook")))
    assert [way.count for way in picture.ways] == [2]


def test_weights_that_a_hook_brings_make_their_block_visit_where_it_runs():
    offloaded = stack(4, lambda block: CPU if block == 3 else GPU0)
    picture = picture_of(offloaded, traced(crossing("h.3.up", 37, CPU, GPU0, cause="hook")))
    assert named(picture) == ["h.0–2 3 × Block", "h.3 Block", "h.3 Block, runs here"]
    assert ends(picture) == [("h.3", "h.3")]
    assert [str(column.device) for column in picture.columns] == ["cpu", "cuda:0"]


def test_a_tensor_that_the_trace_has_moved_has_the_name_of_its_fault():
    stray = Operand("other", "mask", (8, 512), "float32", CPU, 16384, stray=True)
    fault = Fault(
        21, "operands", "add", "h.1", "forward", site(41), "RuntimeError", operands=(stray,), target=GPU0, healed=True
    )
    picture = picture_of(stack(5), traced(crossing("h.1", 20, CPU, GPU0, cause="healed"), faults=(fault,)))
    assert ends(picture, "healed") == [("mask", "h.1")]
    assert named(picture)[1:3] == ["mask f32[8, 512]", "h.1 Block"]


def test_where_the_step_stopped_the_stray_goes_no_further():
    stray = Operand("other", "mask", (4,), "float32", CPU, 16, stray=True)
    error = "RuntimeError: Expected all tensors to be on the same device"
    fault = Fault(21, "operands", "add", "h.1", "forward", site(41, "x + mask"), error, operands=(stray,), target=GPU0)
    picture = picture_of(stack(5), traced(faults=(fault,), error=error))
    assert ends(picture, "stopped") == [("mask", "h.1")]
    assert "train.py:41  x + mask" in way_title(picture.ways[0], picture)


def test_a_gpu_of_which_nothing_is_used_stays_in_the_picture():
    idle = DeviceMemory(GPU1, "virtual GPU", True, 16 * MIB, free=16 * MIB)
    picture = picture_of(replace(stack(3), memory=(idle,)))
    assert [(column.device, column.is_idle) for column in picture.columns] == [(GPU0, False), (GPU1, True)]


def test_a_column_tells_what_its_peak_was_made_of():
    column = picture_of(split_model(), one_step()).columns[1]
    assert (column.device, column.taken, column.is_peak) == (GPU0, 8 * MIB, True)
    assert dict(column.parts) == {"parameters": 3 * MIB, "activations": 5 * MIB}
    assert column_title(column, ()).startswith("cuda:0: 8.00 MiB of 16.0 MiB at its peak")


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_call_of_data_parallel_is_drawn_as_it_ran(gpus):
    picture = picture_of(split_model(), data_parallel(gpus))
    found = named(picture)
    assert found[2:4] == ["batch 63 samples", "Linear the copy that is kept"]
    assert found[-2:] == ["outputs gathered", "gradients summed"]
    replicas = [block for block in picture.blocks if block.what == "replica"]
    assert len({block.row for block in replicas}) == 1
    assert [str(block.device) for block in replicas] == [f"cuda:{n}" for n in range(gpus)]
    steps = [way.step for way in picture.ways]
    assert {step: steps.count(step) for step in steps} == dict.fromkeys(("scatter", "replicate", "gather", "reduce"), gpus - 1)


def test_a_long_zigzag_stays_drawable():
    picture = picture_of(stack(100, lambda block: GPU0 if block < 50 else (GPU0, GPU1)[block % 2]))
    assert MOST_BLOCKS >= len(picture.blocks) == 50
    longer = picture_of(stack(1000, lambda block: (GPU0, GPU1)[block % 2]))
    assert MOST_BLOCKS >= len(longer.blocks) > 20
    assert sum(len(block.paths) for block in longer.blocks) == 1000


def test_nothing_is_drawn_of_no_model():
    assert picture_of(Snapshot(())).columns == ()
