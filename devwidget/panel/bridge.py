"""The widgets behind a panel, one for each direction and kind of data.

A click while a cell runs is answered on another thread only if Python never publishes unasked on the comm of the click
(ipykernel 7 routes by the last publisher). So one widget carries questions and answers, and all others only send data to the
page. What is written while a cell runs is separate too, because a thread writes it, and traits are not safe for two writers.
"""

from __future__ import annotations

import functools

import anywidget
import traitlets

from devwidget.report.page.assets import join_modules, packed_plotly, static_text


class Channel(anywidget.AnyWidget):
    """A widget that draws nothing: it carries questions and answers, or its state to a page."""

    _esm = "export default { render() {} };"

    def __init__(self, **state: object) -> None:
        self.add_traits(**{name: traitlets.Any().tag(sync=True) for name in state})
        super().__init__(**state)


@functools.cache
def page_class(name: str, scripts: tuple[str, ...], styles: tuple[str, ...]) -> type[Channel]:
    """Return the class of a page that these files draw; pages of one name share their style."""
    return type(name, (Channel,), {"_esm": join_modules(*scripts), "_css": "".join(map(static_text, styles))})


def refer_to(widget: Channel) -> str:
    """Return the reference by which the page finds a widget."""
    return f"anywidget:{widget.model_id}"


_shared: list[Channel] = []


def shared_plotly() -> Channel:
    """Return the kernel's only plotly.js, sent once to each page that shows a panel; a new one if it was closed."""
    if not _shared or _shared[0].comm is None:
        _shared[:] = [Channel(code=packed_plotly())]
    return _shared[0]
