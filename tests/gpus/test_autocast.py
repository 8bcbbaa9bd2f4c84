"""Mixed precision on virtual GPUs follows CUDA's lists."""

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")


@pytest.fixture
def x():
    return torch.randn(2, 4, device="cuda")


def test_training_with_a_scaler_gives_float_gradients(x):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
    before = model[0].weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert model[0].weight.grad.dtype == torch.float32
    assert not torch.equal(model[0].weight, before)


def test_weights_are_cast_once(x):
    layer, casts = nn.Linear(4, 4).cuda(), []

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls):
            return False

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            casts.append(func) if func is torch.ops.aten._to_copy.default else None
            return func(*args, **(kwargs or {}))

    with torch.autocast("cuda"), Counting():
        layer(x)
        layer(x)
    assert len(casts) == 4  # weight, bias and twice the input
