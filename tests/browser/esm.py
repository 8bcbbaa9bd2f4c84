"""The panel's ES modules in a bare page: `live_host.js` stands in for Jupyter."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from devwidget.panel.sections import section_scripts
from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.records.trace import Fault, ModuleEvent, Move, OpEvent, Trace
from devwidget.report.page.assets import PANEL_STYLES, add_to_panel, join_modules, packed_plotly, static_text
from devwidget.report.page.html import as_value, page_facts
from tests.browser.chromium import Watched
from tests.views.builders import CPU, GPU0, GPU1, tensor

LIVE_HOST = Path(__file__).with_name("live_host.js").read_text(encoding="utf-8")
_START = """
const host = pageHost({
  panel: { state: facts, definition: panel }, control: { state: {} }, live: { state: {} }, plotly: { state: {} }, ...others,
});
if (window.moduleName) globalThis[Symbol.for("devwidget.plotly")] = Promise.resolve(window.moduleName);
window.models = host.models;
window.show = async (place) => (await host.getWidget("panel")).render({ el: document.getElementById(place) });
host.models.control.onsend = (message) => {
  const answer = window.answers?.[message.ask];
  if (answer) setTimeout(() => host.models.control.fire("msg:custom", { to: message.id, ask: message.ask, ...answer }), 0);
};
"""


@dataclass
class OtherWidget:
    """A widget of an extra that the panel shows: its state, scripts and styles."""

    scripts: tuple[str, ...]
    styles: tuple[str, ...] = ()
    state: dict[str, Any] = field(default_factory=dict)


class BarePage:
    """A page with a panel in it, and a control model that answers from `answers`; plotly.js only if asked for.

    `state` is added to that of the panel; `others` are widgets that it may name.
    """

    def __init__(
        self,
        browser: Browser,
        snapshot: Snapshot,
        trace: Trace | None = None,
        *,
        plotly: bool = False,
        state: Mapping[str, Any] | None = None,
        others: Mapping[str, OtherWidget] | None = None,
        **options: Any,
    ) -> None:
        self.watched = Watched(browser, **{"viewport": {"width": 1200, "height": 900}} | options)
        self.page = self.watched.page
        facts = page_facts(snapshot, trace)
        facts |= {
            "control": "control",
            "live": "live",
            "plotly": "plotly" if plotly else "",
            "inputs": {"batch": "", "names": ["batch", "images"]},
        }
        facts |= state or {}
        others = others or {}
        styles = dict.fromkeys(("page.css", *PANEL_STYLES, *(name for each in others.values() for name in each.styles)))
        style = "\n".join(map(static_text, styles))
        scripts = [
            LIVE_HOST,
            as_value("panel", join_modules(*add_to_panel(section_scripts()))),
            *(as_value(name, join_modules(*each.scripts)) for name, each in others.items()),
            f"const facts = {json.dumps(facts)};",
            f"const others = {{ {', '.join(map(_declare, others, others.values()))} }};",
        ]
        text = "\n".join([*scripts, _START])
        self.page.set_content(f"<style>{style}</style><main id=a></main><main id=b></main>")
        if plotly:
            self.page.add_script_tag(content=gzip.decompress(packed_plotly()).decode())
        self.page.add_script_tag(content=text)
        self.page.evaluate("async () => { window.stopA = await window.show('a') }")

    def update(self, model: str, name: str, value: Any) -> None:
        """What a trait change from Python does."""
        text = json.dumps(value)
        self.page.evaluate("([model, name, text]) => window.models[model].set(name, JSON.parse(text))", [model, name, text])

    def answer(self, ask: str, reply: dict[str, Any]) -> None:
        """What Python will say to the next questions of this kind."""
        self.page.evaluate("([ask, reply]) => { (window.answers ??= {})[ask] = reply }", [ask, reply])

    def sent(self, ask: str) -> list[dict[str, Any]]:
        """Questions of this kind so far."""
        messages: list[dict[str, Any]] = self.page.evaluate("() => window.models.control.sent")
        return [message for message in messages if message["ask"] == ask]

    def paths(self) -> list[str]:
        """Paths of the painted rows from top to bottom."""
        rows = self.page.locator(".dw-body [data-row]").evaluate_all("(rows) => rows.map((row) => row.dataset.path)")
        return list(rows)

    def close(self) -> None:
        self.watched.close()


def _declare(name: str, other: OtherWidget) -> str:
    return f"{name}: {{ state: {json.dumps(other.state)}, definition: {name} }}"


def large(count: int) -> Snapshot:
    """A model of `count` modules in blocks of ten, one tensor in each leaf."""
    modules = [ModuleFacts("", "Net", -1, 0)]
    for block in range(count // 10):
        parent = len(modules)
        modules.append(ModuleFacts(f"block{block}", "Block", 0, 1))
        weight = tensor("weight", (4,), GPU0, storage=block + 1)
        modules += [ModuleFacts(f"block{block}.layer{n}", "Linear", parent, 2, (weight,)) for n in range(9)]
    return Snapshot(tuple(modules[:count]))


def large_step(modules: int, events: int) -> Trace:
    """A step of `large(modules)` with so many operators on two GPUs, a hop to each block, and a fault in each hundredth."""
    snapshot = large(modules)
    apart = events // modules
    ran, ops, moves, faults = [], [], [], []
    for at, module in enumerate(snapshot.modules):
        block = (at - 1) // 10
        lane, number = (GPU0, GPU1)[block * 20 // modules % 2], at * (apart + 2)
        length = 10 * (apart + 2) - 1 if module.depth == 1 else apart + 1
        stop = number + length if module.path else modules * (apart + 2)
        ran.append(ModuleEvent(module.path, module.class_name, (lane,), (lane,), 1, 0.0, number=number, stopped=stop))
        ops += [OpEvent("addmm", module.path, "forward", None, (lane,), lane, 1, number + 1 + n) for n in range(apart)]
        if module.depth == 1:
            crossing = Move(CPU, lane, 4096 * (1 + block % 9), (8, 8), "float32", module.path, "forward", None, "explicit")
            moves.append(replace(crossing, number=number))
        if module.depth == 1 and block % 100 == 0:
            faults.append(Fault(number + 2, "operands", "add", module.path, "forward", None, "x", target=lane))
    return Trace(modules=tuple(ran), ops=tuple(ops), moves=tuple(moves), faults=tuple(faults))
