"""The tab Devices as a browser paints it: pointed at, walked through with keys, unfolded, read in both themes."""

import pytest
from playwright.sync_api import expect

from devwidget.report.page.content import devices_content
from devwidget.report.page.html import panel_page
from devwidget.views.placement import tabulate_snapshot
from tests.browser.esm import BarePage
from tests.views.builders import data_parallel, one_step, split_model
from tests.views.test_repeats import stack


@pytest.fixture
def drawn(opened):
    def show(trace, width=1100, snapshot=None):
        page = opened(panel_page(snapshot or split_model(), trace), width)
        page.get_by_role("tab", name="Devices").click()
        page.locator(".dw-drawn svg").wait_for()
        return page

    return show


def marks(page, kind, **facts):
    more = "".join(f"[data-{name}='{value}']" for name, value in facts.items())
    return page.locator(f".dw-drawn [data-mark='{kind}']{more}")


TEXTS_OUTSIDE = """() => {
  const picture = document.querySelector('.dw-drawn svg').getBoundingClientRect();
  return [...document.querySelectorAll('.dw-drawn text')].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.left < picture.left - 1 || box.right > picture.right + 1;
  }).map((text) => text.textContent);
}"""


@pytest.mark.parametrize("trace", [one_step(), data_parallel(8)], ids=["split", "replicas"])
def test_the_picture_is_as_wide_as_there_is_room_and_no_text_leaves_it(drawn, trace):
    page = drawn(trace, 1600)
    for width in (1600, 1280, 910, 700, 500):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
        page.wait_for_function("() => document.querySelector('.dw-drawn svg').getBoundingClientRect().width <= innerWidth")
        assert page.evaluate(TEXTS_OUTSIDE) == [], width
        scale = "(svg) => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width"
        assert page.locator(".dw-drawn svg").evaluate(scale) >= 0.99 or width < 700  # letters keep their eleven pixels


def test_replicas_their_shares_and_the_gather_point_are_drawn(drawn):
    page = drawn(data_parallel(3))
    expect(marks(page, "block", what="replica")).to_have_count(3)
    expect(marks(page, "way", step="scatter")).to_have_count(2)
    expect(marks(page, "block", what="outputs").locator("title")).to_contain_text("cuda:0, 2.40 MiB")


def test_what_is_pointed_at_is_told_and_leads_to_its_row(drawn):
    page = drawn(data_parallel(2))
    marks(page, "block", what="replica").nth(1).hover()
    told = page.locator(".dw-picked").first
    expect(told).to_contain_text("replica 1, 31 samples")
    expect(told).to_contain_text("cuda:1, 3.00 MiB")
    expect(told).to_contain_text("train.py:12  out = decoder(batch)")
    told.get_by_role("button").click()
    expect(page.get_by_role("tab", name="Modules")).to_have_attribute("aria-selected", "true")
    expect(page.locator("[data-path='decoder']")).to_have_attribute("aria-selected", "true")


def test_a_way_leads_to_its_line_of_hops(drawn):
    page = drawn(one_step())
    page.locator(".dw-drawn [data-kind=healed]").focus()
    told = page.locator(".dw-picked").first
    expect(told).to_contain_text("misplaced: moved by the trace")
    told.get_by_role("button", name="its line").click()
    expect(page.get_by_role("tab", name="Trace")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".dw-hop-row:focus")).to_have_attribute("data-cause", "healed")


def test_the_picture_is_one_stop_of_the_keyboard_and_arrows_walk_through_it(drawn):
    page = drawn(one_step())
    assert page.locator(".dw-drawn [tabindex='0']").count() == 1
    marks(page, "column").first.focus()
    page.keyboard.press("End")
    told = page.locator(".dw-picked").first
    last = marks(page, "block").last.locator("title").text_content()
    expect(told).to_contain_text(last.split("\n")[0])
    page.keyboard.press("ArrowUp")
    expect(told).not_to_contain_text(last.split("\n")[0])


def test_a_folded_block_is_unfolded_by_a_click_and_folded_again(browser):
    snapshot = stack(12)
    table = tabulate_snapshot(snapshot)
    bare = BarePage(browser, snapshot)
    bare.answer("devices", devices_content(snapshot, table, None, ["h.0:h.11"]))
    bare.page.get_by_role("tab", name="Devices").click()
    block = marks(bare.page, "block")
    expect(block).to_have_count(1)
    block.click()
    expect(block).to_have_count(12)
    (asked,) = bare.sent("devices")
    assert (asked["opened"], asked["every"]) == (["h.0:h.11"], False)
    bare.answer("devices", devices_content(snapshot, table, None))
    bare.page.get_by_role("button", name="folded").click()
    expect(block).to_have_count(1)
    bare.page.get_by_role("button", name="all blocks").press("Enter")
    assert bare.sent("devices")[-1]["every"] is True
    bare.close()


INK = "() => getComputedStyle(document.querySelector('.dw-drawn [data-mark=column] text')).fill"


@pytest.mark.parametrize("system", ["light", "dark"])
def test_in_jupyterlab_the_picture_has_the_colours_of_its_theme_and_not_of_the_system(browser, system):
    bare = BarePage(browser, split_model(), one_step(), color_scheme=system)
    bare.page.get_by_role("tab", name="Devices").click()
    bare.page.locator(".dw-drawn svg").first.wait_for()
    for is_light, ink in (("true", "rgb(31, 35, 40)"), ("false", "rgb(230, 237, 243)")):
        bare.page.evaluate("(is_light) => document.body.dataset.jpThemeLight = is_light", is_light)
        assert bare.page.evaluate(INK) == ink
    bare.close()
