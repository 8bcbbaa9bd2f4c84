"""Pages in Chinese: of what a reader sees, nothing stays as it is in English but names, sizes and code."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

import devwidget
from devwidget.records.loading.json_io import dumps
from devwidget.report.page.html import panel_page
from tests.browser.esm import BarePage
from tests.sampling import as_slow
from tests.views.builders import data_parallel, one_step, split_model

# Notes on wrappers and shards are English in every language.
SEEN = """() => {
  const texts = new Set();
  const walker = document.createTreeWalker(document.getElementById("panel"), NodeFilter.SHOW_ALL);
  for (let node = walker.currentNode; node; node = walker.nextNode()) {
    const isText = node.nodeType === Node.TEXT_NODE;
    if (isText && !node.parentElement.closest("code, pre, option, style, .dw-spread .dw-words")) texts.add(node.data.trim());
    const names = ["title", "aria-label", "placeholder", "aria-valuetext"];
    for (const name of names) texts.add(node.getAttribute?.(name)?.trim() ?? "");
  }
  return [...texts];
}"""
WORD = re.compile(r"(?<![\w.:])[a-z]{2,}(?![\w.:(\[])|\b[A-Z][a-z]+ [a-z]+")
NAMES = {"dtype", "cpu", "cuda", "params", "rank", "plotly", "devwidget", "token", "min", "max", "grad", "ms"}


def panels():
    yield panel_page(split_model(), one_step())
    yield data_parallel(2).to_html()
    yield panel_page(split_model(), None)


def seen(page):
    """All texts of all tabs, with the row of a table and the detail of a rank opened."""
    page.locator(".dw").first.wait_for()
    texts = set(page.evaluate(SEEN))
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(150)
        texts |= set(page.evaluate(SEEN))
    if page.locator("[data-row]").count() > 1:
        page.locator("[role=tab]").first.click()
        page.locator("[data-row]").nth(1).click()
        texts |= set(page.evaluate(SEEN))
    return texts


@pytest.mark.parametrize("number", [0, *map(as_slow, (1, 2))])
def test_no_english_word_is_left_on_a_chinese_page(opened, number):
    records = dumps(split_model()) + dumps(one_step()) + dumps(data_parallel(2))
    check_languages(opened, lambda: [*panels()][number], records)


def check_languages(opened, make, records):
    """Open a page in both languages; what is said alike is a name, or stands in the records."""
    pages = []
    for language in ("en", "zh"):
        devwidget.set_language(language)
        try:
            pages.append(make())
        finally:
            devwidget.set_language("en")
    names = NAMES | set(re.findall(r"[A-Za-z]+", records))
    english, chinese = (seen(opened(text)) for text in pages)
    said_alike = {text for text in english & chinese if text.removesuffix("…") not in records}
    left = {text for text in said_alike if not set(WORD.findall(text)) <= names}
    assert left == set()
    assert len(chinese) > 20


def test_an_open_panel_is_drawn_anew_in_the_language_that_was_chosen(browser):
    panel = BarePage(browser, split_model(), one_step())
    page = panel.page
    page.locator("[data-row]").first.wait_for(state="attached")  # it opens on the verdict
    panel.update("panel", "words", {"Findings": "问题"})
    panel.update("panel", "words", {"Findings": "问题", "Modules": "模块", "expand": "展开"})
    page.get_by_role("tab", name="问题").click()
    assert page.locator(".dw-finding").count() == 2
    page.get_by_role("tab", name="模块").click()
    page.get_by_role("button", name="Expand all rows").click()
    assert page.locator(".dw-panel").count() == page.locator(".dw-modules").count() == 1
    assert page.locator(".dw-modules button").first.inner_text() == "展开"
    panel.close()


ONE = replace(one_step(), findings=(), checked=("wrong-device",), not_checked=())


def test_one_is_counted_as_one(opened):
    page = opened(panel_page(split_model(), ONE))
    page.get_by_role("tab", name="Findings").click()
    for text in ("1 check passed", "No findings: 1 check passed."):
        expect(page.locator(".dw-panel")).to_contain_text(text)
    expect(page.locator(".dw-panel")).not_to_contain_text("1 checks")
