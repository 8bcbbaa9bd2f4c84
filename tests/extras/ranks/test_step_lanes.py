"""Lanes keep the order of each rank, and what ranks begin together stands at one place."""

from __future__ import annotations

from devwidget.extras.ranks.records.traced_steps import ModuleSpan, TracedStep, merge_steps
from devwidget.extras.ranks.views.step_lanes import MOST_BOXES, StepLanes, draw_step_lanes
from devwidget.records.parallel import ProcessGroup
from tests.extras.ranks.records.made_up_steps import begun, sharded, step, world


def drawn(*steps: TracedStep) -> StepLanes:
    return draw_step_lanes(merge_steps(dict(enumerate(steps))))


def test_few_ranks_have_a_lane_each_and_many_one_for_each_kind():
    assert [lane.ranks for lane in drawn(*[sharded(4)] * 4).lanes] == [((at, at),) for at in range(4)]
    many = drawn(*[sharded(32)] * 32)
    assert [lane.ranks for lane in many.lanes] == [((0, 31),)]
    assert [len(link.ends) for link in many.links] == [1, 1, 1]


def test_a_collective_stands_at_one_place_in_all_lanes_that_begin_it():
    late = step(sharded(2).collectives, world(2), modules=[ModuleSpan(str(at), "Linear", at, at) for at in range(9)])
    found = drawn(sharded(2), late)
    assert [len({place for _, place in link.ends}) for link in found.links] == [1, 1, 1]
    assert found.links[0].ends[0][1] > 9


def test_modules_stand_inside_each_other_in_the_order_of_the_trace():
    boxes = drawn(sharded(2), sharded(2)).lanes[0].boxes
    assert [(box.span.path, box.level) for box in boxes] == [("", 0), ("up", 1), ("down", 1)]
    outer, up, down = boxes
    assert outer.start <= up.start < up.stop <= down.start < down.stop <= outer.stop


def test_phases_are_bands_from_where_they_begin():
    bands = drawn(sharded(2), sharded(2)).lanes[0].bands
    assert [band.phase for band in bands] == ["forward", "backward"]
    assert bands[0].stop == bands[1].start


def test_groups_in_different_orders_are_drawn_all_the_same():
    groups = [ProcessGroup(name, name, (0, 1)) for name in "ab"]
    one = step([begun("all_reduce", 20), begun("all_gather", 25, group=1)], *groups)
    other = step([begun("all_gather", 20, group=1), begun("all_reduce", 25)], *groups)
    found = drawn(one, other)
    assert [len(link.ends) for link in found.links] == [2, 2]
    assert sorted(len({place for _, place in link.ends}) for link in found.links) == [1, 2]


def test_a_large_model_shows_its_outer_modules_and_says_how_many_are_left_out():
    spans = [ModuleSpan("", "Net", 0, 10_000), *(ModuleSpan(f"a.{at}", "Linear", at + 1, at + 1) for at in range(999))]
    found = drawn(step([begun("all_reduce", 5_000)], world(1), modules=spans))
    assert len(found.lanes[0].boxes) == MOST_BOXES
    assert found.lanes[0].boxes[0].span.path == ""
    assert found.modules_left_out == 1000 - MOST_BOXES
