"""The browser and the server of the browser tests; what is not installed is left out."""

import pathlib

import pytest

from tests.browser.conftest import browser as browser
from tests.browser.conftest import lab as lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
