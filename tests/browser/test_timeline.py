"""The timeline in a page: it zooms, has an overview, and each thing that happened is one mark that speaks and leads on."""

from dataclasses import replace
from itertools import pairwise

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
PLOT = "document.querySelector('.dw-timeline .dw-plot')"
DRAWN = f"{PLOT}?.querySelector('.main-svg') && true"
PLACE_OF = """([text, name]) => {
  const plot = document.querySelector('.dw-timeline .dw-plot');
  const { left, top } = plot.getBoundingClientRect();
  const alike = plot.data.filter(({ marker, meta }) => !meta && (marker.symbol ?? null) === name);
  const trace = alike.find(({ customdata }) => customdata.some(([words]) => words.includes(text)));
  const at = trace.customdata.findIndex(([words]) => words.includes(text));
  const { xaxis, yaxis } = plot._fullLayout;
  const length = trace.type === 'bar' && trace.orientation === 'v' ? trace.y[at] : 0;
  const ends = [trace.base ?? trace.y[at], (trace.base ?? trace.y[at]) + length];
  return [left + xaxis._offset + xaxis.l2p(trace.x[at]), ...ends.map((y) => top + yaxis._offset + yaxis.l2p(y))];
}"""
HOW_MUCH = f"() => [...{PLOT}.querySelectorAll('.cartesianlayer *')].length"
COUNT_DRAWINGS = """() => {
  window.drawings = 0;
  document.querySelector('.dw-timeline .dw-plot').on('plotly_afterplot', () => drawings++);
}"""
TURN_WHEEL_OFTEN = """async (lanes) => {
  await new Promise((done) => setTimeout(done, 1000));
  const before = drawings;
  const options = { deltaY: 30, ctrlKey: true, clientX: 500, cancelable: true };
  for (let turn = 0; turn < 20; turn++) lanes.dispatchEvent(new WheelEvent('wheel', options));
  await new Promise((done) => setTimeout(done, 1000));
  return drawings - before;
}"""


def opened(browser, snapshot, trace, **options):
    bare = BarePage(browser, snapshot, trace, plotly=True, **options)
    bare.page.get_by_role("tab", name="Trace").click()
    bare.page.wait_for_function(DRAWN)
    return bare


@pytest.fixture
def shown(browser):
    bare = opened(browser, split_model(), TRACE)
    yield bare
    bare.close()


def seen(shown):
    """What is seen, in words, once it is drawn."""
    shown.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    return shown.page.locator(".dw-seen").text_content()


def place_of(shown, text, symbol=None):
    """Where a mark is, from left, top and bottom of the page."""
    return shown.page.evaluate(PLACE_OF, [text, symbol])


def tip(shown):
    return shown.page.locator(".dw-timeline .hovertext")


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


def test_a_drag_over_the_lanes_shows_that_part_and_the_overview_shows_where_it_is(shown):
    lanes, overview = (shown.page.locator(f".dw-timeline {part}") for part in (".nsewdrag", ".rangeslider-slidebox"))
    whole, box, before = seen(shown), lanes.bounding_box(), overview.bounding_box()["width"]
    shown.page.mouse.move(box["x"] + 100, box["y"] + 10)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 300, box["y"] + 10, steps=4)
    shown.page.mouse.up()
    shown.page.wait_for_function("(whole) => document.querySelector('.dw-seen').textContent !== whole", arg=whole)
    first = seen(shown)
    place = overview.bounding_box()
    assert place["width"] < before / 3
    shown.page.mouse.move(place["x"] + place["width"] / 2, place["y"] + 10)
    shown.page.mouse.down()
    shown.page.mouse.move(place["x"] + place["width"] / 2 + 300, place["y"] + 10, steps=4)
    shown.page.mouse.up()
    shown.page.wait_for_function("(first) => document.querySelector('.dw-seen').textContent !== first", arg=first)
    shown.page.get_by_role("button", name="the whole step").click()
    assert seen(shown) == whole
    assert overview.bounding_box()["width"] == pytest.approx(before, abs=1)


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
    *_, (name, _, start, stop) = shown.page.evaluate("() => models.panel.get('traced').timeline.axes.order.bands")
    assert (name, stop) == ("optimizer", 1)
    assert stop - start < 0.11  # it holds nine tenths of the events
    expect(shown.page.locator(".dw-timeline")).to_contain_text("402 operators")
    expect(shown.page.locator(".dw-timeline")).to_contain_text("no hop")


def test_a_healed_hop_and_its_fault_are_one_mark_that_leads_to_the_finding(shown):
    x, _, y = place_of(shown, "addmm", "x")
    shown.page.mouse.click(x, y)
    expect(shown.page.locator(".dw-found").first).to_be_focused()
    crosses = shown.page.evaluate(f"() => {PLOT}.data.filter(({{ marker }}) => marker.symbol === 'x').flatMap(({{ x }}) => x)")
    assert len(crosses) == 1


def test_an_arrow_speaks_along_its_whole_length(shown):
    x, top, bottom = place_of(shown, "cuda:0 → cuda:1</b> 48 KiB")
    for part in (0.05, 0.5, 0.95):
        shown.page.mouse.move(0, 0)
        expect(tip(shown)).to_have_count(0)
        shown.page.mouse.move(x, top + part * (bottom - top))
        expect(tip(shown)).to_contain_text("cuda:0 → cuda:1")


@pytest.mark.slow
def test_a_zoom_draws_little_of_10000_modules_and_100000_events_and_once_in_a_frame(browser):
    bare = opened(browser, large(10_000), large_step(10_000, 100_000))
    lanes = bare.page.locator(".dw-lanes")
    bare.page.evaluate(COUNT_DRAWINGS)
    lanes.focus()
    for _ in range(16):
        bare.page.keyboard.press("w")
        seen(bare)
    assert 20 < bare.page.evaluate(HOW_MUCH) < 3000  # the overview has all that can be told apart
    expect(bare.page.locator(".dw-timeline .bartext", has_text="layer").first).to_be_visible()  # of a block in the middle
    assert lanes.evaluate(TURN_WHEEL_OFTEN) == 1
    bare.close()


def test_a_box_that_begins_before_what_is_seen_has_its_name_too(shown):
    shown.page.locator(".dw-lanes").focus()
    for _ in range(2):
        shown.page.keyboard.press("w")
        seen(shown)
    expect(shown.page.locator(".dw-timeline .bartext", has_text="Translator").first).to_be_visible()


@pytest.mark.parametrize("width", [700, 1280])
def test_what_did_not_fit_is_a_mark_that_says_it(browser, width):
    last = replace(NO_ROOM, number=900)
    full = replace(TRACE, memory=(replace(one_step().memory[0], refused=(last,)),))
    bare = opened(browser, split_model(), full, viewport={"width": width, "height": 900})
    x, y, _ = place_of(bare, "had no room for", "square")
    bare.page.mouse.move(x, y)
    expect(tip(bare)).to_contain_text("had no room for")
    bare.close()


def test_a_tip_speaks_without_backticks_and_does_not_stay_over_what_it_leads_to(shown):
    x, top, bottom = place_of(shown, "addmm")
    shown.page.mouse.move(x, (top + bottom) / 2)
    expect(tip(shown)).to_contain_text("addmm")
    expect(tip(shown)).not_to_contain_text("`")
    shown.page.mouse.down()
    shown.page.mouse.up()
    shown.page.get_by_role("tab", name="Trace").click()
    expect(tip(shown)).to_have_count(0)


def test_a_hop_on_the_wrong_device_is_the_first_of_its_table_and_marked(shown):
    rows = shown.page.locator(".dw-hop-row")
    assert [row.get_attribute("data-cause") for row in rows.all()] == ["healed", "healed", "explicit"]
    expect(shown.page.locator(".dw-hop-wrong")).to_have_count(2)
    x, top, bottom = place_of(shown, "cuda:0 → cuda:1</b> 48 KiB")
    shown.page.mouse.click(x, (top + bottom) / 2)
    expect(rows.nth(2)).to_be_focused()


def test_the_axis_counts_in_round_numbers_at_each_zoom(shown):
    ticks = shown.page.locator(".dw-timeline .xtick text")
    for _ in range(4):
        seen(shown)
        numbers = [int(each) for each in ticks.all_text_contents()]
        steps = {later - number for number, later in pairwise(numbers)}
        assert len(numbers) > 1
        assert all(step % min(steps) == 0 and str(step).strip("0") in ("1", "2", "4", "5") for step in steps), numbers
        shown.page.get_by_role("button", name="zoom in", exact=False).click()
