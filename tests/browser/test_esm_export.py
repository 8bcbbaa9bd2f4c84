"""An exported page: one file, offline, interactive."""

import pathlib
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from devwidget.records.trace import Trace
from devwidget.report.page.html import panel_page
from tests.views.builders import data_parallel, one_step, split_model


def test_the_page_opens_on_the_verdict_has_table_bars_findings_and_works_offline(opened):
    page = opened(panel_page(split_model(), one_step()))
    expect(page.get_by_role("tab", name="Findings")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".dw-verdict-part.dw-error .dw-sentence")).to_be_in_viewport()
    expect(page.locator(".dw-status")).to_contain_text("2 errors")
    page.get_by_role("tab", name="Modules").click()
    expect(page.locator(".dw-memory .point path").first).to_be_attached()
    page.get_by_label("filter rows").fill("device:cuda:1")
    expect(page.locator("[data-path='decoder.head']")).to_be_visible()
    page.locator("[data-path='decoder.head']").click()
    expect(page.locator(".dw-detail")).to_contain_text("f32[1000, 512]")
    page.get_by_role("tab", name="Findings").click()
    expect(page.locator(".dw-finding")).to_have_count(2)
    assert page.get_by_role("button", name="Trace batch").count() == 0


def saved(page, entry):
    """The file behind an entry of the menu."""
    page.get_by_label("Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=entry).click()
    return download.value.suggested_filename, pathlib.Path(download.value.path())


@pytest.mark.parametrize(("tab", "name"), [("Modules", "memory"), ("Trace", "timeline"), ("Memory", "steps")])
def test_the_figure_of_a_tab_is_saved_as_a_picture(opened, tab, name):
    page = opened(panel_page(split_model(), one_step()))
    page.get_by_role("tab", name=tab).click()
    page.locator(f".dw-{name} .main-svg").first.wait_for()
    file, path = saved(page, "Save figure as PNG")
    assert file == f"Translator-{name}.png"
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(header[16:20]) == 2 * page.locator(f".dw-{name}").bounding_box()["width"]


def test_a_saved_drawing_opens_with_its_legend(opened, browser):
    page = opened(panel_page(split_model(), one_step()))
    page.get_by_role("tab", name="Modules").click()
    page.locator(".dw-memory .point path").first.wait_for(state="attached")
    file, path = saved(page, "Save figure as SVG")
    assert file == "Translator-memory.svg"
    drawing = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    words = " ".join(part.strip() for part in drawing.itertext())
    assert "cuda:0" in words
    assert "parameters" in words


@pytest.mark.parametrize("trace", [data_parallel(2), Trace()], ids=["parallel", "empty"])
def test_a_trace_alone_has_a_page_too(opened, trace):
    page = opened(trace.to_html())
    page.get_by_role("tab", name="Trace").click()
    expect(page.locator(".dw-hop-row")).to_have_count(len(trace.moves))
