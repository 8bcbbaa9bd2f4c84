"""The card that comes below an exception in a real JupyterLab: nothing is typed, and its button edits the cell."""

import pytest
from playwright.sync_api import expect

CELLS = [
    "%load_ext devwidget\n%devwidget simulate 1 1GiB",
    'import torch\nnet = torch.nn.Linear(4, 4).to("cuda:0")',
    "x = torch.ones(2, 4)",
    "net(x)",
    "1 / 0",
    "%devwidget fix apply",
]
EDITED = "x = torch.ones(2, 4, device='cuda:0')"


def source(session, cell):
    return session.page.evaluate(
        "(n) => window.jupyterapp.shell.currentWidget.model.cells.get(n).sharedModel.getSource()", cell
    )


@pytest.fixture
def session(lab, browser):
    lab.write("error.ipynb", CELLS)
    opened = lab.open(browser, "error.ipynb")
    for cell in range(3):
        opened.run(cell)
    opened.run(3, must_succeed=False)
    yield opened
    opened.close()


def test_an_exception_brings_its_card_whose_button_edits_the_cell_and_undoes_that(session):
    card = session.page.locator(".dw-card")
    expect(card).to_contain_text("linear got tensors on cpu and cuda:0")
    expect(card).to_have_count(1)
    session.shot("error-card-folded")
    traceback = session.page.locator(".jp-OutputArea-child").filter(has_text="Traceback (most recent call last)")
    expect(traceback).to_be_hidden()
    card.get_by_text("traceback", exact=True).click()
    expect(traceback).to_be_visible()
    session.shot("error-card")
    card.get_by_role("button", name="Apply").click()
    expect(card).to_contain_text("Edited In[3]:1. Run its cell and the cells below it again.")
    assert source(session, 2) == EDITED
    card.get_by_role("button", name="Undo").click()
    expect(card.get_by_role("button", name="Apply")).to_be_visible()
    assert source(session, 2) == CELLS[2]
    failed = session.notebook().cells[3].outputs
    assert failed[0].output_type == "error"
    assert "linear.py" in "".join(failed[0].traceback)
    assert "created at In[3]:1" in failed[1].data["text/html"]
    session.run(4, must_succeed=False)
    expect(card).to_have_count(1)


def test_fix_apply_edits_the_cell_and_says_so(session):
    session.run(5)
    said = session.page.locator(".dw-card").nth(1)
    expect(said).to_contain_text("Edited In[3]:1. Run its cell and the cells below it again.")
    assert source(session, 2) == EDITED
    session.run(2)
    session.run(3)
    expect(session.page.locator(".dw-card")).to_have_count(1)
    session.run(5)
    expect(session.page.locator(".dw-card")).to_contain_text("line 1 of In[3] has changed")
