"""Recordings on a card: nothing of them left behind, and bytes as the allocator counts them."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

import devwidget
from tests import zoo
from tests.extras.plan.measured import keeps_all_layers, total

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]
GPU = "cuda"
STEPS = 4
SOME = ["gpt2", "llama", "resnet", "t5"]


def models(names=None):
    """Models of transformers with their batch, there."""
    for path, model, _, kwargs in zoo.iter_core(names=names, training=True):
        there = tree_map_only(torch.Tensor, lambda tensor: tensor.to(GPU), kwargs)
        yield path.rsplit(".", 1)[1], keeps_all_layers(model).to(GPU), there


def train(model, kwargs):
    """Losses, parameters, buffers and random states after a short training of a copy."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.01)
    torch.manual_seed(0)
    losses = []
    for _ in range(STEPS):
        losses.append(total(model(**kwargs)))
        losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    states = [torch.get_rng_state(), torch.cuda.get_rng_state()]
    return [each.detach().clone() for each in (*losses, *model.state_dict().values(), *states)]


def assert_trained_alike(names, reports):
    same, moving, differing = 0, [], {}
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False):
        for name, model, kwargs in models(names):
            if not any(each.requires_grad for each in model.parameters()):
                continue
            plain, again = train(model, kwargs), train(model, kwargs)
            if not all(map(equal, plain, again)):
                moving.append(name)
                continue
            with devwidget.record():
                recorded = train(model, kwargs)
            if all(map(equal, plain, recorded)):
                same += 1
            else:
                differing[name] = sum(not equal(*pair) for pair in zip(plain, recorded, strict=True))
    reports(f"trained {STEPS} steps as without: {same}; differ: {differing}; do not repeat themselves: {moving}")
    assert differing == {}


def equal(one, other):
    return torch.equal(one.nan_to_num(), other.nan_to_num()) if one.is_floating_point() else torch.equal(one, other)


def test_some_models_are_trained_as_without_us(card, reports):
    assert_trained_alike(SOME, reports)


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(6))
def test_models_are_trained_as_without_us(part, card, reports):
    assert_trained_alike(list(zoo.CORE)[part::6], reports)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 256), nn.BatchNorm1d(256), nn.Linear(256, 10)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


def test_a_trace_leaves_everything_as_it_was(card):
    torch.manual_seed(0)
    model = Net().to(GPU)
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.rand(32, 64, device=GPU), torch.randint(0, 10, (32,), device=GPU)
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    before = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
    random = torch.cuda.get_rng_state()
    gc.collect()
    allocated = torch.cuda.memory_allocated()
    traced = devwidget.trace(model, x, target=y, loss_fn=nn.functional.cross_entropy, optimizer=optimizer)
    assert traced.findings == ()
    del traced
    gc.collect()
    after = [model.state_dict(), optimizer.state_dict()]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert torch.equal(torch.cuda.get_rng_state(), random)
    assert torch.cuda.memory_allocated() == allocated


def test_a_bar_has_what_the_allocator_and_the_driver_count(card, reports):
    model = Net().to(GPU)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.rand(32, 64, device=GPU)).sum().backward()
    optimizer.step()
    kept = torch.empty(5_000_000, device=GPU)
    snapshot = devwidget.snapshot(model, optimizer=optimizer)
    bar = next(each for each in snapshot.memory if str(each.device) == "cuda:0")
    parts = {name: getattr(bar, name) for name in ("parameters", "buffers", "gradients", "optimizer", "activations", "cache")}
    parts |= {name: getattr(bar, name) for name in ("others", "free")}
    reports(f"a bar: {bar.name}, {bar.total:,} bytes, {parts}; mem_get_info {torch.cuda.mem_get_info()}")
    assert sum(parts.values()) == bar.total
    tensors = sum(parts[name] for name in ("parameters", "buffers", "gradients", "optimizer", "activations"))
    assert tensors == torch.cuda.memory_allocated()
    assert tensors + parts["cache"] == torch.cuda.memory_reserved()
    assert abs(bar.total - torch.cuda.mem_get_info()[1]) < bar.total // 20
    assert kept.numel()


def test_the_peak_of_a_recording_is_that_of_the_allocator(card, reports):
    model = Net().to(GPU)
    x = torch.rand(4096, 64, device=GPU)
    model(x).sum().backward()
    model.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    with devwidget.record() as recording:
        recording.attach(model)
        model(x).sum().backward()
    peak = torch.cuda.max_memory_allocated()
    (curve,) = [each for each in recording.trace.memory if str(each.end.device) == "cuda:0"]
    told = max(point.allocated for point in curve.points)
    reports(f"peak of a step: {told:,} told by a curve of {len(curve.points)} points, {peak:,} by the allocator")
    assert curve.source == "allocator"
    assert told == peak


def test_a_full_gpu_is_told_with_its_line(card):
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 8)

        def forward(self, x):
            return self.first(x).repeat(1 << 20, 1 << 16)

    model = Wide().to(GPU)
    x = torch.rand(8, 8, device=GPU)
    with devwidget.record() as recording:
        recording.attach(model)
        with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
            model(x)
    (curve,) = [each for each in recording.trace.memory if str(each.end.device) == "cuda:0"]
    (refusal,) = curve.refused
    assert refusal.site.function == "forward"
    assert ".repeat(" in refusal.site.text
    assert refusal.bytes == (8 * 8 * 4) << 36
    assert "memory of cuda:0 after the error" in str(devwidget.explain(caught.value))
