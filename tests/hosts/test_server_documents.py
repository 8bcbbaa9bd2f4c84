"""JupyterLab with jupyter-server-documents: the saved page at first, and the panel once the notebook is trusted."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.lab import Lab, LabPage
from tests.hosts.cells import CELLS

pytest.importorskip("jupyter_server_documents", reason="it replaces the server of all other tests: nox -s server-documents")

START = """(cell) => {
  const notebook = jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = cell;
  notebook.deselectAll();
  void jupyterapp.commands.execute('notebook:run-cell');
}"""
TRUST = "() => { void jupyterapp.commands.execute('notebook:trust'); }"


@pytest.mark.slow
def test_a_trusted_notebook_shows_the_panel_and_an_edit_reaches_the_cell(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Lab(tmp_path_factory.mktemp("documents")) as server:
        server.write("reader.ipynb", CELLS)
        session = server.open(browser, "reader.ipynb", width=1300)
        for cell in range(len(CELLS)):
            run(session, cell)
        expect(session.page.get_by_text("choose Trust Notebook in the command palette")).to_be_visible(timeout=60_000)
        trust(session.page)
        session.page.get_by_role("button", name="Trace batch").click()
        expect(session.page.locator(".dw-finding[data-kind='wrong-device']")).to_contain_text(
            "hidden was created on cpu", timeout=60_000
        )
        session.page.get_by_role("button", name="Apply").first.click()
        expect(session.page.get_by_text("1 finding fixed, 0 new, 0 left")).to_be_visible(timeout=60_000)
        source = session.page.evaluate(
            "() => jupyterapp.shell.currentWidget.content.model.cells.get(1).sharedModel.getSource()"
        )
        assert "hidden = torch.zeros(1, len(picture), 32, device=picture.device)" in source
        session.watched.close()


def run(session: LabPage, cell: int) -> None:
    """Run a cell on the server, and wait for its number."""
    session.page.evaluate(START, cell)
    prompt = session.page.locator(".jp-CodeCell .jp-InputPrompt").nth(cell)
    expect(prompt).to_have_text(f"[{cell + 1}]:", timeout=120_000)


def trust(page: Page) -> None:
    """Trust the notebook. This changes its file, so JupyterLab asks which version to keep."""
    page.evaluate(TRUST)
    dialog = page.locator(".jp-Dialog")
    dialog.get_by_text("Trust", exact=True).click()
    dialog.get_by_text("Revert", exact=True).click()
