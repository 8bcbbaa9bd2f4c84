"""The timeline in a page: it zooms, has an overview, and each thing that happened is one mark that speaks and leads on."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.trace import OpEvent
from tests.browser.esm import BarePage, large, large_step
from tests.browser.test_esm_panel import NO_ROOM
from tests.views.builders import GPU0, GPU1, one_step, split_model

HEALED = replace(one_step().moves[0], cause="healed", module="decoder.head", target=GPU1, number=12)
TRACE = replace(
    one_step(),
    findings=(replace(one_step().findings[0], explains=(13,)), one_step().findings[1]),
    moves=(HEALED, *one_step().moves[1:]),
    ops=(
        *one_step().ops,
        OpEvent("mm", None, "backward", None, (GPU1,), GPU1, 1, 60),
        OpEvent("add", None, "optimizer", None, (GPU0,), GPU0, 300, 70),
        OpEvent("mul", None, "optimizer", None, (GPU0,), GPU0, 102, 900),
    ),
)
STRUCK = """() => {
  const boxes = (kinds) => [...document.querySelectorAll(kinds)].map((each) => each.getBoundingClientRect());
  const marks = boxes('.dw-timeline .dw-fault, .dw-timeline .dw-hop-head');
  const isOver = (mark, name) => mark.left < name.right && name.left < mark.right && mark.top < name.bottom;
  const names = [...document.querySelectorAll('.dw-box-name')].map((each) => [each.textContent, each.getBoundingClientRect()]);
  return names.filter(([, name]) => marks.some((mark) => isOver(mark, name) && name.top < mark.bottom)).map(([text]) => text);
}"""
COUNT_DRAWINGS = """(lanes) => {
  window.drawings = 0;
  new MutationObserver(() => drawings++).observe(lanes, { childList: true });
}"""
HOW_MUCH = """async (lanes) => {
  await new Promise(requestAnimationFrame);
  const paths = [...lanes.querySelectorAll('path')];
  return [lanes.querySelectorAll('*').length, paths.reduce((sum, path) => sum + path.getAttribute('d').length, 0)];
}"""
TURN_WHEEL_OFTEN = """async (lanes) => {
  await new Promise(requestAnimationFrame);
  const before = drawings;
  for (let turn = 0; turn < 20; turn++) {
    lanes.dispatchEvent(new WheelEvent('wheel', { deltaY: 30, ctrlKey: true, clientX: 500, cancelable: true }));
    await null; // an observer counts once in a task
  }
  await new Promise(requestAnimationFrame);
  return drawings - before;
}"""


@pytest.fixture
def shown(browser):
    bare = BarePage(browser, split_model(), TRACE)
    bare.page.get_by_role("tab", name="Trace").click()
    yield bare
    bare.close()


def seen(shown):
    """What is seen, in words, once it is drawn."""
    shown.page.evaluate("new Promise(requestAnimationFrame)")
    return shown.page.locator(".dw-seen").text_content()


def test_keys_zoom_move_and_show_the_whole_step_again(shown):
    whole = seen(shown)
    shown.page.locator(".dw-lanes").focus()
    shown.page.keyboard.press("w")
    near = seen(shown)
    assert near != whole
    shown.page.keyboard.press("a")
    assert seen(shown) not in (near, whole)
    shown.page.keyboard.press("0")
    assert seen(shown) == whole


def test_a_drag_over_the_lanes_shows_that_part_and_the_brush_shows_where_it_is(shown):
    lanes, brush = shown.page.locator(".dw-lanes").bounding_box(), shown.page.locator(".dw-overview .dw-brush")
    before = brush.bounding_box()["width"]
    shown.page.mouse.move(lanes["x"] + 100, lanes["y"] + 10)
    shown.page.mouse.down()
    shown.page.mouse.move(lanes["x"] + 300, lanes["y"] + 10, steps=4)
    shown.page.mouse.up()
    first = seen(shown)  # once it is drawn
    assert brush.bounding_box()["width"] < before / 3
    place = brush.bounding_box()
    shown.page.mouse.move(place["x"] + place["width"] / 2, place["y"] + 10)
    shown.page.mouse.down()
    shown.page.mouse.move(place["x"] + place["width"] / 2 + 300, place["y"] + 10, steps=4)
    shown.page.mouse.up()
    assert seen(shown) != first
    shown.page.get_by_role("button", name="the whole step").click()
    seen(shown)
    assert brush.bounding_box()["width"] == pytest.approx(before, abs=1)


def test_the_wheel_zooms_with_ctrl_and_else_scrolls_the_page(shown):
    whole, lanes = seen(shown), shown.page.locator(".dw-lanes").bounding_box()
    shown.page.mouse.move(lanes["x"] + 300, lanes["y"] + 60)
    shown.page.mouse.wheel(0, -300)
    assert seen(shown) == whole
    shown.page.keyboard.down("Control")
    shown.page.mouse.wheel(0, -300)
    shown.page.keyboard.up("Control")
    shown.page.wait_for_function("(whole) => document.querySelector('.dw-seen').textContent !== whole", arg=whole)


def test_an_empty_phase_is_short_and_says_what_is_in_it(shown):
    empty, lanes = shown.page.locator(".dw-band-empty").last.bounding_box(), shown.page.locator(".dw-lanes").bounding_box()
    assert empty["width"] < 0.1 * lanes["width"]  # it holds nine tenths of the events
    expect(shown.page.locator(".dw-timeline")).to_contain_text("402 operators")
    shown.page.mouse.move(empty["x"] + 20, empty["y"] + empty["height"] - 4)
    expect(shown.page.locator(".dw-tip")).to_contain_text("no hop")


def test_a_healed_hop_and_its_fault_are_one_mark_that_leads_to_the_finding(shown):
    mark = shown.page.locator(".dw-mark[data-kind=hop-fault]")
    expect(mark).to_have_count(1)
    expect(shown.page.locator(".dw-mark[data-kind=fault]")).to_have_count(0)
    assert mark.get_attribute("data-at") == "13"
    stem = mark.locator(".dw-hop-stem").bounding_box()
    shown.page.mouse.click(stem["x"] + stem["width"] / 2, stem["y"] + stem["height"] / 2)
    expect(shown.page.locator(".dw-found").first).to_be_focused()


def test_an_arrow_speaks_along_its_whole_length(shown):
    stem = shown.page.locator(".dw-mark[data-kind=hop]:not(.dw-mark-wrong) .dw-hop-stem").first.bounding_box()
    for part in (0.05, 0.5, 0.95):
        shown.page.mouse.move(0, 0)
        expect(shown.page.locator(".dw-tip")).to_be_hidden()
        shown.page.mouse.move(stem["x"] + stem["width"] / 2, stem["y"] + part * stem["height"])
        expect(shown.page.locator(".dw-tip")).to_contain_text("cuda:0 → cuda:1")


def test_arrow_keys_go_from_mark_to_mark_and_enter_leads_on(shown):
    shown.page.locator(".dw-lanes").focus()
    shown.page.keyboard.press("ArrowRight")
    expect(shown.page.locator(".dw-tip")).to_be_visible()
    told = [shown.page.locator(".dw-tip").text_content()]
    shown.page.keyboard.press("ArrowRight")
    told.append(shown.page.locator(".dw-tip").text_content())
    assert told[0] != told[1]
    shown.page.keyboard.press("ArrowLeft")
    assert shown.page.locator(".dw-tip").text_content() == told[0]
    shown.page.keyboard.press("Enter")
    expect(shown.page.locator(":is(.dw-hop-row, .dw-found):focus")).to_have_count(1)


@pytest.mark.slow
def test_a_zoom_draws_little_of_10000_modules_and_100000_events_and_once_in_a_frame(browser):
    bare = BarePage(browser, large(10_000), large_step(10_000, 100_000))
    bare.page.get_by_role("tab", name="Trace").click()
    lanes = bare.page.locator(".dw-lanes")
    lanes.evaluate(COUNT_DRAWINGS)
    lanes.focus()
    for _ in range(16):
        bare.page.keyboard.press("w")
        elements, letters = lanes.evaluate(HOW_MUCH)
        assert 20 < elements < 500
        assert letters < 30_000  # of paths: a rectangle has about 30, and 1,200 pixels have room for few that can be told apart
    expect(bare.page.locator(".dw-box-name", has_text="layer").first).to_be_visible()  # of a block in the middle
    once = lanes.evaluate(TURN_WHEEL_OFTEN)
    assert once == 1
    bare.close()


def test_the_name_of_a_box_stands_beside_the_marks_that_end_in_it(browser):
    bare = BarePage(browser, split_model(), one_step())
    bare.page.get_by_role("tab", name="Trace").click()
    for width in (1600, 1280, 910, 700):
        bare.page.set_viewport_size({"width": width, "height": 900})
        bare.page.wait_for_function("() => document.querySelector('.dw-lanes').getBoundingClientRect().right <= innerWidth")
        expect(bare.page.locator(".dw-box-name", has_text="decoder")).to_have_count(1)
        assert bare.page.locator(".dw-hop-head").count() > 0
        bare.page.wait_for_function(f"() => ({STRUCK})().length === 0")
    bare.close()


@pytest.mark.parametrize("width", [700, 910, 1280])
def test_out_of_memory_is_said_whole_where_the_page_ends(browser, width):
    last = replace(NO_ROOM, number=900)
    full = replace(TRACE, memory=(replace(one_step().memory[0], refused=(last,)),))
    bare = BarePage(browser, split_model(), full, viewport={"width": width, "height": 900})
    bare.page.get_by_role("tab", name="Trace").click()
    words, lanes = (bare.page.locator(part).bounding_box() for part in (".dw-wrong-words", ".dw-lanes"))
    assert words["x"] + words["width"] <= lanes["x"] + lanes["width"]
    bare.close()


def test_a_tip_speaks_without_backticks_and_does_not_stay_over_what_it_leads_to(shown):
    stem = shown.page.locator(".dw-mark[data-kind=hop-fault] .dw-hop-stem").bounding_box()
    shown.page.mouse.move(stem["x"] + 1, stem["y"] + stem["height"] / 2)
    tip = shown.page.locator(".dw-tip")
    expect(tip).to_contain_text("addmm")
    expect(tip).not_to_contain_text("`")
    shown.page.mouse.down()
    shown.page.mouse.up()
    shown.page.get_by_role("tab", name="Trace").click()
    expect(tip).to_be_hidden()


def test_each_panel_of_a_page_has_its_own_hatching_and_ids(shown):
    shown.page.evaluate("() => window.show('b')")
    shown.page.locator("#b").get_by_role("tab", name="Trace").click()
    expect(shown.page.locator("#b .dw-lanes pattern")).to_have_count(1)
    ids = shown.page.evaluate("() => [...document.querySelectorAll('.dw [id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))


def test_a_hop_on_the_wrong_device_is_the_first_of_its_table_and_marked(shown):
    rows = shown.page.locator(".dw-hop-row")
    assert [row.get_attribute("data-cause") for row in rows.all()] == ["healed", "healed", "explicit"]
    expect(shown.page.locator(".dw-hop-wrong")).to_have_count(2)
    mark = shown.page.locator(".dw-mark[data-kind=hop]:not(.dw-mark-wrong) .dw-hop-stem").first.bounding_box()
    shown.page.mouse.click(mark["x"] + 1, mark["y"] + mark["height"] / 2)
    expect(rows.nth(2)).to_be_focused()
