"""axe-core, from the package axe-playwright-python, in a page that is open already."""

from __future__ import annotations

import pathlib

import pytest
from playwright.sync_api import Page


def violations(page: Page) -> list[tuple[str, str]]:
    """Serious and critical violations in the panel, each with the first element that has it."""
    package = pytest.importorskip("axe_playwright_python")
    if not page.evaluate("() => 'axe' in window"):
        page.add_script_tag(path=str(pathlib.Path(package.__file__).parent / "axe.min.js"))
    found = page.evaluate("() => axe.run(document.querySelector('.dw-panel')).then((result) => result.violations)")
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]
