"""Apply and trace again, pressed in a real JupyterLab: the edit is in the cell, the trace runs, and Undo takes it back."""

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab

CELLS = [
    "import torch\nfrom torch import nn\nimport devwidget\ndevwidget.simulate(gpus=2).start()",
    "\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(4, 4)\n\n"
    "    def forward(self, x):\n        shift = torch.ones(4)\n        return self.layer(x) + shift",
    'model = Net().to("cuda:0")\nbatch = torch.randn(3, 4, device="cuda:0")',
    "devwidget.show(model, batch)",
    "rows = torch.randn(3, 4)",
    'layer = nn.Linear(4, 2).to("cuda:0")\ndevwidget.show(layer, rows)',
]
BUILDS = [
    "%load_ext devwidget\n%devwidget simulate 2",
    "import torch\nfrom torch import nn\nimport devwidget\n\n"
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(8, 8)\n"
    "        self.scale = torch.ones(8)\n        self.shift = torch.ones(8)\n\n"
    "    def forward(self, x):\n        return self.layer(x) * self.scale + self.shift\n\n"
    'model = Net().to("cuda:0")\nx = torch.randn(4, 8, device="cuda:0")',
]
SHOWN = "devwidget.show(model, x)"
MENDED = "        shift = torch.ones(4, device=x.device)"


def source(session, cell):
    return session.page.evaluate(
        "(n) => window.jupyterapp.shell.currentWidget.model.cells.get(n).sharedModel.getSource()", cell
    )


@pytest.fixture(scope="module")
def session(lab, browser):
    lab.write("apply.ipynb", CELLS)
    opened = lab.open(browser, "apply.ipynb")
    opened.run_all()
    yield opened
    opened.close()


def test_two_clicks_from_the_panel_to_the_mended_step_and_one_back(session):
    shown = session.page.locator(".dw-panel").first
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-verdict")).to_contain_text("shift", timeout=60_000)
    expect(shown.locator(".dw-verdict mark")).to_have_text(", device=x.device")
    shown.get_by_role("button", name="Apply and trace again").click()
    expect(shown.locator(".dw-verdict")).to_contain_text("and traced again", timeout=60_000)
    assert MENDED in source(session, 1).split("\n")
    expect(shown.locator(".dw-compared")).to_contain_text("1 finding fixed, 0 new, 0 left; 1 transfer fewer")
    expect(shown.get_by_role("button", name="Undo")).to_be_focused()
    assert session.python("model(batch).device") == "device(type='cuda', index=0)"
    shown.get_by_role("button", name="Undo").click()
    expect(shown.get_by_role("button", name="Apply and trace again")).to_be_visible(timeout=60_000)
    assert source(session, 1) == CELLS[1]


@pytest.mark.slow
def test_ctrl_z_in_the_cell_takes_back_the_functions_too(session):
    shown = session.page.locator(".dw-panel").first
    shown.get_by_role("button", name="Trace batch").click()
    shown.get_by_role("button", name="Apply and trace again").click(timeout=60_000)
    expect(shown.locator(".dw-verdict")).to_contain_text("and traced again", timeout=60_000)
    session.page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".cm-line", has_text="device=x.device").click()
    session.page.keyboard.press("Control+z")
    expect(shown.get_by_role("button", name="Apply and trace again")).to_be_visible(timeout=60_000)
    assert source(session, 1) == CELLS[1]
    assert "Expected all tensors" in session.python("__import__('devwidget').trace(model, batch, heal=False).error")


@pytest.mark.slow
def test_the_panel_opens_in_the_side_bar_and_both_views_show_the_same(session):
    shown = session.page.locator(".dw-panel").first
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.get_by_role("button", name="Trace batch")).to_be_enabled(timeout=60_000)
    expect(shown.get_by_role("button", name="Apply and trace again")).to_be_visible(timeout=60_000)
    shown.get_by_label("Export").click()
    shown.get_by_role("button", name="Open in the side bar").click()
    side = session.page.locator("#jp-right-stack .dw-panel")
    expect(side.get_by_role("button", name="Apply and trace again")).to_be_visible(timeout=30_000)
    assert side.bounding_box()["width"] > 400
    side.get_by_role("tab", name="Trace").click()
    expect(side.locator(".dw-lanes")).to_be_visible()
    session.page.get_by_role("button", name="Close", exact=True).click()
    expect(side).to_have_count(0)
    expect(shown).to_be_visible()


@pytest.mark.slow
def test_a_line_at_the_top_of_a_cell_is_traced_once_its_cell_has_run_again(session):
    shown = session.page.locator(".dw-panel").nth(1)
    shown.get_by_role("button", name="Trace batch").click()
    shown.get_by_role("button", name="Apply and trace again").click(timeout=60_000)
    expect(shown.locator(".dw-verdict")).to_contain_text("re-run the cell to take effect")
    assert source(session, 4).endswith("device='cuda:0')") or source(session, 4).endswith('device="cuda:0")')
    shown.get_by_role("button", name="Run cell and trace").click()
    expect(shown.locator(".dw-verdict")).to_contain_text("and traced again", timeout=60_000)
    expect(shown.locator(".dw-verdict")).to_contain_text("The change is live")


WITH_SHOW = [BUILDS[0], f"{BUILDS[1]}\n{SHOWN}"]
PLACES = [pytest.param([*BUILDS, SHOWN], id="beside"), pytest.param(WITH_SHOW, id="with-show", marks=pytest.mark.slow)]


@pytest.mark.parametrize("cells", PLACES)
def test_a_cell_that_builds_the_model_again_is_traced_on_the_new_one_twice_and_nothing_is_asked(cells, lab, browser):
    lab.write("build.ipynb", cells)
    session = lab.open(browser, "build.ipynb")
    session.run_all()
    shown = session.page.locator(".dw-panel")
    shown.get_by_role("button", name="Trace batch").click()
    for left in (1, 0):
        shown.get_by_role("button", name="Apply and trace again").click(timeout=60_000)
        shown.get_by_role("button", name="Run cell and trace").click(timeout=60_000)
        expect(shown.locator(".dw-compared")).to_contain_text(f"1 finding fixed, 0 new, {left} left", timeout=60_000)
        expect(shown.locator(".dw-verdict")).to_contain_text("and traced again")
        expect(shown.locator(".dw-banner")).to_be_hidden()
        expect(shown).to_have_count(1)
    shown.get_by_role("button", name="Undo").click()
    expect(shown.locator(".dw-verdict")).to_contain_text("1 left", timeout=60_000)
    session.close()


@pytest.mark.slow
def test_a_cell_that_was_deleted_leaves_the_new_lines_on_the_clipboard(session):
    session.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = session.page.locator(".dw-panel").first
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.get_by_role("button", name="Apply and trace again")).to_be_visible(timeout=60_000)
    session.page.evaluate("() => window.jupyterapp.shell.currentWidget.model.sharedModel.deleteCell(1)")
    shown.get_by_role("button", name="Apply and trace again").click()
    expect(shown.locator(".dw-verdict")).to_contain_text("The new lines are on the clipboard")
    assert session.page.evaluate("() => navigator.clipboard.readText()") == MENDED


@pytest.mark.slow
def test_notebook_7_does_the_same(tmp_path, browser):
    with Lab(tmp_path, app="notebook") as notebook:
        notebook.write("apply.ipynb", CELLS[:4])
        session = notebook.open(browser, "apply.ipynb")
        session.watched.errors.clear()  # Notebook 7 complains about a missing settings schema while it starts
        session.run_all()
        shown = session.page.locator(".dw-panel")
        shown.get_by_role("button", name="Trace batch").click()
        shown.get_by_role("button", name="Apply and trace again").click(timeout=60_000)
        expect(shown.locator(".dw-verdict")).to_contain_text("and traced again", timeout=60_000)
        assert MENDED in source(session, 1).split("\n")
        session.close()
