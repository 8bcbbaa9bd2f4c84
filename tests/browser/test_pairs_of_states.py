"""From every state of the panel to every other: each tab then shows what a panel that was opened in that state shows.

Tabs that were drawn before, and are hidden while the state changes, are what can stay behind. One page is led
through all of them.
"""

import itertools
from dataclasses import replace

import pytest

from devwidget.panel.actions import TraceRequest
from devwidget.records.errors import BatchError
from tests.browser.esm import BarePage
from tests.browser.handmade_panel import open_panel
from tests.browser.test_esm_panel import FAILED, FULL
from tests.views.builders import CPU, one_step, split_model

pytestmark = pytest.mark.slow
TABS = ("Modules", "Findings", "Trace", "Devices", "Memory")
STATES = ("untraced", "clean", "out of memory", "a good batch after it", "fault", "failed", "compared", "refused", "moved")
TRAITS = (
    *("table", "marks", "words", "head", "inputs", "gone", "memory"),
    *("traced", "devices", "compared", "printed", "status"),
)
"""What a state is made of, in the order in which Python sends it."""


CLEAN = replace(one_step(), findings=(), moves=(), faults=())
ENDED = replace(one_step(), error=FAILED.error, failure=FAILED.failure)


def panels():
    """Panels in these states, with what takes them there: traces, one after the other."""
    for name, traces in {
        "untraced": (), "clean": (CLEAN,), "out of memory": (FULL,), "a good batch after it": (FULL, CLEAN),
        "fault": (one_step(),), "failed": (ENDED,), "compared": (one_step(), CLEAN),
        "refused": (one_step(),), "moved": (one_step(),),
    }.items():  # fmt: skip
        panel, fake = open_panel()
        for trace in traces:
            if name == "compared" and panel.trace:
                panel.keep()
            panel.show_trace(trace)
        if name == "refused":
            with pytest.raises(BatchError):
                panel.run_trace(TraceRequest(batch="missing"))
        if name == "moved":
            fake.record = replace(fake.record, modules=tuple(map(on_cpu, fake.record.modules)))
            panel.refresh()
        yield name, panel


def on_cpu(module):
    return replace(module, tensors=tuple(replace(each, device=CPU) for each in module.tensors))


@pytest.fixture(scope="module")
def records():
    found = {}
    for name, panel in panels():
        found[name] = {trait: getattr(panel.view, trait) for trait in TRAITS}
        panel.close()
    assert set(found) == set(STATES)
    return found


class Led:
    """One page that is led from state to state."""

    def __init__(self, browser, records):
        self.records, self.sent = records, {}
        self.bare = BarePage(browser, split_model(), plotly=True)
        self.bare.page.add_script_tag(content=_DRAWN)
        self.fresh = {name: self._drawn_anew(name) for name in STATES}

    def go(self, name):
        """Send what differs, as a kernel does."""
        for trait, value in self.records[name].items():
            if self.sent.get(trait) != value:
                self.sent[trait] = value
                self.bare.update("panel", trait, value)

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
            self.bare.page.evaluate("framePassed()")
            self.bare.page.wait_for_function("allDrawn()")
            pictures[tab] = self.drawn(tab)
        return pictures


_DRAWN = r"""
const tabOf = (name) => [...document.querySelectorAll('#a .dw-tab')].find((tab) => tab.firstChild.textContent === name);
const figures = () => [...document.querySelectorAll('#a .dw-figure')].filter((figure) => figure.clientWidth);
const isPlotted = (figure) => figure.querySelector('.dw-plot')?.data && figure.querySelector('.main-svg');
const pictures = () => [...document.querySelectorAll('#a .dw-pictured')].filter((each) => each.clientWidth);
// A page that was hidden fits its pictures to their room before the next frame is painted.
const framePassed = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
const allDrawn = () => figures().every(isPlotted)
  && pictures().every((each) => each.querySelector('svg'));
const picture = (figure) => {
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


def test_after_every_change_of_state_every_tab_shows_the_new_one(led):
    """Which tab is open when the state changes is another one each time."""
    before = ""
    for number, (one, other) in enumerate(walk()):
        order = turned(TABS, number)
        if one != before:
            led.go(one)
            led.check(one, order)
        led.go(other)
        led.check(other, order)
        before = other
