"""The panel in Notebook 7."""

import pytest
from playwright.sync_api import expect

from tests.browser.lab import Lab


@pytest.fixture(scope="module")
def session(browser, tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("notebook7"), app="notebook") as server:
        server.write("panel.ipynb", ["from tests.browser.handmade_panel import open_panel\npanel, fake = open_panel()\npanel"])
        opened = server.open(browser, "panel.ipynb", width=1200)
        opened.watched.errors.clear()  # Notebook 7 complains about a missing settings schema while it starts
        opened.run(0)
        yield opened
        opened.close()


def test_table_bars_and_trace_work(session):
    page = session.page
    expect(page.locator("[role=row][data-path='decoder.head'] .dw-chip")).to_have_text("cuda:1")
    expect(page.locator(".dw-memory .point path").first).to_be_attached()
    page.get_by_role("button", name="Trace batch").click()
    expect(page.locator(".dw-finding[data-kind='wrong-device']")).to_be_visible()
    session.shot("notebook7-findings")
