"""Virtual GPUs for the tests of this folder."""

import pytest

from devwidget.gpus import simulate


@pytest.fixture
def gpus():
    """Two virtual GPUs."""
    with simulate(2) as simulation:
        yield simulation
