"""After `trace`, a model that changes something in its step is what it was, to the bit and by identity."""

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.devices import set_default_device
from tests.capture.restore.changing_models import ROWS
from tests.described import described, differences, switches
from tests.sampling import sample


@pytest.fixture(autouse=True)
def _torch_as_it_was():
    """A row that fails does not make the next ones fail."""
    yield
    set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)


def assert_put_back(model, **more):
    batch = torch.rand(2, 4)
    before = described(model, batch, *more.values()), switches()
    traced = devwidget.trace(model, batch, **more)
    assert differences(before, (described(model, batch, *more.values()), switches())) == []
    assert traced.not_restored == ()
    return traced


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("name", ROWS)
def test_a_forward_pass_puts_back(name):
    assert assert_put_back(ROWS[name]()).error == ""


@pytest.mark.parametrize("name", sample(ROWS, every=6))
def test_a_step_with_an_optimizer_puts_back(name):
    """Some changes make backward fail."""
    model = ROWS[name]()
    optimizer = torch.optim.Adam([p for p in model.parameters() if not nn.parameter.is_lazy(p)], lr=0.1)
    assert_put_back(model, loss_fn=torch.sum, optimizer=optimizer)
