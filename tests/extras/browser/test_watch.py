"""A watched run in a page: its steps along one axis, memory below, and each mark and recorded step opens that step."""

import pytest
from playwright.sync_api import expect

from devwidget.extras.watch.page import run_head, watched_content
from devwidget.extras.watch.records.run import RecordedStep, StepTable, WatchedRun
from devwidget.records.finding import Finding
from devwidget.records.snapshot import Snapshot
from devwidget.report.page.content import head_content
from devwidget.views.placement import PlacementTable
from tests.browser.esm import BarePage
from tests.views.builders import MIB, one_step

GROWTH = Finding(
    "memory-growth", "warning", None, "allocated memory of cuda:0 has grown by 16 KiB a step since step 64", why=""
)

NOTHING = Snapshot(())


def watched(steps=400, recorded=(10, 128), findings=((GROWTH, 64),)):
    table = StepTable()
    for step in range(steps):
        sizes = {"cuda:0 allocated": MIB + 16384 * step, "cuda:0 reserved": 8 * MIB, "cuda:0 peak": 2 * MIB}
        times = {"data": 500 + step % 7, "forward": 1000, "backward": 2000, "optimizer": 300}
        table.add_step({"first": step, "count": 1, "recorded": step in recorded, **times, **sizes})
    kept = tuple(RecordedStep(number, "first steps done", one_step()) for number in recorded)
    found, first_steps = zip(*findings, strict=True) if findings else ((), ())
    return WatchedRun("Reader", table.make_rows(), findings=found, first_steps=first_steps, recorded_steps=kept)


@pytest.fixture
def shown(browser):
    run = watched()
    state = {"watched": watched_content(run), "opens": "Watch", "head": head_content(NOTHING, PlacementTable()) | run_head(run)}
    bare = BarePage(browser, NOTHING, plotly=True, state=state)
    expect(bare.page.locator(".dw-watch .main-svg").first).to_be_visible()
    yield bare
    bare.close()


def asked(bare):
    return [message["step"] for message in bare.sent("recorded")]


def click_mark(bare, name, number=0):
    """The mark of a figure, as the mouse finds it."""
    box = bare.page.locator(".dw-watch .scatterlayer .trace:has(.point)").nth(name).locator(".point").nth(number).bounding_box()
    bare.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    bare.page.mouse.down()
    bare.page.mouse.up()


def test_a_run_without_its_model_opens_at_its_tab_and_asks_for_no_batch(shown):
    expect(shown.page.get_by_role("tab", name="Watch")).to_have_attribute("aria-selected", "true")
    expect(shown.page.locator(".dw-watch-summary")).to_have_text("Watched run of Reader: 400 steps, 1 finding")
    expect(shown.page.locator(".dw-title")).to_have_text("Reader")
    expect(shown.page.locator(".dw-facts")).to_have_text("400 steps · cuda:0: peak 2.00 MiB")
    expect(shown.page.get_by_role("button", name="Trace batch")).to_be_hidden()
    expect(shown.page.get_by_role("tab", name="Modules")).to_be_hidden()
    expect(shown.page.locator(".dw-finding-line h4")).to_have_text(GROWTH.headline)


def test_a_recorded_step_is_opened_with_the_keyboard(shown):
    shown.answer("recorded", {})
    shown.page.get_by_role("button", name="open step 128").press("Enter")
    expect(shown.page.get_by_role("tab", name="Trace")).to_have_attribute("aria-selected", "true")
    assert asked(shown) == [128]


def test_a_click_on_a_mark_opens_the_step_that_shows_what_was_found(shown):
    shown.answer("recorded", {})
    click_mark(shown, 1)
    expect(shown.page.get_by_role("tab", name="Trace")).to_have_attribute("aria-selected", "true")
    assert asked(shown) == [128]


def test_a_run_that_goes_on_is_drawn_again_and_what_comes_too_late_is_not(shown):
    shown.update("panel", "watched", watched_content(watched(500)) | {"drawn": 2})
    expect(shown.page.locator(".dw-watch-summary")).to_contain_text("500 steps")
    shown.update("live", "watched", watched_content(watched(600)) | {"over": 2})
    expect(shown.page.locator(".dw-watch-summary")).to_contain_text("600 steps")
    shown.update("panel", "watched", watched_content(watched(700)) | {"drawn": 3})
    expect(shown.page.locator(".dw-watch-summary")).to_contain_text("700 steps")
