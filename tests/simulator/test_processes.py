"""Where a process starts without virtual GPUs it is said, and where NCCL is asked for, with what would do."""

import functools
import multiprocessing
import signal
import sys
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.utils.data import DataLoader

import devwidget
from devwidget.records.errors import SimulationError


def nothing(*args):
    """Of the program that a process runs."""


@pytest.fixture
def gpus():
    with devwidget.simulate(gpus=3, memory="1GiB"):
        yield


@pytest.fixture
def alone(monkeypatch):
    """The environment of a job of one process, and what torch replaces for it."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_a_new_process_is_told_that_it_has_no_virtual_gpus(way):
    process = multiprocessing.get_context(way).Process(target=nothing, name="worker")
    with pytest.warns(RuntimeWarning, match=r"worker has no virtual GPUs.* devwidget.simulate\(3\).start\(\)"):
        process.start()
    process.join()


@pytest.mark.usefixtures("gpus")
def test_ranks_that_torch_spawns_are_told_too():
    with pytest.warns(RuntimeWarning, match="has no virtual GPUs"):
        torch.multiprocessing.spawn(nothing, nprocs=1)


@pytest.mark.usefixtures("gpus")
def test_forked_processes_and_workers_of_a_loader_are_no_matter(request):
    request.addfinalizer(functools.partial(signal.signal, signal.SIGCHLD, signal.getsignal(signal.SIGCHLD)))  # the loader's
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        forked = multiprocessing.get_context("fork").Process(target=nothing)
        forked.start()
        forked.join()
        assert len(list(DataLoader([1, 2], num_workers=1, multiprocessing_context="spawn"))) == 2


def test_without_virtual_gpus_nobody_is_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        process = multiprocessing.get_context("spawn").Process(target=nothing)
        process.start()
        process.join()


@pytest.mark.filterwarnings("ignore:Attempted to get default timeout for nccl")
@pytest.mark.skipif(dist.is_nccl_available(), reason="a torch without NCCL")
@pytest.mark.usefixtures("gpus")
def test_nccl_that_is_not_there_is_explained_with_what_would_do(alone):
    with pytest.raises(RuntimeError, match="NCCL built in") as refused:
        dist.init_process_group(dist.get_default_backend_for_device(torch.device("cuda", 0)), **alone)
    assert isinstance(refused.value, SimulationError)
    assert 'init_process_group("gloo")' in str(refused.value)


@pytest.mark.filterwarnings("ignore:Attempted to get default timeout for nccl")
@pytest.mark.skipif(dist.is_nccl_available(), reason="a torch without NCCL")
@pytest.mark.usefixtures("gpus")
def test_a_group_of_nccl_beside_one_of_gloo_is_explained_and_gloo_does(alone):
    dist.init_process_group("gloo", **alone)
    with pytest.raises(SimulationError, match="gloo"):
        dist.new_group([0], backend="nccl")
    ones = torch.ones(2, device="cuda:0")
    dist.all_reduce(ones)
    assert ones.device == torch.device("cuda:0")


@pytest.mark.usefixtures("gpus")
def test_other_errors_of_a_process_group_are_torchs_own(alone):
    with pytest.raises(AssertionError, match="rank must be non-negative"):
        dist.init_process_group("gloo", **{**alone, "rank": -1})
