"""Optimizers on a model that is split over two virtual GPUs."""

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")
CLASSES = [getattr(torch.optim, name) for name in
           ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"]]  # fmt: skip


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


@pytest.mark.parametrize("optimizer_class", CLASSES)
@pytest.mark.parametrize("foreach", [None, False])
def test_steps_equal_those_on_the_cpu_and_states_stay_beside_their_parameters(optimizer_class, foreach):
    split = trained(optimizer_class, ("cuda:0", "cuda:1"), foreach=foreach)
    plain = trained(optimizer_class, ("cpu", "cpu"), foreach=foreach)
    ours, theirs = split.param_groups[0]["params"], plain.param_groups[0]["params"]
    for left, right in zip(ours, theirs, strict=True):
        assert torch.allclose(left.cpu(), right, atol=1e-6)
    assert [str(p.device) for p in ours] == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    for parameter in ours:
        for value in split.state[parameter].values():
            assert not isinstance(value, torch.Tensor) or value.dim() == 0 or value.device == parameter.device


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_fused_steps_work_too(optimizer_class):
    trained(optimizer_class, ("cuda:0", "cuda:0"), fused=True)


def test_state_left_behind_is_refused():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adagrad(model.parameters())
    model.cuda()
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu!"):
        optimizer.step()


def test_a_loaded_state_follows_the_parameters():
    model = nn.Linear(2, 2).cuda(1)
    model(torch.ones(1, 2, device="cuda:1")).sum().backward()
    first, second = torch.optim.Adam(model.parameters()), torch.optim.Adam(model.parameters())
    first.step()
    second.load_state_dict(first.state_dict())
    second.step()
    assert second.state[model.weight]["exp_avg"].device == torch.device("cuda:1")
