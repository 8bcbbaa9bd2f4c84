"""axe-core, from the package axe-playwright-python, in a page that is open already."""

from __future__ import annotations

import pathlib

import pytest
from playwright.sync_api import Page

_RUN = """(rules) => axe.run(document.querySelector('.dw-panel'), rules.length ? { runOnly: rules } : {})
  .then((result) => result.violations)"""


def violations(page: Page, *rules: str) -> list[tuple[str, str]]:
    """Serious and critical violations in the panel, of all rules or of these, each with the first element that has it."""
    package = pytest.importorskip("axe_playwright_python")
    if not page.evaluate("() => 'axe' in window"):
        page.add_script_tag(path=str(pathlib.Path(package.__file__).parent / "axe.min.js"))
    found = page.evaluate(_RUN, list(rules))
    return [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]


def violations_in_both_schemes(page: Page) -> list[tuple[str, str]]:
    """Those of all rules on a light page, and what is hard to read on a dark one: other rules know no colours."""
    found = []
    for scheme, rules in (("light", ()), ("dark", ("color-contrast",))):
        page.emulate_media(color_scheme=scheme)
        found += violations(page, *rules)
    return found
