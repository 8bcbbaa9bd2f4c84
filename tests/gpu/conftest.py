"""Tests that hold on one real GPU; without one a virtual GPU stands for it, which does not say that it is virtual."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from tests.gpu import places
from tests.gpu.report import note


@pytest.fixture(scope="session", autouse=True)
def _card_in_use() -> None:
    """Its first use is none that a test has left behind."""
    if places.HAS_CARD:
        torch.cuda.init()


@pytest.fixture
def card() -> Iterator[None]:
    """The GPU, in this process."""
    with places.the_card():
        yield


@pytest.fixture
def reports(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Adds a line to the report, under the name of the test's file."""
    part = request.path.stem.removeprefix("test_").replace("_", " ")
    return lambda text, **figures: note(part, text, **figures)
