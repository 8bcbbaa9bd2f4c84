"""A layout of `devwidget.place` on the panel's map, as a browser paints it."""

import os

import pytest

from devwidget.report.page.content import proposed_content
from devwidget.views.placement import tabulate_snapshot
from tests.browser.esm import BarePage
from tests.views.builders import split_model
from tests.views.test_proposed_map import GPU0, GPU1, layout


@pytest.fixture
def page(browser):
    shown = BarePage(browser, split_model(), plotly=True)
    yield shown
    shown.close()


def test_a_proposal_is_drawn_beside_the_model_as_it_is(page):
    page.page.locator("#a").get_by_role("tab", name="Parallel").click()
    sections = page.page.locator("#a .dw-mapped")
    before = sections.count()
    page.update("panel", "proposed", proposed_content(layout(GPU0, GPU0, GPU1), tabulate_snapshot(split_model())))
    proposed = sections.filter(has_text="Where it would go")
    proposed.locator(".js-fill").first.wait_for(state="attached")
    assert sections.count() == before + 1
    texts = proposed.locator(".annotation-text").all_text_contents()
    assert [text for text in texts if text.startswith("cuda")] == ["cuda:0", "cuda:1"]
    assert "Layout: Net over 2 GPUs: fits" in proposed.inner_text()
    if folder := os.environ.get("SHOTS"):
        proposed.screenshot(path=f"{folder}/proposed.png")
