"""One standalone HTML page: the panel as it was, offline, interactive, without anything from the network."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from devwidget.language.speaking import language
from devwidget.records.schema.record import presents
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.assets import PANEL, TREE, joined, page_words, static_text
from devwidget.report.page.content import (
    head_content,
    marks_content,
    memory_content,
    traced_content,
    tree_content,
)
from devwidget.report.page.panel_text import panel_html
from devwidget.report.page.plotly_file import plotly_path
from devwidget.report.style.safe_text import element, script_json
from devwidget.report.text.trace_text import trace_text
from devwidget.views.overlay import overlay
from devwidget.views.placement import place

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
_START = """
const page = pageHost({
  panel: { state: facts.panel, definition: panel }, tree: { state: facts.tree, definition: tree }, plotly: { state: {} },
});
globalThis[Symbol.for("devwidget.plotly")] = Promise.resolve(globalThis.Plotly);
page.getWidget("panel").then((widget) => widget.render({ el: document.getElementById("panel") }));
"""


@presents("html", Snapshot)
def snapshot_page(snapshot: Snapshot) -> str:
    """The page of a snapshot without a trace."""
    return panel_page(snapshot, None)


@presents("html", Trace)
def trace_page(trace: Trace) -> str:
    """The page of a trace; the module tree is not in it, so it has the other tabs only."""
    return panel_page(Snapshot(()), trace)


def panel_page(snapshot: Snapshot, trace: Trace | None) -> str:
    """The whole panel as one file of about 5 MB, nearly all of it plotly.js; a reader without scripts sees text."""
    title = snapshot.modules[0].class_name if snapshot.modules else "trace"
    plain = panel_html(snapshot, trace) if snapshot.modules else element("pre", trace_text(trace or Trace()))
    script = "\n".join(
        [
            joined("shim.js"),
            as_value("tree", joined(*TREE)),
            as_value("panel", joined(*PANEL)),
            f"const facts = {script_json(page_facts(snapshot, trace), as_text)};",
            _START,
        ]
    )
    plotly = plotly_path().read_text(encoding="utf-8")
    scripts = (plotly, "globalThis.Plotly ??= globalThis.moduleName;", script)
    return standalone(title, plain, ("base.css", "tree.css", "panel.css"), scripts)


def standalone(title: str, plain: str, styles: Iterable[str], scripts: Iterable[str]) -> str:
    """One file for a widget that draws itself into `#panel`; a reader without scripts sees `plain`."""
    style = "\n".join(static_text(name) for name in ("page.css", *styles))
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="{language()}"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{element('title', f'{title} – devwidget')}<style>{style}</style></head>"
        f'<body><main id="panel"></main><noscript>{plain}</noscript>'
        f"{''.join(f'<script>{_safe(script)}</script>' for script in scripts)}</body></html>\n"
    )


def page_facts(snapshot: Snapshot, trace: Trace | None) -> dict[str, Any]:
    """The state of the widgets, as a page without a kernel needs it."""
    table = place(snapshot)
    marks = overlay(table, trace)
    packed, marked = tree_content(snapshot, table, most=20_000), marks_content(table, marks)
    tree = {"words": page_words(*TREE), "table": packed, "marks": marked}
    panel = {
        "words": page_words(*PANEL),
        "tree": "tree",
        "plotly": "plotly",
        "head": head_content(snapshot, table),
        "memory": memory_content(snapshot.memory, trace),
        "traced": traced_content(trace, table, marks),
    }
    return {"tree": tree, "panel": panel}


def as_value(name: str, module: str) -> str:
    """An ES module's default export as a constant, so that a file needs no second file to import."""
    body, export, value = module.rpartition("export default ")
    return f"const {name} = (() => {{\n{body}\nreturn {value}\n}})();" if export else module


def as_text(value: bytes) -> dict[str, str]:
    """Bytes for JSON, as `shim.js` reads them back."""
    return {"__bytes__": base64.b64encode(value).decode("ascii")}


def _safe(script: str) -> str:
    """A script of ours or of plotly, in whose texts nothing may end it or begin a comment."""
    return script.replace("</", "<\\/").replace("<!--", "<\\!--")
