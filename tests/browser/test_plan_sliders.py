"""The live page of a plan, over real plans: sliders answer at once, new plans come beside them, axe is silent, keys suffice."""

import functools
import json
import os

import pytest
import torch
from PIL import Image
from playwright.sync_api import expect

import devwidget
from devwidget.report.page.assets import PLAN, PLAN_STYLES, join_modules, static_text
from devwidget.report.page.html import as_value
from devwidget.ui.plan_panel import PlanWidget
from tests.browser.axe import violations
from tests.browser.chromium import Watched
from tests.browser.test_plan_page import OVER

transformers = pytest.importorskip("transformers")
START = """
const host = pageHost({ plan: { state: facts, definition: plan }, control: { state: {} } });
window.models = host.models;
host.models.control.onsend = async (message) => {
  window.asked = (window.asked ?? 0) + 1;
  const { traits, answer } = JSON.parse(await window.askPython(JSON.stringify(message)));
  for (const [name, value] of Object.entries(traits)) host.models.plan.update(name, value);
  host.models.control.fire("msg:custom", answer);
};
host.getWidget("plan").then((widget) => widget.render({ el: document.getElementById("a") }));
"""
TRAITS = "words", "form", "page", "status"


def make_model():
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 3, "num_attention_heads": 16}
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32000, **sizes))


def ids(batch, length=512):
    tokens = torch.ones(batch, length, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens}


def make_plan(batch=8, **asked):
    return devwidget.plan(make_model(), ids(batch), **{"card": "T4", "optimizer": torch.optim.AdamW, **asked})


class LivePage:
    """A page whose questions a real widget answers, before the next line of the test."""

    def __init__(self, browser, plan, width=1280, scheme="light"):
        self.plan = plan
        self.widget = PlanWidget(plan)
        self.widget.jobs._jobs._loop = None  # playwright's, which runs while a test waits
        self.watched = Watched(browser, viewport={"width": width, "height": 1000}, color_scheme=scheme)
        self.page = self.watched.page
        style = "".join(f"<style>{static_text(name)}</style>" for name in ("page.css", *PLAN_STYLES))
        self.page.set_content(f"<html lang=en><body>{style}<main id=a></main></body></html>")
        self.page.expose_function("askPython", self.answer)
        facts = {**self.traits(), "control": "control"}
        scripts = join_modules("shim.js"), as_value("plan", join_modules(*PLAN)), f"const facts = {json.dumps(facts)};"
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
        script = """(input, [to, end]) => {
          for (let at = 0; at <= Number(input.max); at++) {
            input.value = String(at);
            input.dispatchEvent(new Event("input"));
            if (input.getAttribute("aria-valuetext") === to) break;
          }
          if (input.getAttribute("aria-valuetext") !== to) throw new Error(`no stop is ${to}`);
          if (end) input.dispatchEvent(new Event("change"));
        }"""
        self.page.get_by_role("slider", name=name).evaluate(script, [to, end])

    def said(self):
        return self.page.locator(".dw-verdict").inner_text()

    def ask(self, name):
        self.page.get_by_role("button", name=name).first.click()

    def check(self, shot):
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), shot
        assert self.page.evaluate(OVER) == [], shot
        assert violations(self.page) == [], shot
        if folder := os.environ.get("SHOTS"):
            self.page.screenshot(path=f"{folder}/live-{shot}.png", full_page=True)

    def close(self):
        self.widget.close()
        self.watched.close()


@functools.cache
def plan_asked():
    """A plan of which everything was asked, and one other size was run."""
    plan = make_plan(32)
    plan.cheapest_change()
    plan.largest_batch()
    plan.on_cards("T4", "RTX 4090", "A100-80GB", also=("LoRA", "inference"))
    plan.sliders().close()
    return plan


@pytest.fixture
def live(browser):
    opened = []

    def open_live(plan, *more):
        opened.append(LivePage(browser, plan, *more))
        return opened[-1]

    yield open_live
    for each in opened:
        each.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [700, 910, 1280, 1600])
def test_nothing_sticks_out_and_axe_is_silent(live, width, scheme):
    name = f"{scheme}-{width}"
    page = live(plan_asked(), width, scheme)
    for at, tab in enumerate(page.page.get_by_role("radio").all()):
        tab.check()
        page.check(f"asked-{at}-{name}")
    page.page.get_by_role("radio").first.check()
    page.slide("batch", "20", end=False)
    page.check(f"estimated-{name}")
    page.slide("batch", "32", end=False)
    page.page.evaluate("window.models.plan.update('status', { kind: 'busy', text: 'planning: 3 plans run' })")
    page.check(f"busy-{name}")
    page.page.evaluate(
        "window.models.plan.update('status', { kind: 'refused', text: 'error: the forward fails ' + 'x '.repeat(90) })"
    )
    page.check(f"refused-{name}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [700, 910, 1280, 1600])
def test_what_was_not_asked_yet_can_be_asked_on_its_tab(live, width, scheme):
    page = live(make_plan(2, card=None, memory="6GiB"), width, scheme)
    names = [tab.locator("..").inner_text() for tab in page.page.get_by_role("radio").all()]
    assert names == ["Step", "Changes", "Batch × length", "Cards", "How sure"]
    for at, tab in enumerate(page.page.get_by_role("radio").all()):
        tab.check()
        page.check(f"fresh-{at}-{scheme}-{width}")


def test_a_slider_answers_before_anybody_is_asked_and_as_plans_say(live):
    page = live(plan_asked())
    page.slide("batch", "20", end=False)
    assert page.asked() == 0
    words = page.said()
    about = float(words.split("About ")[1].split()[0])
    assert about == pytest.approx(make_plan(20).tightest.on_card / (1 << 30), rel=0.01)
    assert "estimated between plans that were run" in words
    page.slide("batch", "64", end=False)
    assert "this size was planned" in page.said()
    assert "does not fit" in page.said()
    assert page.asked() == 0


def test_an_answer_at_once_takes_less_than_a_tenth_of_a_second(live):
    page = live(plan_asked())
    took = page.page.get_by_role("slider", name="batch").evaluate("""(input) => {
      const begun = performance.now();
      for (let at = 0; at <= Number(input.max); at++) {
        input.value = String(at);
        input.dispatchEvent(new Event("input"));
      }
      return (performance.now() - begun) / (Number(input.max) + 1);
    }""")
    print(f"{took:.2f} ms for each answer")
    assert took < 100


def test_where_a_slider_stands_a_plan_is_run_and_shown_and_known_from_then_on(live):
    page = live(make_plan(2))
    assert "Fits T4" in page.said()
    page.slide("batch", "40")
    expect(page.page.locator(".dw-facts")).to_contain_text("batch 40 × length 512")
    assert "Needs" in page.said()
    exact = make_plan(40).tightest.on_card / (1 << 30)
    assert f"{exact:.1f} GiB" in page.said()
    assert page.widget.setting in devwidget.records.plan.questions_of(page.plan).tried
    page.slide("batch", "2")
    expect(page.page.locator(".dw-facts")).to_contain_text("batch 2 × length 512")
    assert "Fits T4" in page.said()


def test_a_question_of_the_page_is_about_the_size_that_is_shown(live):
    page = live(make_plan(2))
    page.slide("batch", "40")
    expect(page.page.locator(".dw-facts")).to_contain_text("batch 40")
    page.ask("Plan changes")
    expect(page.page.locator(".dw-verdict .dw-action")).to_be_visible()
    ask = page.page.get_by_role("radio", name="Changes")
    ask.check()
    without = make_plan(40).tightest.on_card / (1 << 30)
    expect(page.page.locator(".dw-page-1 h4")).to_contain_text(f"{without:.1f} GiB without a change")


def test_a_card_has_its_own_memory_and_without_one_memory_slides(live):
    page = live(make_plan(2, card=None, memory="6GiB"))
    expect(page.page.get_by_role("slider", name="memory")).to_be_visible()
    page.slide("memory", "3.00 GiB", end=False)
    assert "this size was planned" in page.said()
    page.page.get_by_role("combobox", name="card").select_option("A100-40GB")
    expect(page.page.locator(".dw-facts")).to_contain_text("A100-40GB")
    expect(page.page.get_by_role("slider", name="memory")).to_be_hidden()


def test_keys_alone_move_ask_and_read(live):
    page = live(make_plan(2))
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Tab")  # past the picture to share
    page.page.keyboard.press("ArrowRight")
    expect(page.page.locator(".dw-facts")).to_contain_text("batch 3 ×")
    assert page.page.evaluate("document.activeElement.getAttribute('aria-label')") == "batch"
    for _ in range(3):
        page.page.keyboard.press("Tab")
    assert page.page.evaluate("document.activeElement.textContent") == "Find the largest batch"
    page.page.keyboard.press("Enter")
    expect(page.page.locator(".dw-tried")).to_contain_text("the largest batch that fits by more than plans were off")


def test_a_size_that_cannot_be_planned_is_told_and_what_was_shown_stays(live):
    page = live(make_plan(2))
    before = page.said()
    page.widget._find_questions().model.forward = None  # the plan fails from here on
    page.slide("batch", "5")
    expect(page.page.locator(".dw-status-refused")).to_contain_text("the forward fails")
    assert page.widget.shown.fit == "fits"
    page.slide("batch", "2")
    expect(page.page.locator(".dw-verdict")).to_contain_text(before[:20])


def test_the_plan_that_is_shown_is_saved_as_one_picture(live):
    page = live(plan_asked())
    with page.page.expect_download() as saving:
        page.page.get_by_role("button", name="Save picture to share (PNG)").click()
    assert saving.value.suggested_filename == "LlamaForCausalLM-plan.png"
    with Image.open(saving.value.path()) as picture:
        assert (picture.format, picture.size) == ("PNG", (1200, 630))
    if folder := os.environ.get("SHOTS"):
        saving.value.save_as(f"{folder}/share.png")
