"""A notebook that is opened again, its kernel gone: the panel as it was saved, and never an error."""

import io

import pytest
from PIL import Image
from playwright.sync_api import expect

from devwidget.records.loading.saved_notebooks import MIME
from tests.browser.lab import DARK, LIGHT

CELLS = [
    """import torch, devwidget
devwidget.simulate(2, memory="64MiB").start()

class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.read = torch.nn.Linear(8, 8)

    def forward(self, rows):
        hidden = torch.zeros(8)
        return self.read(rows) + hidden

net, rows = Reader().to("cuda:0"), torch.ones(2, 8, device="cuda:0")""",
    "panel = devwidget.show(net, rows)\npanel",
    "net.to('cuda:1'); rows = rows.to('cuda:1')",
]
GONE = ("Comm not found", "widget model not found")
"""What Jupyter itself says in the console where the kernel of a widget is gone."""
HAS_TRACE = "(mime) => JSON.stringify(window.jupyterapp.shell.currentWidget.content.model.toJSON()).includes(mime)"
SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"


def forget_what_jupyter_says(session):
    errors = session.watched.errors
    errors[:] = [text for text in errors if not any(words in text for words in GONE)]


@pytest.mark.slow
def test_what_is_saved_follows_every_trace_and_change_of_devices_and_is_shown_without_a_kernel(lab, browser):
    lab.write("followed.ipynb", CELLS)
    session = lab.open(browser, "followed.ipynb")
    session.run(0)
    session.run(1)
    cell = session.page.locator(".jp-Cell").nth(1)
    saved, live = cell.locator(".dw-saved"), cell.locator(".dw-panel")
    expect(live).to_be_visible()
    expect(saved).not_to_contain_text("wrong-device")
    live.get_by_role("button", name="Trace batch").click()
    expect(saved).to_contain_text("error[wrong-device]")
    expect(saved).to_be_hidden()
    session.run(2)
    expect(saved).to_contain_text("cuda:1 288 B")
    expect(live.locator(".dw-status")).to_contain_text("The model was moved after this trace")
    live.get_by_label("batch", exact=True).fill("rows")
    live.get_by_role("button", name="Trace batch").click()
    expect(saved).to_contain_text("cpu and cuda:1")
    session.page.evaluate(SAVE)
    session.restart_kernel()
    forget_what_jupyter_says(session)
    session.close()
    reopened = lab.open(browser, "followed.ipynb")
    shown = reopened.page.locator(".jp-Cell").nth(1)
    expect(shown.locator(".dw-saved")).to_be_visible()
    for words in ("cpu and cuda:1", "cuda:1 288 B"):
        expect(shown.locator(".dw-saved")).to_contain_text(words)
    expect(shown.get_by_text("Error displaying widget")).to_be_hidden()
    for theme, brightness in ((LIGHT, 255), (DARK, 28)):
        reopened.use_theme(theme)
        picture = Image.open(io.BytesIO(shown.locator(".dw-saved img").last.screenshot()))
        assert picture.convert("RGB").getpixel((2, 40))[0] == pytest.approx(brightness, abs=20)
    reopened.use_theme(LIGHT)
    forget_what_jupyter_says(reopened)
    reopened.close()


def test_a_panel_of_a_new_kernel_compares_with_the_trace_that_the_notebook_has_saved(lab, browser):
    lab.write("continued.ipynb", CELLS)
    session = lab.open(browser, "continued.ipynb")
    session.run(0)
    session.run(1)
    panel = session.page.locator(".dw-panel")
    panel.get_by_role("button", name="Trace batch").click()
    session.page.wait_for_function(HAS_TRACE, arg=MIME, timeout=60_000)
    session.page.evaluate(SAVE)
    session.restart_kernel()
    session.wait_ready()
    session.run(0)
    session.run(1)
    panel = session.page.locator(".dw-panel:not(.dw-stale)")
    expect(panel.locator(".dw-status")).to_contain_text("The next trace is compared with it", timeout=60_000)
    session.python("Reader.forward = lambda self, rows: self.read(rows)", statements=True)
    panel.get_by_role("button", name="Trace batch").click()
    expect(panel.locator(".dw-compared")).to_contain_text("1 finding fixed", timeout=60_000)
    forget_what_jupyter_says(session)
    session.close()
