"""Figures as plain plotly JSON."""

import json
from dataclasses import replace

import pytest

from devwidget.records.errors import ArgumentError, UnknownNameError
from devwidget.records.memory import Refusal
from devwidget.records.trace import Trace
from devwidget.report.figures.frame import byte_axis
from devwidget.report.figures.memory import memory_figure, memory_steps_figure
from devwidget.report.page.cards import meter_cards
from devwidget.report.style.palette import schemes_of
from devwidget.views.memory import MemoryBar, memory_bars, memory_series
from tests.views.builders import GIB, GPU0, MIB, one_step, split_model

FIGURES = {
    "memory": lambda: memory_figure(memory_bars(split_model().memory, one_step(), with_cpu=True)),
    "steps": lambda: memory_steps_figure(memory_series(one_step())),
}


def in_light(value):
    """A figure with the colours that the page chooses on a light one."""
    if isinstance(value, dict):
        return {key: in_light(part) for key, part in value.items()}
    if isinstance(value, list):
        return [in_light(part) for part in value]
    return schemes_of(value)[0] if isinstance(value, str) and value.startswith("light-dark(") else value


def test_a_trace_and_a_snapshot_are_figures_to_change_with_one_legend_entry_for_each_role():
    figure = one_step().to_plotly("memory")
    named = [each.name for each in figure.data if each.showlegend]
    assert sorted(named) == sorted(set(named))
    assert {"parameters", "peak"} <= set(named)
    assert "light-dark" not in figure.to_json()
    assert split_model().to_plotly().data[0].type == "bar"


def test_a_figure_that_a_trace_does_not_have_is_named_with_those_that_it_has():
    with pytest.raises(UnknownNameError, match=r"Trace has no figure 'memry'; did you mean 'memory'\?"):
        one_step().to_plotly("memry")
    with pytest.raises(ArgumentError, match="recorded no memory"):
        Trace().to_plotly("memory")


def test_a_meter_names_the_peak_of_the_last_trace_until_more_is_in_use():
    below, above = (MemoryBar(GPU0, (("parameters", used * MIB),), 8 * MIB, True, 2 * MIB) for used in (1, 3))
    (card,) = meter_cards([below])
    assert card["words"] == "1.00 MiB in use of 8.00 MiB, peak 2.00 MiB"
    (card,) = meter_cards([above])
    assert (card["words"], card["short"], card["peak"]) == ("3.00 MiB in use of 8.00 MiB", "3.00 MiB", 0)


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_knows_every_property_and_the_figure_is_json(name):
    import plotly.graph_objects as go

    figure = FIGURES[name]()
    drawn = in_light(figure)
    go.Figure(data=drawn["data"], layout=drawn["layout"])  # raises on unknown properties and values
    assert json.loads(json.dumps(figure)) == figure
    assert figure["words"]


def test_each_gpu_has_one_bar_with_its_bytes():
    figure = FIGURES["memory"]()
    bars = {trace["meta"]: trace["x"] for trace in figure["data"] if trace["type"] == "bar"}
    assert bars["parameters"] == [3 * MIB, 2 * MIB, 0]
    assert bars["free"] == [9 * MIB, 14 * MIB, 0]


@pytest.mark.parametrize("reach", [1, 5000, 80 * GIB, 5e15])
def test_byte_axes_have_a_handful_of_round_ticks(reach):
    axis = byte_axis(reach)
    assert 1 <= len(axis["tickvals"]) <= 12
    assert axis["ticktext"][0] == "0"


def test_the_peak_and_the_capacity_near_it_are_marked():
    figure = FIGURES["steps"]()
    peaks = [(trace["x"], trace["y"]) for trace in figure["data"] if trace["meta"] == "peak"]
    assert peaks == [([20], [8 * MIB]), ([40], [6 * MIB])]
    assert not [shape for shape in figure["layout"]["shapes"] if shape.get("y0") == 16 * MIB]
    small = tuple(replace(curve, end=replace(curve.end, total=9 * MIB)) for curve in one_step().memory)
    figure = memory_steps_figure(memory_series(replace(one_step(), memory=small)))
    assert len([shape for shape in figure["layout"]["shapes"] if shape.get("y0") == 9 * MIB]) == 2
    assert figure["layout"]["yaxis"]["range"][1] > 9 * MIB


def test_what_did_not_fit_is_a_cross_above_the_capacity():
    refused = Refusal(20, 4 * MIB, 15 * MIB, "forward", "decoder", None)
    curve = replace(one_step().memory[0], refused=(refused,))
    figure = memory_steps_figure(memory_series(replace(one_step(), memory=(curve,))))
    (cross,) = [trace for trace in figure["data"] if trace["meta"] == "refused"]
    assert cross["y"] == [19 * MIB]
    assert "had no room for 4.00 MiB" in cross["customdata"][0][0]


def test_every_bar_goes_to_the_end_of_its_device_and_the_axis_shows_its_break():
    bars = memory_bars([replace(each, free=1000 * MIB, total=1007 * MIB) for each in split_model().memory[:1]])
    figure = memory_figure(bars)
    assert sum(trace["x"][0] for trace in figure["data"]) == pytest.approx(figure["layout"]["xaxis"]["range"][1])
    assert figure["layout"]["xaxis"]["ticktext"][-1] == "1007 MiB"
    assert [note["name"] for note in figure["layout"]["annotations"]] == ["break"]


def test_what_was_refused_lies_behind_the_end_of_its_bar():
    refused = Refusal(20, 14 * MIB, 5 * MIB, "forward", "decoder", None)
    full = replace(one_step(), memory=(replace(one_step().memory[0], refused=(refused,)),))
    layout = memory_figure(memory_bars(split_model().memory, full))["layout"]
    ghosts = [(shape["x0"], shape["x1"]) for shape in layout["shapes"] if shape["name"] == "refused"]
    assert ghosts == [(16 * MIB, 19 * MIB)]
    assert layout["xaxis"]["range"][1] >= 19 * MIB
    assert sum(shape["name"] == "capacity" for shape in layout["shapes"]) == 2
