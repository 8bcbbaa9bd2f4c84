"""What virtual GPUs cannot do is refused in words that say so."""

import pytest
import torch
import torch.multiprocessing as mp

from devwidget.records.errors import SimulationError


@pytest.mark.parametrize("make", [torch.cuda.CUDAGraph, torch.cuda.MemPool, torch.cuda.graph_pool_handle])
def test_what_there_is_no_virtual_form_of_is_refused(make, gpus):
    with pytest.raises(SimulationError, match="virtual GPUs have no"):
        make()


@pytest.mark.parametrize("queue", [mp.Queue, mp.SimpleQueue])
def test_a_virtual_tensor_is_not_lost_in_a_process_queue(queue, gpus):
    with pytest.raises(SimulationError, match="cannot go to another process"):
        queue().put({"batch": torch.ones(2, device="cuda:0")})


def test_a_tensor_on_the_cpu_goes_through_a_process_queue(gpus):
    queue = mp.SimpleQueue()
    queue.put(torch.ones(2))
    assert queue.get().tolist() == [1.0, 1.0]
