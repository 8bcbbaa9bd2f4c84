"""An exported page: one file, offline, interactive."""

from playwright.sync_api import expect

from devwidget.records.trace import Trace
from devwidget.report.html import panel_page
from tests.views.builders import data_parallel, one_step, split_model


def test_the_page_has_table_bars_findings_and_works_offline(opened):
    page = opened(panel_page(split_model(), one_step()))
    expect(page.locator(".dw-memory .point path").first).to_be_attached()
    page.get_by_label("filter rows").fill("device:cuda:1")
    expect(page.locator("[data-path='decoder.head']")).to_be_visible()
    page.locator("[data-path='decoder.head']").click()
    expect(page.locator(".dw-detail")).to_contain_text("f32[1000, 512]")
    page.get_by_role("tab", name="Findings").click()
    expect(page.locator(".dw-finding")).to_have_count(2)
    assert page.get_by_role("button", name="Trace batch").count() == 0


def test_a_click_on_a_box_of_the_timeline_leads_to_the_row(opened):
    page = opened(panel_page(split_model(), one_step()))
    page.get_by_role("tab", name="Trace").click()
    page.locator(".dw-timeline .bars .point path").first.wait_for(state="attached")
    box = page.locator(".dw-timeline .bartext", has_text="head").bounding_box()
    page.mouse.click(box["x"] + 4, box["y"] + 4)
    expect(page.locator("[data-path='decoder.head']")).to_have_attribute("aria-selected", "true")


def test_a_trace_alone_has_a_page_too(opened):
    page = opened(data_parallel(2).to_html())
    page.get_by_role("tab", name="Trace").click()
    expect(page.locator(".dw-hop-row").first).to_be_visible()


def test_an_empty_trace_has_a_page_too(opened):
    page = opened(Trace().to_html())
    expect(page.get_by_role("tab", name="Findings")).to_be_visible()
