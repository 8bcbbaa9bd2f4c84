"""Findings, hops, rows of the tree and marks of the timeline lead to each other."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from devwidget.report.page.content import memory_content, tree_content
from devwidget.views.placement import tabulate_snapshot
from tests.browser.esm import BarePage
from tests.views.builders import CPU, GIB, MIB, one_step, split_model

FINDINGS = (replace(one_step().findings[0], explains=(13,)), one_step().findings[1])
TRACE = replace(one_step(), findings=FINDINGS, virtual_gpus=0)  # timed on real devices


@pytest.fixture
def bare(browser):
    opened = BarePage(browser, split_model(), TRACE, plotly=True)
    yield opened
    opened.close()


def tab(bare, name):
    return bare.page.get_by_role("tab", name=name)


def line(bare):
    """The line on the timeline that points at a place."""
    return bare.page.locator(".dw-timeline .shapelayer path[style*='dasharray: 9']")


def test_a_finding_leads_to_its_place_in_the_trace(bare):
    tab(bare, "Findings").click()
    bare.page.locator(".dw-found").first.get_by_role("button", name="in the trace").click()
    expect(tab(bare, "Trace")).to_have_attribute("aria-selected", "true")
    expect(line(bare)).to_have_count(1)


def test_a_row_leads_to_its_hops_and_findings(bare):
    bare.page.locator("[data-path='decoder']").click()
    bare.page.locator(".dw-detail").get_by_role("button", name="in the trace").click()
    expect(line(bare)).to_have_count(1)
    tab(bare, "Modules").click()
    bare.page.locator("[data-path='encoder.attention']").click()
    bare.page.get_by_role("button", name="why and how to fix").click()
    expect(bare.page.locator(".dw-found").nth(1)).to_be_focused()


def test_the_axis_of_the_bars_is_broken_behind_what_is_in_use(bare):
    bare.update("panel", "memory", memory_content([replace(split_model().memory[0], total=GIB, free=GIB - 7 * MIB)], None))
    ticks = bare.page.locator(".dw-memory .xtick text")
    expect(ticks.last).to_have_text("1.00 GiB")
    assert "MiB" in ticks.nth(1).text_content()
    expect(bare.page.locator(".dw-memory .annotation-text")).to_have_text("//")


def test_the_timeline_has_an_axis_of_events_and_one_of_time(bare):
    tab(bare, "Trace").click()
    expect(bare.page.locator(".dw-seen")).to_contain_text("order of events")
    bare.page.get_by_role("button", name="by time").click()
    expect(bare.page.locator(".dw-seen")).to_contain_text("CPU time")
    bare.page.get_by_role("button", name="by order").click()
    expect(bare.page.locator(".dw-seen")).to_contain_text("order of events")


def test_a_figure_is_drawn_once_for_a_theme_and_a_hidden_one_when_it_is_shown(bare):
    tab(bare, "Memory").click()
    bare.page.locator(".dw-steps .main-svg").first.wait_for()
    tab(bare, "Modules").click()
    bare.page.evaluate("""() => {
        const { react } = moduleName;
        window.drawn = 0;
        moduleName.react = (plot, ...rest) => {
            if (plot.closest('.dw-steps')) window.drawn += 1;
            return react(plot, ...rest);
        };
    }""")
    bare.page.emulate_media(color_scheme="dark")
    bare.page.wait_for_timeout(200)
    assert bare.page.evaluate("window.drawn") == 0
    for _ in range(2):
        tab(bare, "Memory").click()
        bare.page.wait_for_function("window.drawn === 1")
        tab(bare, "Modules").click()
    tab(bare, "Memory").click()
    bare.page.emulate_media(color_scheme="light")
    bare.page.wait_for_function("window.drawn === 2")


def test_an_open_drawer_follows_a_model_that_is_moved(bare):
    bare.page.locator("[data-path='decoder.head']").click()
    drawer = bare.page.locator(".dw-detail")
    expect(drawer.locator(".dw-table .dw-chip").first).to_have_text("cuda:1")
    model = split_model()
    moved = [replace(each, tensors=tuple(replace(tensor, device=CPU) for tensor in each.tensors)) for each in model.modules]
    snapshot = replace(model, modules=tuple(moved))
    bare.update("panel", "table", tree_content(snapshot, tabulate_snapshot(snapshot)))
    expect(drawer.locator(".dw-table .dw-chip").first).to_have_text("cpu")
    smaller = replace(model, modules=model.modules[:3])
    bare.update("panel", "table", tree_content(smaller, tabulate_snapshot(smaller)))
    expect(drawer).to_be_hidden()
