"""The panel at each width: what matters stays in sight. That nothing sticks out is said of every state: `test_states`."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.device import DeviceId
from tests.browser.esm import BarePage
from tests.browser.test_states import LINE, LONG
from tests.views.builders import split_model
from tests.views.test_repeats import stack

SEEN_IN_PART = """() => {
  const area = document.querySelector('.dw-facts').getBoundingClientRect();
  const isCut = ({ top, right }) => top < area.bottom && right > area.right + 0.5;
  const facts = [...document.querySelectorAll('.dw-facts > span')];
  return facts.filter((fact) => isCut(fact.getBoundingClientRect())).map((fact) => fact.textContent);
}"""


@pytest.fixture
def bare(browser):
    opened = BarePage(browser, split_model(), LONG)
    yield opened
    opened.close()


def at_each_width(page):
    for width in (1600, 1280, 910, 700, 600, 575):
        page.set_viewport_size({"width": width, "height": 900})
        yield width


LAST_CHIP_IS_INSIDE = """() => {
  const flow = document.querySelector("[data-path='decoder'] .dw-flow");
  const chip = [...(flow?.querySelectorAll(".dw-chip") ?? [])].at(-1);
  return chip && chip.getBoundingClientRect().right <= flow.getBoundingClientRect().right;
}"""


def test_in_and_out_are_seen_and_facts_of_the_header_are_there_as_a_whole_or_not_at_all(bare):
    expect(bare.page.locator(".dw-facts > span")).to_have_text(["1.3 M params", "5.91 MiB", "virtual GPUs: 2"])
    bare.page.get_by_role("tab", name="Modules").click()
    flow = bare.page.locator("[data-path='decoder'] .dw-flow")
    for width in at_each_width(bare.page):
        expect(flow.locator(".dw-chip")).to_have_text(["cuda:0", "cuda:1"])
        bare.page.wait_for_function(LAST_CHIP_IS_INSIDE)  # rows are drawn again when the width changes
        assert bare.page.evaluate(SEEN_IN_PART) == [], width


def test_code_takes_the_width_of_its_table(bare):
    bare.page.get_by_role("tab", name="Trace").click()
    code = bare.page.locator(".dw-code-line").first
    expect(code).to_have_text(LINE.text)
    for width in at_each_width(bare.page):
        table = bare.page.locator(".dw-table").first.bounding_box()
        assert code.bounding_box()["width"] > 0.9 * table["width"], width


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_the_meters_of_all_gpus_are_one_row(browser, gpus):
    cards = [DeviceId("cuda", number) for number in range(gpus)]
    full = next(memory for memory in split_model().memory if memory.total)
    spread = stack(16, lambda block: cards[block * gpus // 16])
    bare = BarePage(browser, replace(spread, memory=tuple(replace(full, device=gpu) for gpu in cards)))
    expect(bare.page.locator(".dw-meter .dw-meter-bar")).to_have_count(gpus)
    for width in at_each_width(bare.page):
        is_narrow = width < 700 or (gpus == 8 and width < 1280)
        assert bare.page.locator(".dw-top").bounding_box()["height"] <= 34 or is_narrow, width
    bare.close()


CUT = """[...document.querySelectorAll('.dw-body .dw-device > *, .dw-body .dw-name, .dw-body .dw-bytes')].filter((each) => {
  const cell = each.closest('.dw-cell').getBoundingClientRect();
  return each.scrollWidth > each.clientWidth || each.getBoundingClientRect().right > cell.right + 1;
})"""
SMALL_TEXTS = """() => {
  const says = (part) => [...part.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const isSeen = (part) => part.checkVisibility() && !part.closest('.dw-hidden, .dw-noun');
  const isSmall = (part) => parseFloat(getComputedStyle(part).fontSize) < 11;
  const parts = [...document.querySelectorAll('.dw-panel *')];
  return parts.filter((part) => says(part) && isSeen(part) && isSmall(part)).map((part) => part.textContent);
}"""


@pytest.mark.parametrize(("gpus", "others"), [(2, []), (4, []), (8, []), (2, ["cpu"]), (7, ["cpu"])])
def test_devices_names_and_bytes_of_rows_are_whole_at_each_width(browser, gpus, others):
    of_block = [*(DeviceId("cuda", number) for number in range(gpus)), *map(DeviceId, others)]
    bare = BarePage(browser, stack(16, lambda block: of_block[block * len(of_block) // 16]))
    row = bare.page.locator("[data-path='h']")
    for width in at_each_width(bare.page):
        bare.page.wait_for_function(f"() => !{CUT}.length")  # rows are drawn again when the width changes
        said = row.locator(".dw-device").text_content()
        assert "+" not in said
        assert said in ("".join(map(str, of_block)), " ".join([f"cuda:0-{gpus - 1}", *others])), width
    bare.close()


def test_no_text_is_smaller_than_eleven_pixels(bare):
    for width in at_each_width(bare.page):
        for tab in bare.page.get_by_role("tab").all():
            tab.click()
            assert bare.page.evaluate(SMALL_TEXTS) == [], (width, tab.inner_text())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_has_the_ground_of_its_page(browser, scheme):
    bare = BarePage(browser, split_model(), LONG, color_scheme=scheme)
    bare.page.get_by_role("tab", name="Devices").click()
    paper = bare.page.locator(".dw-drawn svg").evaluate("(svg) => getComputedStyle(svg).backgroundColor")
    assert paper in ("rgba(0, 0, 0, 0)", bare.page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    bare.close()
