"""A trace on lanes as rows of a figure."""

import json
from itertools import chain

import pytest

from devwidget.report.figures.timeline import timeline_figure
from devwidget.views.clock import Clock
from devwidget.views.timeline import make_timeline
from tests.views.builders import one_step

LANES = make_timeline(one_step())


def rows_of(figure, *, arrows):
    return [row for row in figure["rows"] if bool(row["wide"]) == arrows]


def test_the_figure_is_json_and_each_box_is_in_one_row():
    figure = timeline_figure(LANES)
    assert json.loads(json.dumps(figure)) == figure
    boxes = [row for row in figure["rows"] if row["names"]]
    paths = [target["path"] for row in boxes for _, target in row["facts"]]
    assert sorted(paths) == sorted(box.path for box in LANES.boxes)
    assert all(len(row["facts"]) == len(row["names"]) == len(row["order"]) for row in boxes)


def test_the_axis_of_time_moves_everything_and_changes_nothing_else():
    figure = timeline_figure(LANES, Clock(one_step()))
    assert all(len(row["time"]) == len(row["order"]) for row in figure["rows"])
    assert all(0 <= place <= 1 for row in figure["rows"] for place in chain(*row["time"]))
    assert figure["axes"]["time"]["places"][-1] == pytest.approx(one_step().seconds)
    assert list(timeline_figure(LANES)["axes"]) == ["order"]


def test_an_arrow_is_as_wide_as_its_bytes_and_a_healed_one_is_dotted():
    healed, moved = rows_of(timeline_figure(LANES), arrows=True)
    assert healed["wide"][0] > moved["wide"][1] > moved["wide"][0]
    assert ["pattern" in row["traces"][0]["marker"] for row in (healed, moved)] == [True, False]
    assert healed["facts"][0][0].startswith("<b>cpu → cuda:0</b> 1.00 MiB, moved by devwidget<br>encoder.attention")
