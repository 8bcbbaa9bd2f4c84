"""The panel as HTML: plain where no widget can run, and as one standalone interactive page that needs no network."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from devwidget.language.speaking import said, say
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import presents
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.figures.devices import draw_devices, picture_words
from devwidget.report.page.assets import (
    PANEL,
    PANEL_STYLES,
    join_modules,
    packed_plotly,
    page_words,
    static_text,
)
from devwidget.report.page.content import (
    devices_content,
    head_content,
    marks_content,
    memory_content,
    traced_content,
    tree_content,
)
from devwidget.report.page.draw_page import draw_body
from devwidget.report.page.templates import render
from devwidget.report.report_parts import GAP, Part, Sentence
from devwidget.report.style.safe_text import Markup, escape_html, join_html, text_of
from devwidget.report.text.draw_text import draw_lines
from devwidget.report.text.snapshot_text import snapshot_parts
from devwidget.report.text.trace_text import trace_parts
from devwidget.views.devices import make_picture
from devwidget.views.overlay import make_overlay
from devwidget.views.placement import tabulate_snapshot

GONE = Message("devwidget: the model was deleted before it was read")


def panel_parts(snapshot: Snapshot | None, trace: Trace | None) -> Iterator[Part]:
    """The report of a panel: where everything is, then the last trace."""
    if snapshot is None:
        yield Sentence(said(GONE))
        return
    yield from snapshot_parts(snapshot, trace)
    if trace is not None:
        yield GAP
        yield from trace_parts(trace)


def panel_text(snapshot: Snapshot | None, trace: Trace | None) -> str:
    """The report as text."""
    return text_of(draw_lines(panel_parts(snapshot, trace)))


def panel_html(snapshot: Snapshot | None, trace: Trace | None) -> Markup:
    """The picture of devices and the report, for viewers that keep no script and may drop the style."""
    report = draw_body(panel_parts(snapshot, trace))
    if snapshot is None:
        return report
    return join_html(_draw_image(snapshot, trace), report)


def _draw_image(snapshot: Snapshot, trace: Trace | None) -> Markup:
    """The picture of devices as an image, and its words: viewers that drop `<svg>` would keep its texts in a heap."""
    picture = make_picture(snapshot, tabulate_snapshot(snapshot), trace)
    if not picture.columns:
        return Markup()
    source = "data:image/svg+xml," + quote(draw_devices(picture), safe=" '/:=;,()!*")
    return Markup(f'<p><img src="{escape_html(source)}" alt="{escape_html(picture_words(picture))}"></p>')


def as_saved(html: str, *, is_panel: bool = True) -> str:
    """For when the notebook is opened again and no kernel knows the panel, or the card."""
    note = ""
    if is_panel:
        note = say(
            "The panel as it was saved. Run the cell to get the live panel. "
            "If this text remains, choose Trust Notebook in the command palette."
        )
    return render("saved.html", note=note, html=Markup(html))


_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
_START = """
const modelOf = (state) => ({ get: (name) => state[name], on() {}, off() {} });
globalThis[Symbol.for("devwidget.plotly")] = Promise.resolve(globalThis.moduleName);
const host = { getModel: async () => modelOf({}) };
shown.render({ model: modelOf(facts), el: document.getElementById("panel"), host });
"""
_UNPACK = """
(async () => {
  for (const packed of document.querySelectorAll("script[type='application/gzip']")) {
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const script = document.createElement("script");
    script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    packed.replaceWith(script);
  }
})();
"""


def panel_page(snapshot: Snapshot, trace: Trace | None) -> str:
    """The panel as one file of about 600 kB, most of it plotly.js; a reader without scripts sees text."""
    title, plain = "trace", trace_parts(trace or Trace())
    if snapshot.modules:
        title, plain = snapshot.modules[0].class_name, panel_parts(snapshot, trace)
    facts = page_facts(snapshot, trace)
    if trace is not None:
        facts["status"] = {"kind": "error" if trace.error else "done", "text": facts["traced"]["summary"]}
    return standalone_page(title, draw_body(plain), PANEL, PANEL_STYLES, facts, packed_plotly())


presents("html", Snapshot)(lambda snapshot: panel_page(snapshot, None))
presents("html", Trace)(lambda trace: panel_page(Snapshot(()), trace))  # without the module tree, which is not in it


def standalone_page(
    title: str, plain: str, scripts: Iterable[str], styles: Iterable[str], facts: dict[str, Any], *before: bytes
) -> str:
    """One file for a widget that its scripts draw; a reader without scripts sees `plain`.

    Args:
        facts: its state; with its scripts it is packed to a quarter of its size, as what they need `before` them is.
    """
    style = {"textContent": "\n".join(map(static_text, styles))}
    script = (
        f'document.head.append(Object.assign(document.createElement("style"), {json.dumps(style)}));',
        as_value("shown", join_modules(*scripts)),
        f"const facts = {json.dumps(facts)};",
        _START,
    )
    packed = [*before, gzip.compress("\n".join(script).encode(), mtime=0)]
    return render(
        "standalone.html",
        policy=_POLICY,
        title=title,
        style=Markup(static_text("page.css")),
        plain=plain,
        scripts=[base64.b64encode(each).decode("ascii") for each in packed],
        unpack=Markup(_UNPACK),
    )


def page_facts(snapshot: Snapshot, trace: Trace | None) -> dict[str, Any]:
    """The state of the panel, as a page without a kernel needs it."""
    table = tabulate_snapshot(snapshot)
    marks = make_overlay(table, trace)
    return {
        "words": page_words(*PANEL),
        "plotly": "plotly",
        "table": tree_content(snapshot, table, most=20_000),
        "marks": marks_content(table, marks),
        "head": head_content(snapshot, table),
        "memory": memory_content(snapshot.memory, trace),
        "traced": traced_content(trace, table, marks),
        "devices": devices_content(snapshot, table, trace),
    }


def as_value(name: str, module: str) -> str:
    """An ES module's default export as a constant, so that a file needs no second file to import."""
    body, export, value = module.rpartition("export default ")
    if export:
        return f"const {name} = (() => {{\n{body}\nreturn {value}\n}})();"
    return module
