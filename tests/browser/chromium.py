"""Headless Chromium for tests: found, launched, and kept from the network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Request, sync_playwright

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing gets out, and nothing waits until a test says so
    "--disable-features=LocalNetworkAccessChecks",  # a page that a test answers itself may ask the server on this machine
]


def find_chromium() -> str | None:
    """The browser named by CHROMIUM, or the one on the path; the shell opens no windows, and takes a third of the time."""
    named = os.environ.get("CHROMIUM")
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
    return named or next((found for found in map(shutil.which, names) if found), None)


def require_chromium() -> str:
    """The browser's path; without one a test is skipped, but fails on CI, where nothing may be left out silently."""
    found = find_chromium()
    if found is None:
        message = "no Chromium found: install `chromium-headless-shell`, or name a browser in the environment variable CHROMIUM"
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(message)
        pytest.skip(message)
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser process."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require_chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page in a browser context; it lets nothing out to the network and collects what the console complains about.

    Args:
        shared: another's context. What one page has loaded the next one finds there, compiled; it stays when the page goes.
        options: of a context of its own.

    Attributes:
        page: playwright's page.
        blocked: addresses outside this machine that something asked for.
        errors: console errors and uncaught exceptions.
    """

    def __init__(self, browser: Browser, shared: BrowserContext | None = None, **options: Any) -> None:
        self.context = shared or browser.new_context(**options)
        self._is_shared = shared is not None
        self.blocked: list[str] = []
        self.errors: list[str] = []
        self.page = self.context.new_page()
        self.page.on("requestfailed", self._note_failed)
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _note_failed(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1", "file:", "data:", "blob:")):
            self.blocked.append(request.url)

    def close(self) -> None:
        """Close the page and all that belongs to it; fails if anything went wrong in it while it was open."""
        errors, blocked = list(self.errors), list(self.blocked)
        self.page.close() if self._is_shared else self.context.close()
        assert errors == [], f"in the console: {errors}"
        assert blocked == [], f"asked of the network: {blocked}"
