"""A layout of `devwidget.place` beside the model as it is, as a browser paints it."""

import os

import pytest
from playwright.sync_api import expect

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
    page.page.locator("#a").get_by_role("tab", name="Devices").click()
    page.update("panel", "proposed", proposed_content(layout(GPU0, GPU0, GPU1), tabulate_snapshot(split_model())))
    tab = page.page.locator("#a").get_by_role("tabpanel", name="Devices")
    proposed = tab.locator(".dw-beside-each-other > div").filter(has_text="Where it would go")
    columns = proposed.locator("[data-mark=column]")
    expect(columns).to_have_count(2)
    assert [column.get_attribute("data-device") for column in columns.all()] == ["cuda:0", "cuda:1"]
    expect(proposed).to_contain_text("Layout: Net over 2 GPUs: fits")
    expect(tab.locator(".dw-beside-each-other > div").first).to_contain_text("Where it is")
    if folder := os.environ.get("SHOTS"):
        proposed.screenshot(path=f"{folder}/proposed.png")
