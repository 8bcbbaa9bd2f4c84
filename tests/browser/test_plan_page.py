"""The page of a plan, of real plans: at each width and in both schemes nothing sticks out, axe is silent, and keys suffice."""

import functools
import os

import pytest
import torch
from playwright.sync_api import expect

import devwidget
from devwidget.records.answers import OnCards
from tests.browser.axe import violations
from tests.browser.chromium import Watched

transformers = pytest.importorskip("transformers")
OVER = """() => [...document.querySelectorAll('.dw-plan *')]
  .filter((each) => each.clientWidth && !each.closest('.dw-hidden, svg, .dw-scroll-x'))
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => each.outerHTML.slice(0, 120))"""


def make_model():
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 16, "num_attention_heads": 16}
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32000, **sizes))


def ids(batch, length=1024):
    tokens = torch.ones(batch, length, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens}


def plan(batch, **asked):
    return devwidget.plan(make_model(), ids(batch), **{"card": "T4", "optimizer": torch.optim.AdamW, **asked})


@functools.cache
def plan_of(state):
    """A plan in one of the states that a page has, with what was asked of it."""
    if state == "fits":
        found = plan(1, card="A100-40GB")
    elif state == "fits by less":
        found = plan(1, card=None, memory=int(plan(1, card=None, memory="40GiB").devices[0].peak * 1.005))
    elif state == "does not fit":
        found = plan(8)
        found.cheapest_change()
        found.largest_batch()
        found.on_cards("T4", "RTX 4090", "A100-40GB", "A100-80GB", also=("LoRA", "inference"))
    elif state == "sizes":
        found = plan(4, card=None, memory="16GiB")
        found.sliders().close()
    elif state == "written":
        with torch.no_grad():
            found = devwidget.plan(make_model().bfloat16().eval(), {"input_ids": ids(4)["input_ids"]}, card="T4")
        found.generation(256)
        found.generation(256, cache="static")
    else:
        found = plan(2, gpus=3, card=None, memory=["6GiB", "4GiB", "3GiB"], placement="auto")
    assert state in ("sizes", "written", "several") or found.fit == state
    return found


def open_page(browser, tmp_path, state, width, scheme):
    path = tmp_path / "plan.html"
    plan_of(state).to_html(path)
    watched = Watched(browser, viewport={"width": width, "height": 1000}, color_scheme=scheme, offline=True)
    watched.page.goto(path.as_uri())
    return watched


def tabs(page):
    return page.get_by_role("radio").all()


STATES = ("fits", "fits by less", "does not fit", "sizes", "written", "several")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [700, 910, 1280, 1600])
@pytest.mark.parametrize("state", STATES)
def test_nothing_sticks_out_and_axe_is_silent(browser, tmp_path, state, width, scheme):
    watched = open_page(browser, tmp_path, state, width, scheme)
    for at, tab in enumerate(tabs(watched.page)):
        tab.check()
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), at
        assert watched.page.evaluate(OVER) == [], at
        assert violations(watched.page) == [], at
        if folder := os.environ.get("SHOTS"):
            name = f"plan-{state.replace(' ', '_')}-{at}-{scheme}-{width}.png"
            watched.page.screenshot(path=f"{folder}/{name}", full_page=True)
    watched.close()


def test_the_lines_between_sizes_are_a_staircase_from_the_upper_left_to_the_lower_right(browser, tmp_path):
    watched = open_page(browser, tmp_path, "sizes", 1280, "light")
    watched.page.get_by_role("radio", name="Batch × length").check()
    (fitted,) = plan_of("sizes").answers
    wide = len(fitted.lengths)
    cells = watched.page.locator(".dw-sizes > span:not(.dw-size-of)").all()
    looks = [(each.get_attribute("class") or "").split() for each in cells]
    fits = ["dw-size-over" not in look for look in looks]
    assert True in fits
    assert False in fits
    for at, look in enumerate(looks):
        beside = at % wide + 1 < wide and fits[at] != fits[at + 1]
        above = at >= wide and fits[at] != fits[at - wide]
        assert ("dw-end-beside" in look, "dw-end-above" in look) == (beside, above)
    for length in range(wide):
        column = fits[length::wide]
        assert column == sorted(column)
    watched.close()


def test_the_cards_say_the_smallest_for_each_thing_to_do(browser, tmp_path):
    watched = open_page(browser, tmp_path, "does not fit", 1280, "light")
    watched.page.get_by_role("radio", name="Cards").check()
    found = next(each for each in plan_of("does not fit").answers if isinstance(each, OnCards))
    told = watched.page.locator(".dw-smallest-cards").inner_text()
    for row in found.rows:
        assert row.smallest.card in told.partition(f"{row.what} fits ")[2].partition(";")[0]
        column = 1 + found.rows.index(row)
        cell = watched.page.locator(f".dw-cards tr:has(th:has-text('{row.smallest.card}')) > :nth-child({column + 1})")
        expect(cell).to_have_class("dw-first-card")
        expect(cell).to_contain_text(row.smallest.change)
    watched.close()


def test_one_tab_is_shown_and_keys_go_through_all(browser, tmp_path):
    watched = open_page(browser, tmp_path, "does not fit", 1280, "light")
    pages = watched.page.locator(".dw-page")
    names = [tab.locator("..").inner_text() for tab in tabs(watched.page)]
    assert names == ["Step", "Changes", "Batch × length", "Cards", "How sure"]
    watched.page.keyboard.press("Tab")
    for at in range(len(names)):
        assert [each.is_visible() for each in pages.all()] == [place == at for place in range(len(names))]
        watched.page.keyboard.press("ArrowRight")
    watched.page.keyboard.press("Enter")
    expect(pages.first).to_be_visible()
    watched.close()


def test_two_plans_on_one_page_have_tabs_of_their_own(browser):
    watched = Watched(browser, viewport={"width": 910, "height": 1000})
    drawn = [plan_of(state)._repr_mimebundle_()["text/html"] for state in ("fits", "does not fit")]
    watched.page.set_content("".join(f"<div id=a{at}>{each}</div>" for at, each in enumerate(drawn)))
    watched.page.locator("#a1 .dw-pick-1").check()
    expect(watched.page.locator("#a0 .dw-page-0")).to_be_visible()
    expect(watched.page.locator("#a1 .dw-page-0")).to_be_hidden()
    expect(watched.page.locator("#a1 .dw-page-1")).to_be_visible()
    watched.close()


def test_the_answer_stands_in_the_first_120_pixels(browser, tmp_path):
    for state in STATES:
        watched = open_page(browser, tmp_path, state, 910, "light")
        box = watched.page.locator(".dw-verdict").bounding_box()
        assert box["y"] + box["height"] <= 120, state
        watched.close()
