"""Figures of a record as objects of plotly, to change and save: `trace.to_plotly("memory")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from devwidget.records.errors import ArgumentError, require_package
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.data_frames import choose_part
from devwidget.report.figures.frame import Figure
from devwidget.report.figures.memory import memory_figure, memory_steps_figure
from devwidget.report.style.palette import schemes_of
from devwidget.views.memory import memory_bars, memory_series

if TYPE_CHECKING:
    import plotly.graph_objects as go

_FIGURES: Mapping[type, Mapping[str, Callable[[Any], Figure | None]]] = {
    Snapshot: {"memory": lambda snapshot: memory_figure(memory_bars(snapshot.memory, None, with_cpu=True))},
    Trace: {"memory": lambda trace: memory_steps_figure(series) if (series := memory_series(trace)) else None},
}
"""Name of a figure -> what draws it, None where nothing was recorded; the first is the default."""

_LEGEND = 60
"""Pixels above the plots for what each colour is."""


def make_plotly(record: Snapshot | Trace, part: str = "") -> go.Figure:
    """One figure of a record, in colours for light pages."""
    drawn = choose_part(_FIGURES[type(record)], record, part, Message("figure"))(record)
    if drawn is None:
        raise ArgumentError(Message("this trace recorded no memory of a GPU"), instead=Message("trace a step on a GPU"))
    require_package("plotly", Message("a plotly figure"))
    import plotly.graph_objects as go

    figure = go.Figure(data=_in_light(drawn["data"]), layout=_in_light(drawn["layout"]))
    left = {words for words, _ in drawn["legend"]}
    for each in figure.data:
        each.update(showlegend=each.name in left, legendgroup=each.name)
        left.discard(each.name)
    added = _LEGEND - figure.layout.margin.t
    figure.update_layout(margin_t=_LEGEND, height=figure.layout.height + added, showlegend=True, template="plotly_white")
    return figure.update_layout(legend={"orientation": "h", "yanchor": "bottom", "y": 1.06})


for kind in _FIGURES:
    presents("plotly", kind)(make_plotly)


def _in_light(value: Any) -> Any:
    match value:
        case dict():
            return {key: _in_light(part) for key, part in value.items()}
        case list():
            return list(map(_in_light, value))
        case str() if value.startswith("light-dark("):
            return schemes_of(value)[0]
        case _:
            return value
