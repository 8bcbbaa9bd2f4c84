"""A plugin for pytest that marks in the JUnit file which tests put something on a GPU."""

import pytest
import torch

BEFORE = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEFORE] = _allocations()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    if _allocations() > item.stash[BEFORE]:
        item.user_properties.append(("gpu", "used"))


def _allocations() -> int:
    """Blocks that all GPUs have given out so far."""
    gpus = range(torch.cuda.device_count())
    return sum(torch.cuda.memory_stats(gpu).get("allocation.all.allocated", 0) for gpu in gpus)
