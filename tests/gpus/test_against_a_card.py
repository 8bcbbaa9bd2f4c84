"""What an H100 does, each a class of calls that virtual GPUs once answered otherwise; `tests/gpu` holds them against a card."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from devwidget.gpus import simulate

FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
pytestmark = pytest.mark.usefixtures("gpus")


def ones(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype, device=SECOND)


def record_on_both(event):
    event.record(torch.cuda.current_stream(SECOND))
    event.record(torch.cuda.current_stream(FIRST))


BACKEND = "Could not run '{}' with arguments from the '{}' backend"
REFUSED = [
    (lambda: torch.zeros(3, device=1, pin_memory=True), RuntimeError, "Only dense CPU tensors can be pinned"),
    (lambda: torch.rand_like(ones(3), pin_memory=True), RuntimeError, "Only dense CPU tensors can be pinned"),
    (lambda: ones(2, dtype=torch.long).softmax(0), NotImplementedError, "\"host_softmax\" not implemented for 'Long'"),
    (lambda: record_on_both(torch.cuda.Event()), RuntimeError, "Event device 1 does not match recording stream's device 0."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_what_the_card_refuses_is_refused_in_its_words(call, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        call()


ACCEPTED = [
    lambda: torch.linalg.svdvals(ones(3, 3), driver="gesvdj"),
    lambda: torch._int_mm(*[ones(32, 32, dtype=torch.int8)] * 2),
    lambda: torch._foreach_add_([torch.ones(2), ones(2)], 1.0)[1],
    lambda: torch.tensor([1.0], device=SECOND, pin_memory=True),
]


@pytest.mark.parametrize("call", ACCEPTED)
def test_what_the_card_accepts_is_computed_there(call):
    assert call().device == SECOND


TWO = "Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cpu!"
WRAPPER = "is on {}, different from other tensors on {} (when checking argument in method wrapper_CUDA_{})"
here, one, index = torch.ones(3), torch.ones(()), torch.zeros(1, dtype=torch.long)
MIXED = [
    (lambda: torch.logical_and(one, ones()), TWO),  # these take no number of the CPU
    (lambda: F.binary_cross_entropy_with_logits(ones(), one), TWO),
    (lambda: F.smooth_l1_loss(ones(), one), TWO),
    (lambda: one.index_fill(0, index.to(SECOND), 1.0), TWO),
    (lambda: torch.linalg.lstsq(torch.ones(2, 1), ones(2, 1)), "b " + WRAPPER.format("cuda:1", "cpu", "out_linalg_lstsq_out")),
    (lambda: here.put(index.to(SECOND), one[None]), "index " + WRAPPER.format("cuda:1", "cpu", "_put_")),
    (lambda: ones(3).masked_scatter(here > 2, here), "mask " + WRAPPER.format("cpu", "cuda:1", "_masked_scatter_")),
    (lambda: F.conv3d(torch.ones(1, 1, 2, 2, 2), ones(1, 1, 2, 2, 2)), "weight type (torch.cuda.FloatTensor) should be "),
    (lambda: torch._native_batch_norm_legit(ones(2, 3), here, None, True, 0.1, 1e-5),
     "weight " + WRAPPER.format("cpu", "cuda:1", "no_stats__native_batch_norm_legit")),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), MIXED)
def test_tensors_of_two_devices_are_refused_in_its_words(call, text):
    with pytest.raises(RuntimeError, match=re.escape(text)):
        call()


def test_tensors_of_two_devices_are_taken_where_the_card_takes_them():
    assert torch.logical_or(ones(3), one).device == SECOND
    assert one.index_fill(0, index, ones()).device.type == "cpu"


def test_values_are_assigned_through_an_index_on_any_device():
    x, index = torch.ones(3), torch.tensor([1], device=FIRST)
    x[index] = 2.0
    x[torch.tensor([True, False, False], device=SECOND)] = torch.tensor([3.0])
    there = ones(3)
    there[index] = 5.0
    assert (x.tolist(), x.device.type) == ([3, 2, 1], "cpu")
    assert (there.tolist(), there.device) == ([1, 5, 1], SECOND)
    with pytest.raises(RuntimeError, match=r"on the same device as the indexed tensor \(cpu\)"):
        x[index]
    with pytest.raises(RuntimeError, match="at least two devices"):
        x[index.repeat(2)] = ones(2)


@pytest.mark.filterwarnings("ignore:torch.ao.quantization:DeprecationWarning", "ignore::UserWarning")
def test_quantized_modules_stay_on_the_cpu():
    model = nn.Sequential(torch.ao.quantization.QuantStub(), nn.Linear(3, 3), torch.ao.quantization.DeQuantStub()).eval()
    model.qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")
    prepared = torch.ao.quantization.prepare(model)
    prepared(torch.ones(2, 3))
    converted = torch.ao.quantization.convert(prepared)
    layer = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.GRU(3, 3)), {nn.GRU})
    assert converted(torch.ones(2, 3)).shape == (2, 3)
    with pytest.raises(NotImplementedError, match=re.escape(BACKEND.format("quantized::linear", "QuantizedCUDA"))):
        converted(ones(2, 3))
    with pytest.raises(NotImplementedError, match=re.escape(BACKEND.format("aten::quantized_gru.input", "CUDA"))):
        layer(ones(2, 2, 3))


def test_the_fused_attention_that_was_asked_for_takes_no_mask():
    query, mask = ones(1, 1, 4, 8, dtype=torch.half), torch.ones(4, 4, dtype=torch.bool, device=SECOND)
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.FLASH_ATTENTION):
        assert F.scaled_dot_product_attention(query, query, query).device == SECOND
        with pytest.raises(RuntimeError, match="No available kernel"):
            F.scaled_dot_product_attention(query, query, query, attn_mask=mask)


def test_facts_are_those_of_a_card():
    assert torch.backends.cudnn.version() > 90000
    assert ones(2).untyped_storage().is_shared()
    assert torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities()
    assert repr(torch.cuda.get_device_properties(0)).startswith(
        "_CudaDeviceProperties(name='devwidget virtual GPU', major=8, min"
    )


def test_without_values_the_same_rules_hold(gpus):
    gpus.stop()
    with simulate(2, compute=False):
        x = torch.ones(3)
        x[torch.tensor([1], device=FIRST)] = 2.0
        assert x.device.type == "cpu"
        for call, kind, text in REFUSED[1:3]:
            with pytest.raises(kind, match=re.escape(text)):
                call()
