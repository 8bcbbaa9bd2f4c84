"""Texts in files: what prints is compared with `golden/<name>` beside the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the files under golden/ anew from what is printed now")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Compare what prints as text with a file; with `--update-golden` write it first."""

    def compare(name: str, shown: object) -> None:
        file = request.path.parent / "golden" / name
        text = f"{shown}\n"
        if request.config.getoption("update_golden"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"run pytest --update-golden {request.path}, and read what it writes"
        assert text == file.read_text(encoding="utf-8")

    return compare
