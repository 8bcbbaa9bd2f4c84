"""The map of a model on its devices."""

from dataclasses import replace

import pytest

from devwidget.records.device import DeviceId
from devwidget.records.trace import ModuleEvent, Trace
from devwidget.report.figures.device_map import block_words, device_map_figure, map_rows, map_words
from devwidget.views.device_map import MOST_BLOCKS, make_device_map
from devwidget.views.placement import tabulate_snapshot
from tests.views.builders import CPU, GPU0, GPU1, one_step, site
from tests.views.test_repeats import stack

SPLIT = tabulate_snapshot(stack(12, lambda block: GPU0 if block < 5 else GPU1))


def crossing(module, number, source=GPU0, target=GPU1, **more):
    return replace(one_step().moves[0], module=module, number=number, source=source, target=target, site=site(40), **more)


def traced(*moves):
    events = tuple(ModuleEvent(f"h.{n}", "Block", (), (), 1, 0.1, number=10 * n + 5, stopped=10 * n + 14) for n in range(12))
    return Trace(modules=events, moves=moves)


def test_blocks_on_one_device_are_joined_in_a_column_each():
    drawn = make_device_map(SPLIT)
    assert drawn.devices == (GPU0, GPU1)
    assert [block_words(block) for block in drawn.blocks] == ["h.0–4  5 × Block", "h.5–11  7 × Block"]


def test_a_model_on_one_device_has_no_map():
    assert make_device_map(tabulate_snapshot(stack(3))) is None


def test_what_crosses_goes_from_the_block_before_to_the_block_behind():
    drawn = make_device_map(
        SPLIT, traced(crossing("", 54), crossing("", 2, CPU, GPU0), crossing("", 200, GPU1, GPU0, phase="backward"))
    )
    assert [(each.source, each.target) for each in drawn.crossings] == [(0, 1), (-1, 0)]
    assert drawn.devices == (GPU0, GPU1, CPU)
    assert map_words(drawn)[:2] == ["Forward: 2 hops, 32 KiB.", "Backward: 1 hop, 16 KiB."]


def test_a_gradient_comes_back_on_the_way_of_its_copy():
    there, back = crossing("", 54), crossing("", 200, GPU1, GPU0, phase="backward")
    other = replace(back, shape=(2, 2), bytes=16)
    drawn = make_device_map(SPLIT, traced(crossing("", 2, CPU, GPU0), there, back, other))
    assert [(each.source, each.target, each.moves) for each in drawn.back] == [(1, 0, (back,))]
    assert drawn.elsewhere == (other,)
    first, second = "h.0–4, 5 × Block", "h.5–11, 7 × Block"
    assert map_rows(drawn) == [["outside", first, "16 KiB, 1 hop", ""], [first, second, "16 KiB, 1 hop", "16 KiB, 1 hop"]]
    assert map_words(drawn)[:2] == ["Forward: 2 hops, 32 KiB.", "Backward: 2 hops, 16 KiB."]


def test_ribbons_of_forward_and_backward_lie_beside_each_other():
    drawn = make_device_map(SPLIT, traced(crossing("", 54), crossing("", 200, GPU1, GPU0, phase="backward")))
    there, back = [each for each in device_map_figure(drawn)["data"] if "crossing" in each["meta"]]
    assert (there["meta"]["crossing"], back["meta"]["crossing"]) == ([0, 1], [1, 0])
    assert "fillpattern" in back
    assert "fillpattern" not in there
    half = len(there["y"]) // 2
    assert all(lower < upper for lower, upper in zip(there["y"][half:], reversed(back["y"][:half]), strict=False))


def test_a_hook_of_accelerate_is_named_with_the_module_that_it_serves():
    drawn = make_device_map(SPLIT, traced(crossing("h.5", 54, cause="hook")))
    (ribbon,) = [each for each in device_map_figure(drawn)["data"] if "crossing" in each["meta"]]
    assert "hook of h.5" in ribbon["text"]
    assert map_words(drawn) == ["Forward: 1 hop, 16 KiB, 1 of them by hooks of accelerate."]


def test_a_hop_inside_a_joined_block_arrives_there_whichever_of_its_parts_runs():
    drawn = make_device_map(SPLIT, traced(crossing("h.5", 54, cause="hook"), crossing("h.11.up", 115, cause="hook")))
    assert [(each.source, each.target, len(each.moves)) for each in drawn.crossings] == [(0, 1, 2)]


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_names_are_as_long_as_their_boxes_on_wide_pages_and_on_narrow_ones(devices):
    drawn = make_device_map(tabulate_snapshot(stack(16, lambda block: DeviceId("cuda", block * devices // 16))))
    figure = device_map_figure(drawn)
    for notes, page in ((figure["layout"]["annotations"], 1000), (figure["narrow"]["annotations"], 540)):
        lines = [line for note in notes[devices:] for line in note["text"].split("<br>")]
        assert max(map(len, lines)) * 6 <= page * 0.74 / devices
        assert any(line.startswith("h.0–") for line in lines)


def test_a_long_zigzag_stays_drawable():
    drawn = make_device_map(tabulate_snapshot(stack(100, lambda block: GPU0 if block < 50 else (GPU0, GPU1)[block % 2])))
    assert MOST_BLOCKS >= len(drawn.blocks) == 50
