"""Static files as text: small ES modules joined into one, because a widget carries exactly one module."""

from __future__ import annotations

import functools
import json
import re
from importlib import resources

from devwidget.report.style.palette import page_hues

TREE = ("dom.js", "rows.js", "filter.js", "detail.js", "tree.js", "tree_widget.js")
PANEL = (
    "dom.js", "figure.js", "header.js", "findings.js", "tables.js", "memory.js", "parallel.js", "tabs.js", "panel_widget.js",
)  # fmt: skip
RANKS = ("dom.js", "tables.js", "findings.js", "ranks_filter.js", "ranks_map.js", "ranks_table.js", "ranks_widget.js")
RANKS_STYLES = ("base.css", "panel.css", "ranks.css")

SLIDERS = ("dom.js", "sliders.js")

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./[\w.]+";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|const|class) )", re.MULTILINE)


@functools.cache
def joined(*names: str) -> str:
    """The files in this order as one ES module, after the colours that `dom.js` paints with.

    Imports between them are dropped, so top-level names must differ.

    Files stay text, never paths: a path would make anywidget watch it, and the watcher keeps every widget alive.
    """
    hues = [f"const HUES = {json.dumps(page_hues())};"] if "dom.js" in names else []
    return "\n".join([*hues, *(_lean(_EXPORT.sub("", _IMPORT.sub("", static_text(name)))) for name in names)])


def _lean(source: str) -> str:
    """Without indentation and comment lines: the page needs neither, and every panel carries the text."""
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/** @")))


@functools.cache
def static_text(name: str) -> str:
    """One file of `ui/static`."""
    return resources.files("devwidget").joinpath("ui", "static", name).read_text(encoding="utf-8")
