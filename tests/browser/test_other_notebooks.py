"""The notebooks that no other file here walks through: run in a real JupyterLab, their panels drawn and kept.

Of most of them this is the only run, so that it says too what `tests/test_notebooks.py` says of the others.
"""

import json
import pathlib

import pytest
from playwright.sync_api import expect

from tests.browser.lab import ARTIFACTS, DARK, LIGHT
from tests.test_notebooks import RUN_IN_LAB, check_as_stored, check_quiet, refresh

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"


def showing(path):
    """Numbers of the cells that are stored with a panel."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [at for at, cell in enumerate(cells) if "dw-saved" in json.dumps(cell.get("outputs", ()))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["03-field-guide", *RUN_IN_LAB])
def test_a_notebook_runs_and_its_panels_are_kept_as_pictures(lab, browser, name):
    path = FOLDER / f"{name}.ipynb"
    session = lab.open(browser, lab.copy(path), height=2400)  # as high as the highest panel
    session.hide_sidebar()
    session.run_all()
    run = session.notebook()
    refresh.keep_outputs(run)
    check_quiet(run)
    if name in RUN_IN_LAB:
        check_as_stored(path, run)
    assert showing(path)
    ARTIFACTS.mkdir(exist_ok=True)
    for theme, suffix in ((LIGHT, ""), (DARK, "-dark")):
        session.use_theme(theme)
        for cell in showing(path):
            # What is saved beside a live page is hidden.
            panel = session.page.locator(".jp-Cell").nth(cell).locator(".dw-panel >> visible=true")
            panel.scroll_into_view_if_needed()
            expect(panel).to_be_visible()
            session.page.wait_for_timeout(700)  # figures are drawn anew
            panel.screenshot(path=ARTIFACTS / f"{name}-{cell}{suffix}.png")
    session.close()
