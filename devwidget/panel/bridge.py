"""The widgets behind a panel, one for each direction and kind of data.

A click while a cell runs is answered on another thread only if Python never publishes unasked on the comm of the click
(ipykernel 7 routes by the last publisher). So `Control` carries questions and answers, and all other widgets only send
data to the page. `LiveFigure` is separate because a thread writes it, and traits are not safe for two writers.
"""

from __future__ import annotations

from typing import Any

import anywidget
from traitlets import Bool, Bytes, Dict, Int, Unicode

from devwidget.panel.sections import load_sections, section_scripts
from devwidget.report.page.assets import PANEL_STYLES, add_to_panel, join_modules, packed_plotly, static_text


class Control(anywidget.AnyWidget):
    """Questions from the page and their answers."""

    _esm = "export default { render() {} };"


class LiveFigure(anywidget.AnyWidget):
    """The memory figure while a cell runs; only the sampler's thread writes it."""

    _esm = "export default { render() {} };"
    figure = Dict().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        self.add_traits(**_section_traits())
        super().__init__(**state)


class PanelView(anywidget.AnyWidget):
    """The page: header, tabs, module tree, findings, hops, figures; and a trait for each section."""

    _css = "".join(map(static_text, PANEL_STYLES))
    words = Dict().tag(sync=True)
    # Pages count views only if this begins as a number.
    _view_count = Int(0, allow_none=True).tag(sync=True)
    control = Unicode().tag(sync=True)
    live = Unicode().tag(sync=True)
    plotly = Unicode().tag(sync=True)
    head = Dict().tag(sync=True)
    inputs = Dict().tag(sync=True)
    status = Dict().tag(sync=True)
    table = Dict().tag(sync=True)
    marks = Dict().tag(sync=True)
    memory = Dict().tag(sync=True)
    traced = Dict().tag(sync=True)
    devices = Dict().tag(sync=True)
    opens = Unicode().tag(sync=True)
    compared = Dict().tag(sync=True)
    applied = Dict().tag(sync=True)
    printed = Unicode().tag(sync=True)
    chosen = Dict().tag(sync=True)
    gone = Bool(False).tag(sync=True)
    itself = Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        script = join_modules(*add_to_panel(section_scripts()))
        self.add_traits(_esm=Unicode(script).tag(sync=True), **_section_traits())
        super().__init__(**state)


def _section_traits() -> dict[str, Dict]:
    return {kind.name: Dict().tag(sync=True) for kind in load_sections()}


class PlotlyCode(anywidget.AnyWidget):
    """plotly.js, gzipped; sent once to each page that shows a panel."""

    _esm = "export default { render() {} };"
    code = Bytes().tag(sync=True)


def refer_to(widget: Any) -> str:
    """Return the reference by which the page finds a widget."""
    return f"anywidget:{widget.model_id}"


_shared: list[PlotlyCode] = []


def shared_plotly() -> PlotlyCode:
    """Return the kernel's only PlotlyCode; a new one if it was closed."""
    if not _shared or _shared[0].comm is None:
        _shared[:] = [PlotlyCode(code=packed_plotly())]
    return _shared[0]
