"""The panel in a real JupyterLab, in one notebook: what needs a kernel, and a page around it."""

import re

import pandas
import pytest
from playwright.sync_api import expect

import devwidget
from tests.browser.chromium import Watched
from tests.views.builders import one_step, split_model

pytestmark = pytest.mark.slow
CELLS = {
    "start": "%load_ext devwidget\n%devwidget simulate 2 1GiB\nimport pathlib, time, torch, devwidget\nfrom torch import nn",
    "panel": "from tests.browser.handmade_panel import open_panel\npanel, fake = open_panel()\npanel",
    "busy": "while not pathlib.Path('go').exists():\n    time.sleep(0.1)\npathlib.Path('go').unlink()",
    "other": "other, _ = open_panel()\nother",
    "nameless": "devwidget.show(nn.Linear(8, 4).cuda(), torch.ones(2, 8))",
    "nothing": "print('another cell')",
    "chatty": """class Chatty(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
    def forward(self, tokens):
        for layer in self.layers:
            tokens = layer(tokens)
            time.sleep(self.pause)
        print("sum", round(float(tokens.detach().sum() * 0)))
        return tokens if not self.asks else input("go on? ")
    pause, asks = 0.8, False
chatty = Chatty().cuda()
batch, tokens = torch.ones(3, 8, device="cuda"), torch.ones(2, 8, device="cuda")
own = devwidget.show(chatty)
own""",
    "gone": "fake.gone = True",
}
IS_BUSY = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'busy'"


@pytest.fixture(scope="module")
def session(lab, browser):
    lab.write("panel.ipynb", list(CELLS.values()))
    opened = lab.open(browser, "panel.ipynb")
    run(opened, "start")
    run(opened, "panel")
    yield opened
    opened.close()


def run(session, name):
    """Run a cell; what stands there."""
    number = list(CELLS).index(name)
    session.run(number)
    return session.page.locator(".jp-Cell").nth(number)


@pytest.fixture
def shown(session):
    """The panel over hand-made records, with the batch that its tests begin with."""
    panel = session.page.locator(".jp-Cell").nth(1).locator(".dw-panel")
    panel.get_by_label("batch", exact=True).fill("batch")
    return panel


@pytest.fixture
def busy(session, lab):
    """A cell that runs until it is told to end; the kernel calls itself idle after each message, so its file says when."""
    session.start(list(CELLS).index("busy"))
    session.page.wait_for_function(IS_BUSY)
    told = lab.notebooks / "go"
    ended = []

    def end():
        if not ended:
            ended.append(told.touch())
        while told.exists():
            session.page.wait_for_timeout(50)

    yield end
    end()


def test_every_file_of_the_menu_can_be_opened_again(session, shown, browser, tmp_path):
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-status")).to_contain_text("2 errors")
    assert session.python("fake.threads") == "['MainThread']"

    def saved(entry):
        shown.get_by_label("Export").click()
        with session.page.expect_download() as download:
            shown.get_by_role("button", name=entry).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    assert devwidget.load(saved("Save snapshot as JSON")) == split_model()
    assert devwidget.load(saved("Save trace as JSON")) == one_step()
    assert "decoder.head.weight" in pandas.read_csv(saved("Save tensors as CSV")).to_string()
    page = Watched(browser, offline=True)
    page.page.goto(saved("Save as HTML").as_uri())
    page.page.get_by_role("tab", name="Modules").click()
    expect(page.page.locator("[data-path='decoder.head']")).to_have_attribute("data-severity", "error")
    page.close()


def test_a_click_while_a_cell_runs_waits_for_the_main_thread(session, shown, busy):
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-status")).to_contain_text("queued")
    busy()
    expect(shown.locator(".dw-status")).to_contain_text("2 errors")
    assert session.python("set(fake.threads)") == "{'MainThread'}"


def test_memory_bars_follow_a_long_cell_while_it_runs(session, shown, busy):
    shown.get_by_role("tab", name="Modules").click()
    expect(shown.locator(".dw-memory")).to_contain_text("9.00 MiB reserved of 16.0 MiB")
    assert session.page.evaluate(IS_BUSY)


def test_a_trace_that_waits_can_be_cancelled(session, shown, busy):
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-status")).to_contain_text("queued")
    shown.get_by_role("button", name="Cancel").click()
    expect(shown.locator(".dw-status")).to_contain_text("cancelled")


def test_a_running_trace_can_be_cancelled(session, shown):
    shown.get_by_label("batch", exact=True).fill("slow")
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-status")).to_contain_text("forward")
    shown.get_by_role("button", name="Cancel").click()
    expect(shown.locator(".dw-status")).to_contain_text("cancelled")
    assert session.python("1 + 1") == "2"


def test_command_mode_keys_do_not_reach_the_notebook(session, shown):
    shown.get_by_role("tab", name="Modules").click()
    shown.get_by_role("treegrid").click()
    for key in ("x", "d", "d", "a", "b"):
        session.page.keyboard.press(key)
    assert session.page.locator(".jp-Cell").count() == len(CELLS)


def test_a_panel_that_is_closed_goes_without_an_error(session):
    cell = run(session, "other")
    expect(cell.locator(".dw-panel")).to_have_count(1)
    session.python("other.close()", statements=True)
    expect(cell.locator(".dw-panel")).to_have_count(0)
    expect(cell.locator(".dw-saved")).to_be_hidden()
    session.page.wait_for_timeout(2500)  # a widget that could not start complains after two seconds
    assert session.watched.errors == []


def test_a_model_without_a_name_stays_as_long_as_its_panel(session):
    panel = run(session, "nameless").locator(".dw-panel")
    run(session, "nothing")
    expect(panel.locator(".dw-title")).to_have_text("Linear")
    expect(panel.locator(".dw-banner")).to_be_hidden()
    panel.get_by_role("button", name="Trace batch").click()
    expect(panel.locator(".dw-finding").first).to_be_visible()


def test_a_step_says_where_it_is_and_what_it_prints_and_must_not_ask(session):
    panel = run(session, "chatty").locator(".dw-panel")
    expect(panel.get_by_label("batch", exact=True)).to_have_value("tokens")  # as the argument of forward is called
    trace = panel.get_by_role("button", name="Trace batch")
    trace.click()
    expect(panel.locator(".dw-status")).to_contain_text(re.compile(r"layers\.\d.*\d+ %"))
    expect(panel.locator(".dw-printed pre")).to_have_text("sum 0\n")
    panel.get_by_role("tab", name="Modules").click()
    panel.locator("[data-path='layers']").click()
    expect(panel.locator(".dw-detail")).to_be_visible()
    session.python("chatty.pause, chatty.asks = 0.0, True", statements=True)
    assert session.python("own.selected") == "'layers'"
    trace.click()
    expect(panel.locator(".dw-found >> nth=0")).to_contain_text("because no cell is running")


def test_a_deleted_model_and_a_restarted_kernel_are_told(session, shown):
    run(session, "gone")
    expect(shown.locator(".dw-banner")).to_contain_text("The model was deleted")
    session.restart_kernel()
    expect(shown.locator(".dw-banner")).to_contain_text("The kernel was restarted")
