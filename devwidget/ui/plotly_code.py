"""One PlotlyCode widget for each kernel: figures share the plotly.js of the installed plotly wheel, without any network."""

from __future__ import annotations

import functools
import gzip

from devwidget.report.page.plotly_file import plotly_path
from devwidget.ui.bridge import PlotlyCode

_shared: list[PlotlyCode] = []


def shared_plotly() -> PlotlyCode:
    """The kernel's only PlotlyCode; a new one if somebody closed it."""
    if not _shared or _shared[0].comm is None:
        _shared[:] = [PlotlyCode(code=_packed())]
    return _shared[0]


@functools.cache
def _packed() -> bytes:
    return gzip.compress(plotly_path().read_bytes(), compresslevel=6)
