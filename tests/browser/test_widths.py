"""The panel at each width: nothing is clipped or scrolls sideways, and what matters stays."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.records.device import DeviceId
from tests.browser.axe import violations
from tests.browser.esm import BarePage
from tests.views.builders import one_step, site, split_model
from tests.views.test_repeats import stack

LINE = replace(
    site(41), text="result = self.decoder.head(self.encoder(batch_of_tokens).to(self.last), mask=self.encoder.attention.mask)"
)
TRACE = replace(one_step(), moves=tuple(replace(move, site=LINE) for move in one_step().moves))
OVER = """() => [...document.querySelectorAll('.dw-panel *')]
  .filter((each) => each.clientWidth && !each.closest('.dw-hidden, svg, .main-svg'))
  .filter((each) => getComputedStyle(each).clipPath === 'none')
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => each.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [700, 910, 1280, 1600])
def test_nothing_sticks_out_at_any_width_and_axe_is_silent(browser, width, scheme):
    bare = BarePage(browser, split_model(), TRACE, plotly=True, viewport={"width": width, "height": 900}, color_scheme=scheme)
    for tab in bare.page.get_by_role("tab").all():
        tab.click()
        bare.page.wait_for_timeout(200)
        assert bare.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
        assert bare.page.evaluate(OVER) == [], tab
        assert violations(bare.page) == [], tab
    bare.close()


@pytest.mark.parametrize("width", [600, 700, 910, 1600])
def test_in_and_out_are_seen_at_every_width(browser, width):
    bare = BarePage(browser, split_model(), TRACE, viewport={"width": width, "height": 900})
    chips = bare.page.locator("[data-path='decoder'] .dw-flow .dw-chip")
    expect(chips).to_have_text(["cuda:0", "cuda:1"])
    cell = bare.page.locator("[data-path='decoder'] .dw-flow").bounding_box()
    last = chips.last.bounding_box()
    assert last["x"] + last["width"] <= cell["x"] + cell["width"]
    bare.close()


@pytest.mark.parametrize("width", [700, 1280])
def test_code_takes_the_width_of_its_table(browser, width):
    bare = BarePage(browser, split_model(), TRACE, viewport={"width": width, "height": 900})
    bare.page.get_by_role("tab", name="Trace").click()
    code = bare.page.locator(".dw-code-line").first
    expect(code).to_have_text(LINE.text)
    table = bare.page.locator(".dw-table").first.bounding_box()
    assert code.bounding_box()["width"] > 0.9 * table["width"]
    bare.close()


def test_a_header_of_three_devices_is_one_row_and_bars_have_18_pixels(browser):
    bare = BarePage(browser, split_model(), TRACE, plotly=True, viewport={"width": 910, "height": 900})
    assert bare.page.locator(".dw-top").bounding_box()["height"] <= 34
    bar = bare.page.locator(".dw-memory .point path").first
    bar.wait_for(state="attached")
    assert bar.bounding_box()["height"] == pytest.approx(18, abs=1)
    bare.close()


SEEN_IN_PART = """() => {
  const area = document.querySelector('.dw-facts').getBoundingClientRect();
  const isCut = ({ top, right }) => top < area.bottom && right > area.right + 0.5;
  const facts = [...document.querySelectorAll('.dw-facts > span')];
  return facts.filter((fact) => isCut(fact.getBoundingClientRect())).map((fact) => fact.textContent);
}"""


@pytest.mark.parametrize("width", [500, 600, 700, 910, 1280, 1600])
def test_a_fact_of_the_header_is_there_as_a_whole_or_not_at_all(browser, width):
    bare = BarePage(browser, split_model(), TRACE, viewport={"width": width, "height": 900})
    expect(bare.page.locator(".dw-facts > span")).to_have_text(["1.3 M params", "5.91 MiB", "virtual GPUs: 2"])
    assert bare.page.evaluate(SEEN_IN_PART) == []
    bare.close()


@pytest.mark.parametrize("width", [700, 910, 1280, 1600])
def test_a_header_of_four_gpus_is_one_row(browser, width):
    gpus = [DeviceId("cuda", number) for number in range(4)]
    full = next(memory for memory in split_model().memory if memory.total)
    four = replace(stack(16, lambda block: gpus[block // 4]), memory=tuple(replace(full, device=gpu) for gpu in gpus))
    bare = BarePage(browser, four, viewport={"width": width, "height": 900})
    assert bare.page.locator(".dw-top").bounding_box()["height"] <= 34
    expect(bare.page.locator(".dw-meter .dw-meter-bar")).to_have_count(4)
    assert bare.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    bare.close()
