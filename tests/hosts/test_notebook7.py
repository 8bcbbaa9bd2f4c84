"""The panel in Notebook 7: a click finds the fault."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.lab import Lab
from tests.hosts.cells import CELLS


@pytest.mark.slow  # the browser tests do the same in JupyterLab
def test_a_click_finds_the_fault_and_its_cell(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Lab(tmp_path_factory.mktemp("notebook7"), app="notebook") as server:
        server.write("reader.ipynb", CELLS)
        session = server.open(browser, "reader.ipynb", width=1200)
        session.watched.errors.clear()  # Notebook 7 complains about a missing settings schema while it starts
        session.run_all()
        session.page.get_by_role("button", name="Trace batch").click()
        finding = session.page.locator(".dw-finding[data-kind='wrong-device']")
        expect(finding).to_contain_text("hidden was created on cpu", timeout=60_000)
        expect(finding).to_contain_text("In[2]:7")
        session.close()
