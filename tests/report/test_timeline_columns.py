"""A trace on lanes as columns, which the page draws."""

import json

from devwidget.records.trace import Trace
from devwidget.report.figures import timeline_columns
from devwidget.views.clock import Clock
from devwidget.views.timeline import make_timeline
from tests.views.builders import one_step


def test_columns_are_json_and_each_box_has_all_of_them():
    columns = timeline_columns(make_timeline(one_step()))
    assert json.loads(json.dumps(columns)) == columns
    boxes = len(make_timeline(one_step()).boxes)
    assert {len(columns[name]) for name in ("start", "stop", "lane", "level", "module")} == {boxes}
    assert [columns["modules"][number][0] for number in columns["module"]] == [
        box.path for box in make_timeline(one_step()).boxes
    ]


def test_the_axis_of_time_moves_everything_and_changes_nothing_else():
    lanes = make_timeline(one_step())
    columns = timeline_columns(lanes, Clock(one_step()))
    moved = columns["time"]
    assert {name: len(places) for name, places in moved.items()} == {name: len(columns[name]) for name in moved}
    assert max(moved["stop"]) <= one_step().seconds
    assert timeline_columns(lanes)["time"] is None


def test_an_arrow_is_as_wide_as_its_bytes_and_a_healed_one_says_so():
    columns = timeline_columns(make_timeline(one_step()))
    arrows = dict(zip(columns["arrowsAt"], columns["arrows"], strict=True))
    assert [arrows[at][-1] for at in (5, 10)] == [True, False]
    assert arrows[5][6] > arrows[20][6] > arrows[10][6]


def test_a_trace_without_anything_has_columns_too():
    assert timeline_columns(make_timeline(Trace()))["start"] == []
