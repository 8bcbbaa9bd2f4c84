"""The page of a plan, of real plans: nothing sticks out at any width, axe is silent, and keys suffice."""

import functools

import pytest
import torch
from playwright.sync_api import expect

import devwidget
from devwidget.extras.plan.records.answers import Fitted
from tests.extras.browser.plans import check_widths_and_schemes, ids, make_model, make_plan, plan_asked


@functools.cache
def plan_of(state):
    """A plan in one of the states that a page has."""
    if state == "asked":
        found = plan_asked()
    elif state == "fits":
        found = make_plan(1, card="A100-40GB")
    elif state == "fits by less":
        found = make_plan(1, card=None, memory=int(make_plan(1, card=None, memory="40GiB").devices[0].peak * 1.005))
    elif state == "does not fit":
        found = make_plan(64)
    elif state == "written":
        with torch.no_grad():
            found = devwidget.plan(make_model().bfloat16().eval(), {"input_ids": ids(4)["input_ids"]}, card="T4")
        found.generation(64)
        found.generation(64, cache="static")
    else:
        found = make_plan(2, gpus=3, card=None, memory=["3GiB", "2GiB", "2GiB"], placement="auto")
    return found


@pytest.fixture
def show(opened):
    return lambda state, width=1280: opened(plan_of(state).to_html(), width)


def tabs(page):
    return page.get_by_role("radio").all()


@pytest.mark.parametrize("state", ["fits", *(pytest.param(name, marks=pytest.mark.slow) for name in (
    "asked", "fits by less", "does not fit", "written", "several"))])  # fmt: skip
def test_nothing_sticks_out_and_axe_is_silent(show, state):
    page = show(state)
    assert state not in ("fits", "fits by less", "does not fit") or plan_of(state).fit == state
    for at, tab in enumerate(tabs(page)):
        tab.check()
        check_widths_and_schemes(page, f"plan-{state}-{at}")


def test_the_answer_stands_in_the_first_120_pixels_and_tabs_are_reached_by_keys(show):
    page = show("fits", 910)
    box = page.locator(".dw-verdict").bounding_box()
    assert box["y"] + box["height"] <= 120
    pages = page.locator(".dw-page")
    page.keyboard.press("Tab")
    for at in range(len(tabs(page))):
        assert [each.is_visible() for each in pages.all()] == [place == at for place in range(pages.count())]
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(pages.first).to_be_visible()


@pytest.mark.slow
def test_the_lines_between_sizes_are_a_staircase_from_the_upper_left_to_the_lower_right(show):
    page = show("asked")
    page.get_by_role("radio", name="Batch × length").check()
    (fitted,) = (each for each in plan_asked().answers if isinstance(each, Fitted))
    wide = len(fitted.lengths)
    cells = page.locator(".dw-sizes > span:not(.dw-size-of)").all()
    looks = [(each.get_attribute("class") or "").split() for each in cells]
    fits = ["dw-size-over" not in look for look in looks]
    assert set(fits) == {True, False}
    for at, look in enumerate(looks):
        beside = at % wide + 1 < wide and fits[at] != fits[at + 1]
        above = at >= wide and fits[at] != fits[at - wide]
        assert ("dw-end-beside" in look, "dw-end-above" in look) == (beside, above)
    for length in range(wide):
        column = fits[length::wide]
        assert column == sorted(column)


@pytest.mark.slow
def test_two_plans_on_one_page_have_tabs_of_their_own(show):
    page = show("fits")
    drawn = [plan_of(state)._repr_mimebundle_()["text/html"] for state in ("fits", "fits by less")]
    page.set_content("".join(f"<div id=a{at}>{each}</div>" for at, each in enumerate(drawn)))
    page.locator("#a1 .dw-pick").nth(1).check()
    expect(page.locator("#a0 .dw-page").first).to_be_visible()
    expect(page.locator("#a1 .dw-page").first).to_be_hidden()
    expect(page.locator("#a1 .dw-page").nth(1)).to_be_visible()


COLOURS_AT_THE_END = """(areas) => areas.filter((area) => {
  const { width, height } = area.ownerSVGElement.viewBox.baseVal;
  const rows = Array.from({ length: height }, (_, y) => new DOMPoint(width - 0.5, y + 0.5));
  return rows.some((point) => area.isPointInFill(point));
}).map((area) => getComputedStyle(area).fill)"""


def test_what_is_held_in_the_optimizers_step_is_not_called_activations(show):
    page = show("fits")
    keys = {each.inner_text(): each.locator("i") for each in page.locator(".dw-keys").first.locator("> span").all()}
    hues = {name: key.evaluate("(key) => getComputedStyle(key).backgroundColor") for name, key in keys.items()}
    held = page.locator(".dw-course path").evaluate_all(COLOURS_AT_THE_END)
    assert hues["other tensors"] in held
    assert hues["activations"] not in held
