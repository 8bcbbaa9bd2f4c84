"""Optimizers on a model that is split over two virtual GPUs; `judges` asks each of torch's list."""

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")
WAYS = [(torch.optim.SGD, {}), (torch.optim.AdamW, {"foreach": False}), (torch.optim.Adam, {"fused": True})]


def trained(optimizer_class, devices, **options):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 4).to(devices[0]), nn.Linear(4, 4).to(devices[1])
    optimizer = optimizer_class([*first.parameters(), *second.parameters()], lr=0.01, **options)
    for _ in range(3):
        optimizer.zero_grad()
        second(first(torch.ones(2, 4, device=devices[0])).to(devices[1])).square().sum().backward()
        nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 1.0)
        optimizer.step()
    return optimizer


@pytest.mark.parametrize(("optimizer_class", "options"), WAYS)
def test_steps_equal_those_on_the_cpu_and_states_stay_beside_their_parameters(optimizer_class, options):
    split = trained(optimizer_class, ("cuda:0", "cuda:1"), **options)
    plain = trained(optimizer_class, ("cpu", "cpu"), **options)
    ours, theirs = split.param_groups[0]["params"], plain.param_groups[0]["params"]
    for left, right in zip(ours, theirs, strict=True):
        assert torch.allclose(left.cpu(), right, atol=1e-6)
    assert [str(p.device) for p in ours] == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    for parameter in ours:
        for value in split.state[parameter].values():
            assert not isinstance(value, torch.Tensor) or value.dim() == 0 or value.device == parameter.device
