"""One browser and one JupyterLab for all browser tests; every test here is marked `browser`."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import launched
from tests.browser.lab import Lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as started:
        yield started


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Lab]:
    """JupyterLab; a terminated test run must not leave the server behind."""
    before = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(143)))
    try:
        with Lab(tmp_path_factory.mktemp("lab")) as started:
            yield started
    finally:
        signal.signal(signal.SIGTERM, before)
