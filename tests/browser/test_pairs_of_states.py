"""From every state of the panel to every other: each tab then shows what a panel that was opened in that state shows.

Tabs that were drawn before, and are hidden while the state changes, are what can stay behind. States are those of real
panels over real steps on virtual GPUs; one page is led through all of them.
"""

import itertools
import json

import pytest
import torch
from playwright.sync_api import expect
from torch import nn

import devwidget
from devwidget.records.errors import BatchError
from devwidget.report.style.safe_text import text_of
from devwidget.ui.actions import TraceRequest
from devwidget.views.hops import group_hops
from devwidget.views.timeline import make_timeline
from tests.browser.esm import BarePage

TABS = ("Modules", "Findings", "Trace", "Devices", "Memory")
STATES = ("untraced", "clean", "out of memory", "a good batch after it", "fault", "fixed", "compared", "refused", "moved")
TRAITS = {
    "tree": ("table", "marks"),
    "panel": ("words", "head", "inputs", "gone", "memory", "traced", "devices", "compared", "printed", "status"),
}
"""What a state is made of, in the order in which Python sends it."""


class Masked(nn.Module):
    """Two devices; the mask is a plain attribute, which stays on the cpu, or a buffer."""

    def __init__(self, *, registered):
        super().__init__()
        self.up, self.head = nn.Linear(64, 64).to("cuda:0"), nn.Linear(64, 8).to("cuda:1")
        mask = torch.ones(64)
        self.register_buffer("mask", mask.to("cuda:0")) if registered else setattr(self, "mask", mask)

    def forward(self, x):
        hidden = self.up(x) * self.mask
        return self.head(hidden.to("cuda:1"))


def panels():
    """Real panels in these states, one after the other."""
    small, large = (torch.randn(rows, 64, device="cuda:0") for rows in (16, 60_000))
    broken, mended = Masked(registered=False), Masked(registered=True)
    panel = devwidget.show(mended, small)
    yield "untraced", panel
    panel.run_trace()
    yield "clean", panel
    full = devwidget.show(mended, large)
    full.run_trace()
    yield "out of memory", full
    full.show_trace(devwidget.trace(mended, small))
    yield "a good batch after it", full
    fault = devwidget.show(broken, small)
    fault.run_trace()
    yield "fault", fault
    fault.keep()
    with pytest.raises(BatchError):
        fault.run_trace(TraceRequest(batch="nothing_of_this_name"))
    yield "refused", fault
    broken.mask = broken.mask.to("cuda:0")
    fault.show_trace(devwidget.trace(broken, small))
    yield "compared", fault
    fixed = devwidget.show(broken, small)
    fixed.run_trace()
    yield "fixed", fixed
    broken.to("cuda:1")
    fixed.refresh()
    yield "moved", fixed


class Record:
    """What the page of a state must show."""

    def __init__(self, panel):
        self.panel, self.trace, self.snapshot = panel, panel.trace, panel.snapshot
        traits = {"panel": panel.view, "tree": panel.tree}
        self.state = {(model, name): getattr(traits[model], name) for model, names in TRAITS.items() for name in names}


@pytest.fixture(scope="module")
def records():
    with devwidget.simulate(2, memory="24MiB"):
        torch.manual_seed(0)
        kept = {name: Record(panel) for name, panel in panels()}
    assert set(kept) == set(STATES)
    assert "out of memory" in kept["out of memory"].trace.error.lower().replace("outofmemory", "out of memory")
    yield kept
    for record in kept.values():
        record.panel.close()


class Led:
    """One page that is led from state to state."""

    def __init__(self, browser, records):
        self.records, self.sent = records, {}
        self.bare = BarePage(browser, records["untraced"].snapshot, plotly=True)
        self.bare.page.add_script_tag(content=_DRAWN)
        self.fresh = {name: self._drawn_anew(name) for name in STATES}

    def go(self, name):
        """Send what differs, as a kernel does."""
        for (model, trait), value in self.records[name].state.items():
            if self.sent.get((model, trait)) != value:
                self.sent[model, trait] = value
                self.bare.update(model, trait, value)

    def anew(self):
        """Draw the panel from the beginning."""
        self.bare.page.evaluate("""async () => {
            window.stopA(); document.getElementById('a').replaceChildren(); window.models.control.set('ended', undefined);
            window.stopA = await window.show('a');
        }""")

    def check(self, name, tabs):
        """Each tab in turn must come to what a new panel shows."""
        for tab in tabs:
            self.open(tab)
            try:
                self.bare.page.wait_for_function(
                    "([tab, wanted]) => drawnOn(tab) === wanted", arg=[tab, self.fresh[name][tab]], timeout=4000
                )
            except Exception:
                assert self.drawn(tab).splitlines() == self.fresh[name][tab].splitlines(), (name, tab)

    def open(self, tab):
        self.bare.page.evaluate("(tab) => tabOf(tab).click()", tab)

    def drawn(self, tab):
        return self.bare.page.evaluate("drawnOn", tab)

    def _drawn_anew(self, name):
        self.go(name)
        self.anew()
        pictures = {}
        for tab in TABS:
            self.open(tab)
            self.bare.page.wait_for_function("allDrawn()")
            pictures[tab] = self.drawn(tab)
        return pictures


_DRAWN = r"""
const tabOf = (name) => [...document.querySelectorAll('#a .dw-tab')].find((tab) => tab.firstChild.textContent === name);
const figures = () => [...document.querySelectorAll('#a .dw-figure')].filter((figure) => figure.clientWidth);
const isPlotted = (figure) => figure.querySelector('.dw-plot')?.data && figure.querySelector('.main-svg');
const pictures = () => [...document.querySelectorAll('#a .dw-pictured')].filter((each) => each.clientWidth);
const allDrawn = () => figures().every((figure) => figure.querySelector('.dw-lanes *') || isPlotted(figure))
  && pictures().every((each) => each.querySelector('svg'));
const picture = (figure) => {
  const lanes = figure.querySelector('.dw-lanes');
  if (lanes) return [figure.className, lanes.outerHTML.replace(/dw-hatch-\d+/g, '')];
  const { data, layout } = figure.querySelector('.dw-plot');
  const { shapes, annotations, width, height } = layout ?? {};
  return [figure.className, data, shapes, annotations, width, height];
};
const words = (root) => {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const texts = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!parent.closest('.dw-plot, [hidden]') && node.data.trim()) texts.push(node.data.trim());
  }
  return texts;
};
const marks = (root) => [...root.querySelectorAll('[data-path], [data-kind], [data-cause], .dw-status, .dw-count')]
  .filter((each) => !each.closest('svg'))
  .map((each) => [each.dataset.path, each.dataset.kind, each.dataset.severity, each.dataset.cause, each.className]);
function drawnOn(tab) {
  const root = document.querySelector('#a .dw-panel');
  if (!allDrawn() || tabOf(tab).getAttribute('aria-selected') !== 'true') return 'not yet';
  return JSON.stringify([words(root), marks(root), figures().map(picture)], null, 1);
}
"""


@pytest.fixture(scope="module")
def led(browser, records):
    page = Led(browser, records)
    yield page
    page.bare.close()


def walk():
    """Every ordered pair of states once, each step beginning where the last one ended."""
    left, at = dict.fromkeys(itertools.permutations(STATES, 2)), STATES[0]
    while left:
        pair = next((pair for pair in left if pair[0] == at), None) or next(iter(left))
        left.pop(pair)
        yield pair
        at = pair[1]


def turned(tabs, by):
    """The tabs in another order, so that another one is open when the next state comes."""
    return [*tabs[by % len(tabs) :], *tabs[: by % len(tabs)]]


def test_what_is_drawn_for_each_state_is_what_the_record_says(led, records):
    page = led.bare.page
    for name, record in records.items():
        led.go(name)
        led.anew()
        trace = record.trace
        led.open("Findings")
        headlines = page.locator("#a .dw-found h4").all_text_contents()
        assert headlines == [text_of([each.headline]).strip().replace("`", "") for each in (trace.findings if trace else ())]
        assert page.locator("#a .dw-message").count() == bool(trace and trace.error)
        led.open("Trace")
        page.wait_for_function("allDrawn()")
        lanes = make_timeline(trace) if trace else None
        drawn = page.locator("#a .dw-timeline .dw-mark[data-at]").evaluate_all(
            "(marks) => marks.flatMap((mark) => mark.dataset.at.split(' ').filter(Boolean).map(Number))"
        )
        assert sorted(drawn) == [cross.at for cross in (lanes.crosses if lanes else ())], name
        assert page.locator("#a .dw-hop-row").count() == len(group_hops(trace.moves) if trace else ())
        led.open("Memory")
        refused = [curve for curve in (trace.memory if trace else ()) if curve.refused]
        assert page.locator("#a .dw-ended").count() == len(refused)
        compared = page.locator("#a .dw-compared").count()
        assert compared == (name == "compared")


@pytest.mark.parametrize("by", [0, *(pytest.param(by, marks=pytest.mark.slow) for by in (1, 2, 3, 4))])
def test_after_every_change_of_state_every_tab_shows_the_new_one(led, by):
    """`by`: which tab is open when the state changes."""
    order = turned(TABS, by)
    before = ""
    for one, other in walk():
        if one != before:
            led.go(one)
            led.check(one, order)
        led.go(other)
        led.check(other, order)
        before = other


@pytest.mark.parametrize("name", STATES)
def test_after_a_restart_the_last_state_stays_and_nothing_can_be_asked(led, name):
    led.go(name)
    led.anew()
    led.bare.page.evaluate("() => window.models.panel.fire('comm_live_update')")
    expect(led.bare.page.locator("#a .dw-banner")).to_contain_text("The kernel was restarted")
    asking = led.bare.page.locator("#a .dw-primary, #a .dw-try, #a .dw-apply-this, #a .dw-undo")
    assert [button.text_content() for button in asking.all() if button.is_enabled()] == []
    for tab in TABS:
        led.open(tab)
        led.bare.page.wait_for_function("allDrawn()")
        shown, before = led.drawn(tab), led.fresh[name][tab]
        assert figures_of(shown) == figures_of(before), tab
    led.anew()


def figures_of(drawn):
    return json.loads(drawn)[2]
