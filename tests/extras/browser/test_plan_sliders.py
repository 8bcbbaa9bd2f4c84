"""The live page of a plan, over real plans: where a slider stands a plan is shown, axe is silent, keys suffice."""

import json
import re

import pytest
from playwright.sync_api import expect

import devwidget
from devwidget.extras.plan.screen.plan_panel import PLAN, PLAN_STYLES, PlanWidget
from devwidget.report.page.assets import join_modules, static_text
from devwidget.report.page.html import as_value
from tests.browser.chromium import Watched
from tests.browser.esm import LIVE_HOST
from tests.extras.browser.plans import check_widths_and_schemes, make_plan, plan_asked

START = """
const host = pageHost({ plan: { state: facts, definition: plan }, control: { state: {} } });
window.models = host.models;
host.models.control.onsend = async (message) => {
  window.asked = (window.asked ?? 0) + 1;
  const { traits, answer } = JSON.parse(await window.askPython(JSON.stringify(message)));
  for (const [name, value] of Object.entries(traits)) host.models.plan.set(name, value);
  host.models.control.fire("msg:custom", answer);
};
host.getWidget("plan").then((widget) => widget.render({ el: document.getElementById("a") }));
"""
TRAITS = "words", "form", "page", "status"


class LivePage:
    """A page whose questions a real widget answers, before the next line of the test."""

    def __init__(self, browser, plan, width=1280, scheme="light"):
        self.plan = plan
        self.widget = PlanWidget(plan)
        self.widget.jobs._loop = None  # playwright's, which runs while a test waits
        self.watched = Watched(browser, viewport={"width": width, "height": 1000}, color_scheme=scheme)
        self.page = self.watched.page
        style = "".join(f"<style>{static_text(name)}</style>" for name in ("page.css", *PLAN_STYLES))
        self.page.set_content(f"<html lang=en><body>{style}<main id=a></main></body></html>")
        self.page.expose_function("askPython", self.answer)
        facts = {**self.traits(), "control": "control"}
        scripts = LIVE_HOST, as_value("plan", join_modules(*PLAN)), f"const facts = {json.dumps(facts)};"
        self.page.add_script_tag(content="\n".join((*scripts, START)))
        expect(self.page.locator(".dw-tabs")).to_be_visible()

    def traits(self):
        return {name: getattr(self.widget.view, name) for name in TRAITS}

    def answer(self, message):
        answers, before = [], self.traits()
        self.widget.control.send = answers.append
        self.widget.control._handle_custom_msg(json.loads(message), [])
        changed = {name: value for name, value in self.traits().items() if value != before[name]}
        return json.dumps({"traits": changed, "answer": answers[-1]})

    def asked(self):
        return self.page.evaluate("window.asked ?? 0")

    def slide(self, name, to, *, end=True):
        """Lead a slider to where it says something, as keys do; with `end` it stays there."""
        script = """async (input, [to, end]) => {
          for (let at = 0; at <= Number(input.max); at++) {
            input.value = String(at);
            input.dispatchEvent(new Event("input"));
            await new Promise((drawn) => setTimeout(drawn));
            if (input.getAttribute("aria-valuetext") === to) break;
          }
          if (input.getAttribute("aria-valuetext") !== to) throw new Error(`no stop is ${to}`);
          if (end) input.dispatchEvent(new Event("change", { bubbles: true }));
        }"""
        self.page.get_by_role("slider", name=name).evaluate(script, [to, end])

    def said(self):
        return self.page.locator(".dw-verdict").inner_text()

    def ask(self, name):
        self.page.get_by_role("button", name=name).first.click()

    def close(self):
        self.widget.close()
        self.watched.close()


@pytest.fixture
def live(browser):
    opened = []

    def open_live(plan, *more):
        opened.append(LivePage(browser, plan, *more))
        return opened[-1]

    yield open_live
    for each in opened:
        each.close()


@pytest.mark.slow
def test_nothing_sticks_out_and_axe_is_silent(live):
    live_page = live(plan_asked())
    page = live_page.page
    for at, tab in enumerate(page.get_by_role("tab").all()):
        tab.click()
        check_widths_and_schemes(page, f"live-asked-{at}")
    page.get_by_role("tab").first.click()
    live_page.slide("batch", "20", end=False)
    check_widths_and_schemes(page, "live-moving")
    for kind, text in (("busy", "planning: 3 plans run"), ("refused", "error: the forward fails " + "x " * 90)):
        page.evaluate("(status) => window.models.plan.set('status', status)", {"kind": kind, "text": text})
        check_widths_and_schemes(page, f"live-{kind}")


@pytest.mark.slow
def test_what_was_not_asked_yet_can_be_asked_on_its_tab(live):
    page = live(make_plan(2, card=None, memory="6GiB")).page
    tabs = page.get_by_role("tab").all()
    names = [tab.inner_text() for tab in tabs]
    assert names == ["Step", "Changes", "Batch × length", "Cards", "How sure"]
    for at, tab in enumerate(tabs):
        tab.click()
        check_widths_and_schemes(page, f"live-fresh-{at}")


@pytest.mark.slow
def test_a_slider_that_moves_asks_nobody_and_what_is_shown_is_faint(live):
    page = live(plan_asked())
    before = page.said()
    page.slide("batch", "20", end=False)
    expect(page.page.locator(".dw-plan")).to_have_class(re.compile("dw-other"))
    assert page.asked() == 0
    assert page.said() == before


def test_where_a_slider_stands_a_plan_is_run_and_shown_and_known_from_then_on(live):
    page = live(make_plan(2))
    assert "Fits T4" in page.said()
    page.slide("batch", "40")
    expect(page.page.locator(".dw-facts")).to_contain_text("batch 40 × length 512")
    assert "Needs" in page.said()
    exact = make_plan(40).tightest.on_card / (1 << 30)
    assert f"{exact:.1f} GiB" in page.said()
    assert page.widget.setting in devwidget.extras.plan.records.plan.questions_of(page.plan).tried
    page.slide("batch", "2")
    expect(page.page.locator(".dw-facts")).to_contain_text("batch 2 × length 512")
    assert "Fits T4" in page.said()


@pytest.mark.slow
def test_a_card_has_its_own_memory_and_without_one_memory_slides(live):
    page = live(make_plan(2, card=None, memory="6GiB"))
    expect(page.page.get_by_role("slider", name="memory")).to_be_visible()
    page.slide("memory", "3.00 GiB")
    expect(page.page.locator(".dw-verdict")).to_contain_text("of 3.00 GiB")
    page.page.get_by_role("combobox", name="card").select_option("A100-40GB")
    expect(page.page.locator(".dw-facts")).to_contain_text("A100-40GB")
    expect(page.page.get_by_role("slider", name="memory")).to_be_hidden()


@pytest.mark.slow
def test_keys_alone_move_ask_and_read(live):
    page = live(make_plan(2))
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("ArrowRight")
    expect(page.page.locator(".dw-facts")).to_contain_text("batch 3 ×")
    assert page.page.evaluate("document.activeElement.getAttribute('aria-label')") == "batch"
    for _ in range(3):
        page.page.keyboard.press("Tab")
    assert page.page.evaluate("document.activeElement.textContent") == "Find the largest batch"
    page.page.keyboard.press("Enter")
    expect(page.page.locator(".dw-tried")).to_contain_text("the largest batch that fits by more than the error margin")
