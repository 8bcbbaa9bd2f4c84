"""Virtual GPUs for the tests of this folder."""

import pytest
import torch

from devwidget.simulator import simulate


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def gpus():
    """Two virtual GPUs."""
    with simulate(2) as simulation:
        yield simulation


@pytest.fixture
def three_gpus():
    with simulate(3) as simulation:
        yield simulation
