"""The panel in a real JupyterLab, over hand-made records."""

import re

import pandas
import pytest
from playwright.sync_api import expect

import devwidget
from tests.browser.chromium import Watched
from tests.browser.lab import DARK, LIGHT
from tests.views.builders import one_step, split_model

CELLS = [
    "from tests.browser.handmade_panel import open_panel\npanel, fake = open_panel()\npanel",
    "import time\ntime.sleep(3)",
    "fake.gone = True",
    "other, _ = open_panel()\nother",
]


@pytest.fixture(scope="module")
def session(lab, browser):
    lab.write("panel.ipynb", CELLS)
    opened = lab.open(browser, "panel.ipynb")
    opened.run(0)
    yield opened
    opened.close()


def test_the_page_shows_a_row_for_every_module_and_a_bar_for_every_gpu(session):
    page = session.page
    expect(page.locator("[role=row][data-path='decoder.head'] .dw-chip")).to_have_text("cuda:1", timeout=15_000)
    assert page.locator(".dw-body [role=row]").count() == 8
    expect(page.locator(".dw-memory")).to_contain_text("7.00 MiB reserved of 16.0 MiB", timeout=15_000)
    assert page.locator(".dw-memory .point path").count() > 3
    session.shot("panel-light-1400")


def test_trace_batch_shows_findings_and_marks_the_row(session):
    page = session.page
    page.get_by_role("button", name="Trace batch").click()
    finding = page.locator(".dw-finding[data-kind='wrong-device']")
    expect(finding).to_contain_text('hidden = hidden.to("cuda:1")')
    expect(page.locator(".dw-status")).to_contain_text("2 errors")
    finding.get_by_role("button", name="decoder.head").click()
    expect(page.locator("[role=row][data-path='decoder.head']")).to_have_attribute("data-severity", "error")
    assert session.python("fake.threads") == "['MainThread']"
    assert "heal=True" in session.python("fake.requests")


def test_every_file_of_the_menu_can_be_opened_again(session, browser, tmp_path):
    def saved(entry):
        session.page.get_by_label("Export").click()
        with session.page.expect_download() as download:
            session.page.get_by_role("button", name=entry).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    assert devwidget.load(saved("Save snapshot as JSON")) == split_model()
    assert devwidget.load(saved("Save trace as JSON")) == one_step()
    assert "decoder.head.weight" in pandas.read_csv(saved("Save tensors as CSV")).to_string()
    assert saved("Save figure as PNG").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in saved("Save figure as SVG").read_text(encoding="utf-8")
    page = Watched(browser, offline=True)
    page.page.goto(saved("Save as HTML").as_uri())
    page.page.get_by_role("tab", name="Modules").click()
    expect(page.page.locator(".dw-memory .point path").first).to_be_attached()
    expect(page.page.locator("[data-path='decoder.head']")).to_have_attribute("data-severity", "error")
    page.close()


def test_a_click_while_a_cell_runs_waits_for_the_main_thread(session):
    page = session.page
    session.start(1)
    page.wait_for_timeout(700)
    page.get_by_role("button", name="Trace batch").click()
    expect(page.locator(".dw-status")).to_contain_text(re.compile("queued|asking"))
    expect(page.locator(".dw-status")).to_contain_text("2 errors", timeout=15_000)
    assert session.python("set(fake.threads)") == "{'MainThread'}"


def test_memory_bars_follow_a_long_cell_while_it_runs(session):
    session.python("panel.view.memory = {**panel.view.memory}", statements=True)
    session.page.get_by_role("tab", name="Modules").click()
    running = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'busy'"
    session.start(1)
    drawn = "document.querySelector('.dw-memory')?.textContent.includes('9.00 MiB reserved of 16.0 MiB')"
    session.page.wait_for_function(f"{running} && {drawn}", timeout=2900)


def test_errors_are_text_in_the_status_line(session):
    page = session.page
    page.get_by_label("batch", exact=True).fill("missing")
    page.keyboard.press("Enter")
    expect(page.locator(".dw-status")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator(".dw-status img").count() == 0


def test_command_mode_keys_do_not_reach_the_notebook(session):
    page = session.page
    before = page.locator(".jp-Cell").count()
    page.get_by_role("tab", name="Modules").click()
    page.get_by_role("treegrid").click()
    for key in ("x", "d", "d", "a", "b"):
        page.keyboard.press(key)
    assert page.locator(".jp-Cell").count() == before


def test_a_running_trace_can_be_cancelled(session):
    page = session.page
    page.get_by_label("batch", exact=True).fill("slow")
    page.get_by_role("button", name="Trace batch").click()
    expect(page.locator(".dw-status")).to_contain_text("forward")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".dw-status")).to_contain_text("cancelled", timeout=15_000)
    assert session.python("1 + 1") == "2"


def test_a_trace_that_waits_can_be_cancelled(session):
    page = session.page
    before = session.python("len(fake.requests)")
    session.start(1)
    page.wait_for_timeout(700)
    page.get_by_role("button", name="Trace batch").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".dw-status")).to_contain_text("cancelled", timeout=15_000)
    assert session.python("len(fake.requests)") == before


def test_a_panel_that_is_closed_goes_without_an_error(session):
    session.run(3)
    panels = session.page.locator(".dw-panel")
    expect(panels).to_have_count(2)
    session.python("other.close()", statements=True)
    session.page.wait_for_timeout(2500)  # a widget that could not start complains after two seconds
    assert session.watched.errors == []


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("width", [700, 1600])
def test_screenshots(session, theme, width):
    if session.python("panel.trace is None") == "True":  # when this test runs alone
        session.python("panel.run_trace()", statements=True)
    session.use_theme(theme)
    session.resize(width)
    session.hide_sidebar()
    for tab in ("Modules", "Findings", "Trace", "Memory"):
        session.page.get_by_role("tab", name=tab).click()
        session.page.wait_for_timeout(300)
        session.shot(f"panel-{tab.lower()}-{theme.split()[1].lower()}-{width}", ".dw-panel")


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_data_parallel_is_drawn_for_eight_gpus(session, theme):
    session.use_theme(theme)
    session.python("from tests.views.builders import data_parallel\npanel.show_trace(data_parallel(8))", statements=True)
    session.page.locator(".dw-panel").get_by_role("tab", name="Devices").click()
    expect(session.page.locator("[data-mark=block][data-what=replica]")).to_have_count(8)
    expect(session.page.locator(".dw-replica")).to_have_count(8)
    for width in (700, 1600):
        session.resize(width, 1300)
        session.page.wait_for_timeout(300)
        session.shot(f"panel-devices-{theme.split()[1].lower()}-{width}", ".dw-panel")


def test_a_deleted_model_and_a_restarted_kernel_are_told(session):
    page = session.page
    session.run(2)
    expect(page.locator(".dw-banner")).to_contain_text("The model was deleted")
    session.restart_kernel()
    expect(page.locator(".dw-banner")).to_contain_text("The kernel was restarted", timeout=20_000)
