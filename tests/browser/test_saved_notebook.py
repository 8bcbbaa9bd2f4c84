"""A notebook that is opened again, its kernel gone: the panel as it was saved, and never an error."""

import io
import pathlib

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.lab import DARK, LIGHT

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
CELLS = [
    "import torch, devwidget\nnet = torch.nn.Linear(2, 3)",
    "panel = devwidget.show(net, torch.ones(1, 2))\npanel.run_trace()\npanel",
    "panel.close()",
]
GONE = ("Comm not found", "widget model not found")
"""What Jupyter itself says in the console where the kernel of a widget is gone."""
SAVE = "() => window.jupyterapp.commands.execute('docmanager:save')"


def cell(session):
    return session.page.locator(".jp-Cell").nth(1)


@pytest.fixture
def saved(lab, browser):
    """A notebook with a live panel, and what opens it again after it was saved."""
    lab.write("saved.ipynb", CELLS)
    opened = [lab.open(browser, "saved.ipynb")]
    opened[0].run(0)
    opened[0].run(1)
    expect(opened[0].page.locator(".dw-panel")).to_be_visible(timeout=20_000)

    def again():
        opened[0].page.evaluate(SAVE)
        opened.append(lab.open(browser, "saved.ipynb"))
        return opened[-1]

    yield opened[0], again
    for session in opened:
        errors = session.watched.errors
        errors[:] = [text for text in errors if not any(words in text for words in GONE)]
        session.close()


def test_with_a_kernel_there_is_only_the_live_panel(saved):
    session, _ = saved
    expect(cell(session).locator(".dw-saved")).to_be_hidden()
    session.run(2)
    expect(session.page.locator(".dw-panel")).to_have_count(0)
    expect(cell(session).locator(".dw-saved")).to_be_hidden()


def test_without_its_kernel_the_panel_is_shown_as_it_was_saved(saved):
    session, again = saved
    session.page.evaluate(SAVE)
    session.restart_kernel()
    reopened = again()
    expect(cell(reopened).locator(".dw-saved")).to_be_visible()
    expect(cell(reopened).locator(".dw-saved")).to_contain_text("no findings")
    expect(cell(reopened).get_by_text("Error displaying widget")).to_be_hidden()


def test_saved_pictures_are_as_dark_as_the_theme(saved):
    session, again = saved
    session.page.evaluate(SAVE)
    session.restart_kernel()
    reopened = again()
    picture = cell(reopened).locator(".dw-saved img").last
    for theme, brightness in ((LIGHT, 255), (DARK, 28)):
        reopened.use_theme(theme)
        corner = Image.open(io.BytesIO(picture.screenshot())).convert("RGB").getpixel((2, 40))
        assert corner[0] == pytest.approx(brightness, abs=20)


FAULTY = [
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


def test_what_is_saved_follows_every_trace_and_every_change_of_devices(lab, browser):
    lab.write("followed.ipynb", FAULTY)
    session = lab.open(browser, "followed.ipynb")
    session.run(0)
    session.run(1)
    saved, live = cell(session).locator(".dw-saved"), cell(session).locator(".dw-panel")
    expect(live).to_be_visible(timeout=20_000)
    expect(saved).not_to_contain_text("wrong-device")
    live.get_by_role("button", name="Trace batch").click()
    expect(live.locator(".dw-found").first).to_be_visible()
    expect(saved).to_contain_text("error[wrong-device]")
    expect(saved).to_be_hidden()
    session.run(2)
    expect(saved).to_contain_text("cuda:1 288 B")
    expect(live.locator(".dw-status")).to_contain_text("The model has been moved since this trace")
    live.get_by_label("batch", exact=True).fill("rows")
    live.get_by_role("button", name="Trace batch").click()
    expect(saved).to_contain_text("cpu and cuda:1")
    session.page.evaluate(SAVE)
    session.restart_kernel()
    reopened = lab.open(browser, "followed.ipynb")
    expect(cell(reopened).locator(".dw-saved")).to_be_visible()
    expect(cell(reopened).locator(".dw-saved")).to_contain_text("cpu and cuda:1")
    expect(cell(reopened).locator(".dw-saved")).to_contain_text("cuda:1 288 B")
    for each in (session, reopened):
        each.watched.errors[:] = [text for text in each.watched.errors if not any(words in text for words in GONE)]
        each.close()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_our_notebooks_show_their_panels_before_anything_has_run(lab, browser, path):
    session = lab.open(browser, lab.copy(path))
    expect(session.page.locator(".dw-saved").first).to_be_visible()
    expect(session.page.get_by_text("Error displaying widget")).to_have_count(0)
    session.close()
