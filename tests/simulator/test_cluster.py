"""What `simulate` is asked for is checked before anything is done."""

import pytest

from devwidget.records.errors import SimulationError
from devwidget.simulator import simulate

SIZES = ["1" * 5000, "9" * 39, 10**40, 10**5000, 0, "2000000 TiB", float("nan")]


@pytest.mark.parametrize("memory", SIZES, ids=lambda memory: type(memory).__name__)
def test_a_size_that_no_gpu_has_is_refused(memory):
    with pytest.raises(SimulationError, match="no memory size"):
        simulate(2, memory)


@pytest.mark.parametrize("gpus", [0, 10**5000, True, 129], ids=lambda gpus: type(gpus).__name__)
def test_a_number_of_gpus_that_torch_cannot_count_is_refused(gpus):
    with pytest.raises(SimulationError, match="cannot simulate"):
        simulate(gpus)
