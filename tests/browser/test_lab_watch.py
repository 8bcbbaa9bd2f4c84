"""A watched run in a real JupyterLab: a recorded step opens, and the tab follows a cell that runs."""

import pytest
from playwright.sync_api import expect

RUN = """
import devwidget, torch, time
devwidget.simulate(1, memory="1GiB").start()
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to("cuda")
optimizer = torch.optim.Adam(model.parameters())
run = devwidget.watch(model, optimizer)
def train(steps, seconds=0.0):
    with run:
        for _ in range(steps):
            model(torch.randn(4, 8, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(seconds)
train(20)
devwidget.show(run)
"""


@pytest.fixture
def session(lab, browser):
    lab.write("watch.ipynb", [RUN, "train(40, 0.1)"])
    opened = lab.open(browser, "watch.ipynb")
    opened.run(0)
    yield opened
    opened.close()


def test_a_recorded_step_opens_and_a_run_that_goes_on_is_followed(session):
    page = session.page
    expect(page.locator(".dw-watch-summary")).to_have_text("Watched run of Sequential: 20 steps, no findings")
    page.get_by_role("button", name="open step 10").click()
    expect(page.get_by_role("tab", name="Trace", exact=True)).to_have_attribute("aria-selected", "true")
    expect(page.locator(".dw-status")).to_contain_text("step 10 was recorded")
    page.get_by_role("tab", name="Watch", exact=True).click()
    session.run(1)
    expect(page.locator(".dw-watch-summary")).to_contain_text("60 steps")
    session.shot("watch-light-1400")
