"""Bytes on virtual GPUs."""

import functools
import gc

import pytest
import torch

pytestmark = pytest.mark.usefixtures("gpus")


def test_allocations_are_multiples_of_512_bytes_and_end_with_their_tensor():
    x, y = torch.empty(1, device="cuda"), torch.empty(1000, device="cuda:1")
    assert torch.cuda.memory_allocated(0) == 512
    assert torch.cuda.memory_allocated(1) == 4096
    view = y[2:]
    del x, y
    assert torch.cuda.memory_allocated(0) == 0
    assert torch.cuda.memory_allocated(1) == 4096
    del view
    assert torch.cuda.memory_allocated(1) == 0


def test_what_autograd_saved_is_freed_with_the_graph():
    x = torch.ones(1000, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    loss = x.exp().exp().sum()
    assert torch.cuda.memory_allocated() > before
    del loss
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_a_hook_that_holds_its_leaf_goes_with_it():
    before = torch.cuda.memory_allocated()
    leaf = torch.ones(1000, device="cuda", requires_grad=True)
    leaf.register_hook(functools.partial(torch.dist, leaf))
    del leaf
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_peaks_and_caches_are_reported_as_by_cuda():
    x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    del x
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_reserved() == 1 << 20
    assert torch.cuda.mem_get_info() == ((16 << 30) - (1 << 20), 16 << 30)
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.empty_cache()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_reserved() == 0
    assert torch.cuda.mem_get_info()[0] == 16 << 30
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 1 << 20
    assert stats["num_ooms"] == 0
    assert "GPU" in torch.cuda.memory_summary()
    assert torch.accelerator.memory_allocated() == 0
    assert torch.accelerator.get_memory_info(0) == torch.cuda.mem_get_info()


def test_a_full_gpu_raises_and_the_program_can_go_on():
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
    text = str(caught.value)
    assert text.startswith("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which")
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    assert torch.ones(2, device="cuda").sum().item() == 2


def test_resizing_is_counted():
    x = torch.empty(0, device="cuda").resize_(1000)
    assert x.device == torch.device("cuda:0")
    assert torch.cuda.memory_allocated() == 4096
    x.untyped_storage().resize_(0)
    assert torch.cuda.memory_allocated() == 0
    assert x.is_cuda
