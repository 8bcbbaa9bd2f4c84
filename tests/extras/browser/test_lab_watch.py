"""A watched run in a real JupyterLab."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.slow
CELLS = [
    """import torch, devwidget
from torch import nn
devwidget.simulate(2, memory="1GiB").start()
net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).to("cuda")
optimizer = torch.optim.Adam(net.parameters())
run = devwidget.watch(net, optimizer)
def train(steps):
    with run:
        for _ in range(steps):
            net(torch.randn(4, 8, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
train(20)
devwidget.show(run)""",
    "train(40)",
]


@pytest.fixture(scope="module")
def session(lab, browser):
    lab.write("watch.ipynb", CELLS)
    opened = lab.open(browser, "watch.ipynb")
    yield opened
    opened.close()


def test_a_recorded_step_opens_and_a_run_that_goes_on_is_followed(session):
    session.run(0)
    cell = session.page.locator(".jp-Cell").nth(0)
    summary = cell.locator(".dw-watch-summary")
    expect(summary).to_have_text("Watched run of Sequential: 20 steps, no findings")
    cell.get_by_role("button", name="open step 10").click()
    expect(cell.get_by_role("tab", name="Trace", exact=True)).to_have_attribute("aria-selected", "true")
    expect(cell.locator(".dw-status")).to_contain_text("step 10 was recorded")
    cell.get_by_role("tab", name="Watch", exact=True).click()
    session.run(1)
    expect(summary).to_contain_text("60 steps")
