"""Mixed precision on virtual GPUs follows CUDA's lists."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.usefixtures("gpus")


@pytest.fixture
def x():
    return torch.randn(2, 4, device="cuda")


def test_matrix_products_are_half_and_reductions_are_float(x):
    layer = nn.Linear(4, 4).cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        y = layer(x)
        assert y.dtype == (x @ x.T).dtype == torch.float16
        for z in (y.softmax(-1), F.layer_norm(y, (4,)), y.log(), y.pow(2), y.sum(), F.mse_loss(y, y), y.exp()):
            assert z.dtype == torch.float32
        assert torch.cat([y, y]).dtype == F.relu(y).dtype == torch.float16
        with torch.autocast("cuda", enabled=False):
            assert layer(x).dtype == torch.float32


def test_tensors_on_the_cpu_and_in_double_are_left_alone(x):
    with torch.autocast("cuda"):
        assert nn.Linear(4, 4)(x.cpu()).dtype == torch.float32
        assert nn.Linear(4, 4).cuda().double()(x.double()).dtype == torch.float64


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
