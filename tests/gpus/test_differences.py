"""Small things of CUDA that a program meets by chance, each once: found where virtual GPUs had been otherwise."""

import numpy as np
import pytest
import torch
import torch.utils.dlpack
from torch import nn
from torch.nn.parallel import comm, gather
from torch.profiler import ProfilerActivity, profile

from devwidget import SimulationError, simulate

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = pytest.mark.usefixtures("gpus")


@pytest.mark.parametrize("give", [lambda there: ((there,), {}), lambda there: ((), {"tensor": there})])
def test_a_module_goes_to_where_a_tensor_is_and_takes_its_dtype(give):
    args, kwargs = give(torch.ones(1, dtype=torch.double, device=SECOND))
    weight = nn.Linear(3, 3).to(*args, **kwargs).weight
    assert (weight.device, weight.dtype) == (SECOND, torch.double)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda x, wrong: x[wrong], IndexError, "index 9 is out of bounds for dimension 0 with size 3"),
        (lambda x, wrong: x.gather(0, wrong), RuntimeError, "index 9 is out of bounds"),
        (lambda x, wrong: nn.functional.one_hot(wrong, 3), RuntimeError, "must be smaller than num_classes"),
    ],
)
def test_an_index_out_of_range_raises_at_once_and_later_calls_are_answered(call, kind, text):
    x = torch.ones(3, device="cuda")
    with pytest.raises(kind, match=text):
        call(x, torch.tensor([9], device="cuda"))
    torch.cuda.synchronize()
    assert (x + 1).sum().item() == 6


def test_hooks_are_the_users_own_after_the_simulation(gpus):
    leaf, hook = torch.ones(2, requires_grad=True), print
    leaf.register_hook(hook)
    gpus.stop()
    assert list(leaf._backward_hooks.values()) == [hook]


def test_gradients_of_two_gpus_are_not_unscaled_together():
    inverse, found = torch.ones(1, device=FIRST), torch.zeros(1, device=FIRST)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch._amp_foreach_non_finite_check_and_unscale_([torch.ones(2, device=i) for i in (0, 1)], found, inverse)


def test_no_memory_is_handed_to_other_libraries():
    assert np.from_dlpack(torch.ones(1)).tolist() == [1]
    for export in (torch.utils.dlpack.to_dlpack, np.from_dlpack):
        with pytest.raises(SimulationError, match="share no memory with other libraries"):
            export(torch.ones(1, device=FIRST))


def test_kernels_in_the_language_of_cuda_are_refused():
    twice = torch.cuda.jiterator._create_jit_fn("template <typename T> T twice(T x) { return 2 * x; }")
    with pytest.raises(SimulationError, match="have no `_cuda_jiterator"):
        twice(torch.ones(1, device=FIRST))


def test_room_is_asked_for_before_the_cpu_has_to_find_it():
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"Tried to allocate 1024\.00 GiB"):
        torch.empty(2**40, dtype=torch.uint8, device=SECOND)
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"Tried to allocate 256\.00 GiB"):
        torch.ones(2**18, 1, device=SECOND) @ torch.ones(1, 2**18, device=SECOND)
    assert torch.cuda.memory_allocated(1) == 0


def test_a_part_of_the_memory_is_all_that_may_be_used():
    torch.cuda.set_per_process_memory_fraction(0.001, 0)
    assert torch.cuda.get_per_process_memory_fraction(0) == pytest.approx(0.001)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(2**28, dtype=torch.uint8, device=FIRST)
    assert torch.empty(2**22, dtype=torch.uint8, device=FIRST).device == FIRST


def test_a_torch_that_was_built_with_cuda_keeps_its_version(monkeypatch):
    """torchvision compares it with its own as it is imported."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with simulate(2):
        assert torch.version.cuda == "13.0"


def test_a_tensor_may_not_take_a_storage_of_another_device():
    with pytest.raises(RuntimeError, match=r'on device "cuda:0" to a storage on different device "cuda:1"'):
        torch.ones(3, device=FIRST).set_(torch.ones(3, device=SECOND).untyped_storage())
    x = torch.empty(0, device=SECOND)
    assert x.set_(torch.ones(3, device=SECOND).untyped_storage(), 0, (3,)).device == SECOND


def test_only_the_last_factor_may_be_a_number_on_the_cpu():
    x, number = torch.ones(2, device=FIRST), torch.tensor(2.0)
    assert torch.addcmul(x, x, number).tolist() == [3, 3]
    for factors in ((x, number, x), (number, x, x)):
        with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu!"):
            torch.addcmul(*factors)


def test_a_given_tensor_is_filled_under_a_default_gpu():
    with torch.device("cuda"):
        assert torch.eye(2, out=torch.empty(2, 2)).device == FIRST
        nn.init.trunc_normal_(nn.init.eye_(torch.empty(2, 2)))
        with pytest.raises(RuntimeError, match=r"device type cuda does not match device type of out parameter \(cpu\)"):
            torch.eye(2, out=torch.empty(2, 2, device="cpu"))


def test_storages_are_made_on_gpus():
    before = torch.cuda.memory_allocated(1)
    storage = torch.UntypedStorage(8, device="cuda:1")
    assert (storage.device, storage.nbytes(), torch.cuda.memory_allocated(1)) == (SECOND, 8, before + 512)


def test_nothing_is_copied_out_of_meta():
    nowhere = torch.UntypedStorage(8, device="meta")
    for copy in (nowhere.cpu, nowhere.cuda):
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
            copy()
    with pytest.raises(RuntimeError, match="only available on CUDA"):
        nowhere._share_cuda_()
    with pytest.raises(TypeError, match="only CPU memory can be pinned"):
        nowhere.pin_memory()
    assert torch.UntypedStorage(8, device=SECOND).to(device="cpu", non_blocking=True).is_pinned()


def test_events_know_where_they_were_recorded():
    event = torch.cuda.Event(enable_timing=True)
    assert event.device is None
    with pytest.raises(ValueError, match="must be recorded before"):
        event.elapsed_time(event)
    with torch.cuda.device(1):
        event.record()
    assert event.device == SECOND


def test_gathering_keeps_the_order_of_channels():
    parts = [torch.ones(1, 3, 4, 4, device=i).to(memory_format=torch.channels_last) for i in (0, 1)]
    assert gather(parts, 0).is_contiguous(memory_format=torch.channels_last)


def test_a_broadcast_keeps_the_tensors_of_the_first_gpu():
    tensors = [torch.ones(2, device=FIRST), torch.eye(2).to_sparse().to(FIRST)]
    here, there = comm.broadcast_coalesced(tensors, (0, 1))
    assert all(copy is tensor for copy, tensor in zip(here, tensors, strict=True))
    assert {copy.device for copy in there} == {SECOND}


MISMATCHED = [
    (lambda x: comm.scatter(x, [0, 1], chunk_sizes=[1, 1, 2]), "devices and chunk_sizes to be of same length"),
    (lambda x: comm.gather([x, x[:, :1]]), r"index 1 has invalid shape \[4, 1\], but expected \[4, 2\]"),
]


@pytest.mark.parametrize(("call", "text"), MISMATCHED)
def test_copies_between_gpus_are_checked(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(torch.ones(4, 2, device=FIRST))


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.cuda.host_memory_stats(),
        lambda: torch.cuda.tunable.is_enabled(),
        lambda: torch.cuda.nccl.all_reduce([torch.ones(1, device=FIRST), torch.ones(1, device=SECOND)]),
        torch.cuda.MemPool,
    ],
)
def test_what_only_real_gpus_have_is_refused_by_name(call):
    with pytest.raises(SimulationError, match="virtual GPUs have no"):
        call()


def test_a_profiler_sees_what_the_cpu_does(capfd):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        torch.ones(2, device=SECOND).mul(2)
    assert "aten::mul" in {event.key for event in seen.key_averages()}
    assert "Failed to record" not in capfd.readouterr().err


def test_an_operator_of_the_users_own_has_a_kernel_for_gpus():
    @torch.library.custom_op("differences::twice", mutates_args=(), device_types="cuda")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @torch.library.custom_op("differences::on_host", mutates_args=(), device_types="cpu")
    def on_host(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    result = twice(torch.ones(2, device=SECOND))
    assert (result.device, result.tolist()) == (SECOND, [2, 2])
    assert on_host(torch.ones(2)).tolist() == [2, 2]
    with pytest.raises(NotImplementedError, match="with arguments from the 'CUDA' backend"):
        on_host(torch.ones(2, device=SECOND))
