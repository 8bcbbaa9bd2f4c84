"""`nn.DataParallel`, unmodified, on virtual GPUs."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from devwidget.gpus import simulate


class Where(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("calls", torch.zeros(1))
        self.seen = []

    def forward(self, x):
        self.calls.add_(1)
        self.seen.append((x.device.index, self.weight.device.index, torch.cuda.current_device(), threading.get_ident()))
        return x * self.weight


def test_every_replica_runs_on_its_own_gpu_in_its_own_thread():
    with simulate(3):
        where = Where().cuda()
        out = nn.DataParallel(where)(torch.ones(6, 1, device="cuda"))
        assert sorted(seen[:3] for seen in where.seen) == [(0, 0, 0), (1, 1, 1), (2, 2, 2)]
        assert threading.get_ident() not in [seen[3] for seen in where.seen]
        assert out.device == torch.device("cuda:0")
        assert nn.DataParallel(where, output_device=1)(torch.ones(4, 1)).device == torch.device("cuda:1")
        assert where.calls.item() == 2  # the first replica shares its buffers with the original


def test_gathering_takes_the_room_of_the_result_and_no_more(gpus):
    parts = [torch.ones(1000, 512, device=f"cuda:{index}") for index in range(2)]
    before = torch.cuda.memory_allocated(0)
    torch.cuda.reset_peak_memory_stats(0)
    joined = torch.nn.parallel.comm.gather(parts, destination=0)
    assert (joined.device.index, joined.shape) == (0, (2000, 512))
    assert torch.cuda.max_memory_allocated(0) - before == joined.nbytes
    assert torch.equal(joined.cpu(), torch.ones(2000, 512))


def test_a_fault_in_a_replica_names_the_replica(gpus):
    class Hard(nn.Module):
        def forward(self, x):
            return x + torch.ones(1, 4, device="cuda:0")

    with pytest.raises(RuntimeError, match="Caught RuntimeError in replica 1 on device 1"):
        nn.DataParallel(nn.Sequential(nn.Linear(4, 4), Hard()).cuda())(torch.ones(4, 4))


def test_unused_parameters_get_zeros(gpus):
    layer = nn.Linear(4, 1)
    layer.unused = nn.Parameter(torch.ones(1))
    nn.DataParallel(layer.cuda())(torch.ones(4, 4)).sum().backward()
    assert (layer.unused.grad.tolist(), layer.weight.grad.device) == ([0], torch.device("cuda:0"))


def test_no_thread_ever_starts_without_the_gpus(gpus):
    found = []
    threads = [threading.Thread(target=lambda: found.append(torch.ones(1, device="cuda:1").device)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [torch.device("cuda:1")] * 50
    assert "run" not in vars(threads[0])


def test_tasks_of_a_pool_that_is_older_have_the_gpus_too():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.ones, 1).result().device.type == "cpu"
        with simulate(2):
            device = pool.submit(lambda: (torch.ones(1, device="cuda:1") + 1).device).result()
            assert device == torch.device("cuda:1")
        assert pool.submit(lambda: (torch.ones(1) + 1).device).result().type == "cpu"
