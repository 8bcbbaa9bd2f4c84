"""`torch.cuda` and `torch.accelerator` on virtual GPUs."""

import pytest
import torch

from devwidget.gpus import simulate
from devwidget.records.errors import SimulationError

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")


def test_the_gpus_are_counted_and_named(gpus):
    assert torch.cuda.is_available()
    assert not torch.cuda.is_initialized()
    assert torch.cuda.device_count() == torch.accelerator.device_count() == 2
    assert torch.cuda.get_device_name(1) == "devwidget virtual GPU"
    properties = torch.cuda.get_device_properties(1)
    assert properties.total_memory == 16 << 30
    assert properties.uuid != torch.cuda.get_device_properties(0).uuid
    assert torch.cuda.get_device_capability() == (8, 0)
    assert torch.accelerator.current_accelerator().type == "cuda"
    assert torch.accelerator.is_available()
    assert torch.cuda.is_bf16_supported()


def test_gpus_are_initialized_by_init_and_not_by_a_seed(gpus):
    torch.cuda.manual_seed_all(7)
    assert torch.initial_seed() == 7
    assert not torch.cuda.is_initialized()
    torch.cuda.init()
    assert torch.cuda.is_initialized()


def test_the_current_gpu_follows_contexts(gpus):
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == torch.accelerator.current_device_index() == 1
        with torch.accelerator.device_index(0):
            assert torch.cuda.current_device() == 0
        with torch.cuda.device_of(torch.ones(1, device="cuda:0")):
            assert torch.cuda.current_device() == 0
    torch.cuda.set_device(1)
    assert torch.cuda.current_device() == 1
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
        torch.cuda.set_device(2)
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(2)


def test_streams_are_asked_for_by_gpu_and_have_priorities(gpus):
    low, high = torch.cuda.Stream.priority_range()
    assert (low, high) == (0, -3)
    assert [torch.cuda.Stream(priority=each).priority for each in (low, high, 5, -9)] == [0, -3, 0, -3]
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1) != torch.cuda.Stream(1)
    assert len({torch.cuda.Stream() for _ in range(33)}) == 32, "they come from a pool"
    for ask in (torch.cuda.current_stream, torch.cuda.default_stream):
        with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
            ask(torch.device("cpu"))


def test_a_simulation_begins_with_default_streams():
    with simulate(2):
        torch.cuda.set_stream(torch.cuda.Stream(1))
    with simulate(2):
        assert torch.cuda.current_device() == 0
        assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)


def test_streams_and_events_have_the_right_types_and_do_nothing(gpus):
    stream, start, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        torch.ones(2, device="cuda").record_stream(stream)
    end.record(stream)
    stream.wait_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0 > end.elapsed_time(start)
    assert end.query()
    assert isinstance(stream, (torch.cuda.Stream, torch.Stream))
    with torch.cuda.Stream(device=1) as other:
        assert other.device == SECOND
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0
    assert torch.Stream(device="cuda:1").device == SECOND
    assert torch.Stream(device="cpu").device.type == "cpu"


@pytest.mark.parametrize(("variable", "count"), [("2,3", 2), ("0,1,7,2", 2), ("1,1", 4), ("", 4)])
def test_visible_devices_that_were_set_before_renumber(monkeypatch, variable, count):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with simulate(4, ["1GiB", "2GiB", "3GiB", "4GiB"]):
        assert torch.cuda.device_count() == count
        if variable == "2,3":
            assert torch.cuda.get_device_properties(0).total_memory == 3 << 30
            with pytest.raises(torch.AcceleratorError):
                torch.zeros(1, device="cuda:2")


def test_visible_devices_count_until_the_first_use(gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert torch.cuda.device_count() == 1
    torch.zeros(1, device="cuda")
    assert torch.cuda.is_initialized()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert torch.cuda.device_count() == 1


def test_small_tools_around_cuda_work(gpus):
    torch.cuda.nvtx.range_push("step")
    torch.cuda.memory._record_memory_history(max_entries=10)
    assert torch.cuda.memory._snapshot()["segments"] == torch.cuda.memory_snapshot() == []
    torch.cuda.memory._record_memory_history(enabled=None)
    assert torch.cuda.can_device_access_peer(0, 1)
    assert torch.from_dlpack(torch.ones(1, device="cuda")).device == FIRST


def test_a_cuda_graph_is_refused_in_plain_words(gpus):
    with pytest.raises(SimulationError, match="cannot record CUDA graphs"):
        torch.cuda.CUDAGraph()


def test_a_tensor_for_another_process_is_refused_in_plain_words(gpus):
    with pytest.raises(SimulationError, match="another process"):
        torch.multiprocessing.SimpleQueue().put(torch.ones(2, device="cuda"))


def test_the_count_of_one_simulation_is_not_remembered_by_the_next():
    for gpus in (3, 1):
        with simulate(gpus=gpus):
            assert len(torch.cuda.get_rng_state_all()) == gpus
