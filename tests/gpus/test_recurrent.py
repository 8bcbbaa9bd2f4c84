"""Recurrent layers are cuDNN's on a GPU: what they differentiate, and what autocast makes of them."""

import pytest
import torch
from torch import nn

from devwidget.gpus import simulate

KINDS = [nn.LSTM, nn.GRU, nn.RNN]
DTYPES = [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)]
pytestmark = [pytest.mark.usefixtures("gpus"), pytest.mark.parametrize("kind", KINDS)]


def layer(kind, dtype=torch.float32):
    return kind(3, 4, 2, bidirectional=True).to(dtype), torch.randn(5, 2, 3).to(dtype)


def trained(model, x):
    x = x.clone().requires_grad_()
    model(x)[0].sum().backward()
    return [x.grad.cpu(), *(weight.grad.cpu() for weight in model.parameters())]


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_in_training_are_those_of_the_cpu(kind, dtype):
    model, x = layer(kind, dtype)
    expected = trained(model, x)
    model.zero_grad()
    assert all(map(torch.equal, trained(model.cuda(), x.cuda()), expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_backward_in_evaluation_is_refused(kind, dtype):
    model, x = layer(kind, dtype)
    model.cuda().eval()
    packed = nn.utils.rnn.pack_padded_sequence(x.cuda(), torch.tensor([5, 3]))
    state = model(x.cuda())[1]
    for result in (model(x.cuda())[0], state[0] if isinstance(state, tuple) else state, model(packed)[0].data):
        with pytest.raises(RuntimeError, match="cudnn RNN backward can only be called in training mode"):
            result.sum().backward()
    with torch.backends.cudnn.flags(enabled=False):
        model(x.cuda())[0].sum().backward()
    model.cpu()(x)[0].sum().backward()


def test_the_input_is_free_after_backward(kind):
    model, x = kind(64, 1).cuda(), torch.ones(64, 64, 64, device="cuda")
    loss = model(x * model.weight_ih_l0[0, 0])[0].sum()
    before = torch.cuda.memory_allocated()
    loss.backward()
    assert before - torch.cuda.memory_allocated() > 64**3 * 4 - 2**17


def test_without_values_the_same_is_refused(kind, gpus):
    gpus.stop()
    with simulate(1, compute=False):
        model, x = kind(3, 4).cuda().eval(), torch.ones(5, 2, 3, device="cuda")
        with torch.autocast("cuda"):
            output = model(x)[0]
        with pytest.raises(RuntimeError, match="in training mode"):
            output.sum().backward()
    assert output.dtype == torch.float16
