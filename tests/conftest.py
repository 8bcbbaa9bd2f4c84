"""For every test: one thread, and proof that no hook, mode or patch is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import torch

from tests import faults
from tests.golden import golden as golden
from tests.golden import pytest_addoption as pytest_addoption
from tests.strict_claims import strict_claims

os.environ["LANGUAGE"] = "en"  # also in the processes that tests start
# What a shell starts in the background is deaf to Ctrl-C, and so are its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no process waits for another at the end."""
    slow = {item.path for item in items if "browser" in item.path.parts or item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """With two intra-op threads and other load the zoo takes 10 to 50 times as long."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    before = faults.world()
    yield
    assert faults.left_behind(before) == []


@pytest.fixture(autouse=True)
def _claims_are_borne_out() -> Iterator[None]:
    with strict_claims():
        yield
