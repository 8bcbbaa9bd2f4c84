"""The notebooks that run in a real JupyterLab and nowhere else: quiet, as they are stored, their panels drawn.

`make shots` keeps pictures of them.
"""

import json
import os
import pathlib

import pytest
from playwright.sync_api import expect

from tests.browser.lab import ARTIFACTS, DARK, LIGHT
from tests.test_notebooks import RUN_IN_LAB, check_as_stored, check_quiet, refresh

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"
FIRST = "01-first-look"
"""Run by `test_first_look`."""


def showing(path):
    """Numbers of the cells that are stored with a panel."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [at for at, cell in enumerate(cells) if "dw-saved" in json.dumps(cell.get("outputs", ()))]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in RUN_IN_LAB if name != FIRST])
def test_a_notebook_runs_and_shows_what_is_stored_and_its_panels_are_kept_as_pictures(lab, browser, name):
    path = FOLDER / f"{name}.ipynb"
    session = lab.open(browser, lab.copy(path), height=2400)  # as high as the highest panel
    session.hide_sidebar()
    session.run_all()
    run = session.notebook()
    refresh.keep_outputs(run)
    check_quiet(run)
    check_as_stored(path, run)
    assert showing(path)
    for cell in showing(path):
        # What is saved beside a live page is hidden.
        panel = session.page.locator(".jp-Cell").nth(cell).locator(".dw-panel >> visible=true")
        panel.scroll_into_view_if_needed()
        expect(panel).to_be_visible()
        if "PICTURES" in os.environ:
            keep_pictures(session, panel, f"{name}-{cell}")
    session.close()


def keep_pictures(session, panel, name):
    ARTIFACTS.mkdir(exist_ok=True)
    for theme, suffix in ((DARK, "-dark"), (LIGHT, "")):
        session.use_theme(theme)
        session.page.wait_for_timeout(700)  # figures are drawn anew
        panel.screenshot(path=ARTIFACTS / f"{name}{suffix}.png")
