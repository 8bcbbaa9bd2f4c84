"""Where the installed plotly wheel keeps plotly.js."""

from __future__ import annotations

import importlib.util
import pathlib

from devwidget.language.speaking import say


def plotly_path() -> pathlib.Path:
    """The minified bundle; found without importing plotly, which would take a second."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise FileNotFoundError(say("plotly is not installed: pip install plotly"))
    return pathlib.Path(found.origin).parent / "package_data" / "plotly.min.js"
