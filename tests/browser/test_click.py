"""Trace batch pressed in a real JupyterLab: what a person does, with no line of theirs above the step."""

import pytest
from playwright.sync_api import expect

CELLS = [
    "import torch\nfrom torch import nn\nimport devwidget\ndevwidget.simulate(gpus=2).start()",
    'model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("cuda:0")\n'
    'batch = torch.randn(3, 4, device="cuda:0")\nloss_fn = nn.CrossEntropyLoss()\nlabels = torch.tensor([0, 1, 1])\n'
    "devwidget.show(model, batch, loss_fn=loss_fn, target=labels)",
    "layer = nn.Linear(4, 2).cuda()\nrows = torch.randn(3, 4)\npanel = devwidget.show(layer, rows)\npanel",
]


@pytest.fixture(scope="module")
def session(lab, browser):
    lab.write("click.ipynb", CELLS)
    opened = lab.open(browser, "click.ipynb")
    opened.run_all()
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("panel", "name", "made"),
    [(0, "labels", "labels = torch.tensor([0, 1, 1]"), (1, "rows", "rows = torch.randn(3, 4")],
    ids=["labels beside a loss of torch", "a batch beside a bare layer"],
)
def test_a_click_names_the_tensor_and_the_line_that_made_it(session, panel, name, made):
    shown = session.page.locator(".dw-panel").nth(panel)
    shown.get_by_role("button", name="Trace batch").click()
    finding = shown.locator(".dw-finding[data-kind='wrong-device']")
    expect(finding).to_contain_text(f"{name} was made on cpu", timeout=30_000)
    expect(finding).to_contain_text(f"{made}, device='cuda:0')")
    expect(finding).not_to_contain_text("devwidget.show")
    expect(shown.locator(".dw-status")).to_contain_text("1 error")


def test_a_wrong_name_takes_the_place_of_what_was_found(session):
    shown = session.page.locator(".dw-panel").nth(1)
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-finding")).to_have_count(1, timeout=30_000)
    shown.get_by_label("batch", exact=True).fill("row")
    shown.get_by_role("button", name="Trace batch").click()
    expect(shown.locator(".dw-status")).to_contain_text("did you mean 'rows'", timeout=30_000)
    expect(shown.locator(".dw-finding")).to_have_count(0)
