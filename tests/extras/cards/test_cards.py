"""A card named: its context, its workspaces, and memory in segments."""

import pytest
import torch

import devwidget
from devwidget.gpus.card_models import CARDS
from devwidget.records.errors import SimulationError

MIB = 1 << 20


@pytest.fixture
def a100():
    with devwidget.simulate(2, card="A100-80GB"):
        yield CARDS["a100-80gb"]


def test_a_card_has_its_capacity_and_loses_its_context(a100):
    free, total = torch.cuda.mem_get_info()
    assert total == torch.cuda.get_device_properties(0).total_memory == a100.memory_bytes
    assert free == total - a100.context_bytes


def test_memory_is_reserved_in_segments(a100):
    x = torch.empty(1, device="cuda")
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (512, 2 * MIB)
    y = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_reserved() == 22 * MIB
    stats = torch.cuda.memory_stats()
    assert stats["segment.all.current"] == stats["num_device_alloc"] == 2
    assert stats["inactive_split_bytes.large_pool.current"] == 17 * MIB
    assert stats["requested_bytes.all.current"] == 4 + 3 * MIB
    del x, y
    assert torch.cuda.memory_reserved() == torch.cuda.max_memory_reserved() == 22 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    assert "GPU" in torch.cuda.memory_summary()


def test_products_take_a_workspace_for_forward_and_one_for_backward(a100):
    weight = torch.ones(8, 8, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    out = weight @ weight
    assert torch.cuda.memory_allocated() - before == 8_519_680 + 512
    weight @ weight
    out.sum().backward()
    del out
    assert torch.cuda.memory_allocated() - before == 2 * 8_519_680 + 512, "two workspaces and the gradient"
    torch._C._cuda_clearCublasWorkspaces()
    assert torch.cuda.memory_allocated() - before == 512


def test_a_step_that_fits_by_bytes_may_not_fit_in_segments():
    gib = 1 << 30
    with devwidget.simulate(1, card="T4"):
        parts = [torch.empty(gib, dtype=torch.uint8, device="cuda") for _ in range(14)]
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            torch.empty(gib, dtype=torch.uint8, device="cuda")
        text = str(caught.value)
        assert "total capacity of 14.75 GiB of which 634.88 MiB is free" in text
        assert "this process has 14.13 GiB memory in use" in text
        assert "14.00 GiB is allocated by PyTorch, and 0 bytes is reserved" in text
        del parts[::2]
        torch.empty(2 * gib, dtype=torch.uint8, device="cuda")  # whole segments are given back for it
        assert torch.cuda.memory_stats()["num_alloc_retries"] == 2


@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_the_users_allocator_settings_count(monkeypatch, variable):
    monkeypatch.setenv(variable, "expandable_segments:True")
    with devwidget.simulate(1, card="T4"):
        blocks = [torch.empty(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
        assert torch.cuda.memory_reserved() == 120 * MIB
        assert [segment["is_expandable"] for segment in torch.cuda.memory_snapshot()] == [True]
        del blocks


def test_a_snapshot_is_in_the_format_that_torchs_viewer_reads(a100):
    from torch.cuda._memory_viz import segsum, trace_plot

    x, y = torch.empty(100, device="cuda"), torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:1")
    snapshot = torch.cuda.memory._snapshot()
    assert [(segment["device"], segment["total_size"], segment["requested_size"]) for segment in snapshot["segments"]] == [
        (0, 2 * MIB, 400),
        (1, 20 * MIB, 3 * MIB),
    ]
    assert "small" in segsum(snapshot) or "2.0MiB" in segsum(snapshot)
    assert "<html" in trace_plot(snapshot).lower() or "<!doctype" in trace_plot(snapshot).lower()
    del x, y


def test_an_unknown_card_is_refused_with_the_nearest():
    with pytest.raises(SimulationError, match="did you mean 'A100-80GB'"):
        devwidget.simulate(2, card="A100-80G")


def test_a_recording_on_a_card_adds_up(a100):
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
    trace = devwidget.trace(model, torch.ones(4, 64, device="cuda"), loss_fn=lambda out: out.sum())
    gpu = devwidget.snapshot(model).memory[0]
    assert not trace.error
    assert gpu.total == a100.memory_bytes
    parts = (gpu.parameters, gpu.buffers, gpu.attributes, gpu.gradients, gpu.optimizer, gpu.activations, gpu.cache, gpu.others)
    assert sum(parts) + gpu.free == gpu.total
    assert gpu.others == a100.context_bytes


def test_what_was_freed_on_one_stream_is_not_handed_out_on_another():
    size = 30 << 20
    with devwidget.simulate(1, card="A100-80GB", compute=False):
        torch.empty(size, dtype=torch.uint8, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            kept = torch.empty(size, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_reserved() == 2 * size
        torch.empty(size, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_reserved() == 2 * size
        assert len({segment["stream"] for segment in torch.cuda.memory_snapshot()}) == 2
        del kept
