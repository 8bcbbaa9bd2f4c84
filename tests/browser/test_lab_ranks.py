"""The panel of a job in a real JupyterLab: it is live, asks again, and the panel of one rank shows it in its own tab."""

import pytest
from playwright.sync_api import expect

CELLS = [
    "import dataclasses\nfrom devwidget.ui.ranks_panel import RanksWidget\n"
    "from tests.records.ranks.made_up import cluster, faulty, reports\n"
    "panel = RanksWidget(faulty(), lambda: cluster(reports((('dp', 4), ('tp', 2)))))\npanel",
    "from devwidget.ui.panel import DeviceWidget\nfrom tests.browser.handmade_panel import Fake\n"
    "one = DeviceWidget(dataclasses.replace(Fake().actions(), ranks=lambda: faulty))\none",
]  # fmt: skip


@pytest.fixture(scope="module")
def session(lab, browser):
    lab.write("ranks.ipynb", CELLS)
    opened = lab.open(browser, "ranks.ipynb")
    yield opened
    opened.close()


def test_asking_again_draws_what_the_ranks_say_now(session):
    session.run(0)
    panel = session.page.locator(".jp-Cell").nth(0).locator(".dw-ranks")
    expect(panel.locator(".dw-rank")).to_have_count(8, timeout=20_000)
    expect(panel.locator(".dw-troubled")).to_have_count(2)
    panel.get_by_role("button", name="Ask again").click()
    expect(panel.locator(".dw-troubled")).to_have_count(0, timeout=20_000)
    expect(panel).to_contain_text("8 answered")


def test_the_panel_of_one_rank_shows_the_others(session):
    session.run(1)
    cell = session.page.locator(".jp-Cell").nth(1)
    cell.get_by_role("tab", name="Devices").click(timeout=20_000)
    cell.get_by_role("button", name="Show all ranks").click()
    expect(cell.locator(".dw-others .dw-rank")).to_have_count(8, timeout=20_000)
