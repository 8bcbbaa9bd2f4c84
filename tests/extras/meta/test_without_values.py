"""`compute=False`: placement and memory of models of any size, with nothing allocated."""

import resource

import pytest
import torch
from torch import nn

from devwidget.capture.devices import set_default_device
from devwidget.gpus import simulate
from devwidget.records.errors import SimulationError

CPU, FIRST, SECOND = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


@pytest.fixture
def gpus():
    with simulate(2, "80GiB", compute=False) as simulation:
        yield simulation


def test_huge_tensors_are_placed_and_counted_but_not_allocated(gpus):
    torch.randn(4, device="cuda:1") * 2  # builds for CUDA load their libraries late
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    x = torch.randn(10 << 30, device="cuda:1")
    assert x.device == (x * 2).device == SECOND
    assert torch.cuda.memory_allocated(1) == 40 << 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.cat([x, x])


def test_models_train_without_values(gpus):
    model = nn.Sequential(nn.Conv1d(2, 4, 2), nn.GELU(), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 3)).cuda(1)
    optimizer = torch.optim.AdamW(model.parameters())
    loss = nn.functional.cross_entropy(model(torch.randn(2, 2, 4).cuda(1)), torch.tensor([0, 2], device="cuda:1"))
    loss.backward()
    optimizer.step()
    assert loss.device == model[0].weight.grad.device == optimizer.state[model[0].weight]["exp_avg"].device == SECOND


def test_recurrence_attention_and_data_parallel_work(gpus):
    layer, q = nn.MultiheadAttention(8, 2).cuda(), torch.randn(5, 2, 8, device="cuda")
    layer(q, q, q)[0].sum().backward()
    assert nn.LSTM(3, 4).cuda()(torch.randn(5, 2, 3, device="cuda"))[0].device == FIRST
    assert nn.DataParallel(nn.Linear(4, 2).cuda())(torch.randn(6, 4)).device == FIRST
    with torch.autocast("cuda"):
        assert nn.Linear(4, 2).cuda()(torch.randn(6, 4).cuda()).dtype == torch.float16


def test_the_cpu_and_meta_are_told_apart(gpus):
    x, y = torch.randn(3), torch.randn(3, device="meta")
    assert (x.device, x.is_meta) == (CPU, False)
    assert (y.device.type, y.is_meta) == ("meta", True)
    assert x.cuda().cpu().device == CPU
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        y.cuda()
    assert "size=(3,)" in repr(x)


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x[x > 0],
        lambda x: x.tolist(),
        lambda x: x.cpu().numpy(),
    ],
)
def test_what_needs_values_says_so(gpus, ask):
    with pytest.raises(SimulationError, match="needs the values of a tensor"):
        ask(torch.randn(3, device="cuda"))


def test_what_a_program_wrote_down_is_known_and_what_weights_make_of_it_is_not(gpus):
    mask = torch.ones(2, 3, device="cuda")
    mask[:, [0, -1]] = 0
    assert (mask.sum().item(), mask.bool().nonzero().tolist(), mask.device) == (2, [[0, 1], [1, 1]], FIRST)
    mask[0] = torch.randn(3, device="cuda")
    with pytest.raises(SimulationError, match="needs the values of a tensor"):
        mask.sum().item()


def test_a_known_mask_selects_from_unknown_numbers(gpus):
    x, mask = torch.randn(4, 8, device="cuda", requires_grad=True), torch.arange(4, device="cuda") > 0
    assert x[mask].shape == (3, 8)
    x[mask].sum().backward()
    assert x.grad.shape == (4, 8)
    assert x.masked_select(mask[:, None]).shape == (24,)


def test_numbers_are_taken_as_finite_and_a_lone_draw_as_the_largest(gpus):
    hidden = nn.Linear(2, 2).cuda()(torch.randn(3, 2, device="cuda"))
    assert torch.isfinite(hidden).all()
    assert not torch.isnan(hidden).any()
    assert not torch.isinf(hidden).any()
    assert torch.rand([]) > 0.99


def test_torch_is_as_it_was_afterwards(gpus):
    torch.set_default_device("cpu")
    try:
        gpus.stop()
        assert not torch._C._get_function_stack_at(0).__module__.startswith("devwidget")
        assert torch.tensor([torch.tensor(1), torch.tensor(2)]).tolist() == [1, 2]
    finally:
        set_default_device(None)


def test_small_whole_numbers_keep_their_values(gpus):
    lengths, steps = torch.tensor([3, 1], device="cuda"), torch.arange(4, device="cuda:1")
    assert lengths.tolist() == [3, 1]
    assert lengths.device == FIRST
    assert (steps == 2).sum().item() == 1
    assert steps.cuda(0).device == torch.ones_like(lengths).device == FIRST
