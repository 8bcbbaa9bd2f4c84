"""One browser and one JupyterLab for all browser tests; every test here is marked `browser`."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import Watched, launched
from tests.browser.lab import Lab

expect.set_options(timeout=30_000)  # what comes is waited for as long as it takes on a machine that does other things too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Playwright keeps an event loop running, in which other tests cannot start their own."""
    with launched() as started:
        yield started


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Lab]:
    """JupyterLab; a terminated test run must not leave the server behind."""
    before = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(143)))
    try:
        with Lab(tmp_path_factory.mktemp("lab")) as started:
            yield started
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def opened(browser: Browser, tmp_path: pathlib.Path) -> Iterator[Callable[[str], Page]]:
    """Opens an exported page."""
    pages: list[Watched] = []

    def show(text: str, width: int = 1100) -> Page:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        watched = Watched(browser, viewport={"width": width, "height": 900}, offline=True)
        watched.page.goto(path.as_uri())
        pages.append(watched)
        return watched.page

    yield show
    for watched in pages:
        watched.close()
