"""One browser and one JupyterLab for the screens of extras, as for those of the core."""

from __future__ import annotations

import pathlib

import pytest

from tests.browser.conftest import browser as browser
from tests.browser.conftest import lab as lab
from tests.browser.conftest import opened as opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
