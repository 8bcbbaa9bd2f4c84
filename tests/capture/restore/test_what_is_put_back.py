"""After `trace`, a model that changes something in its step is what it was, to the bit and by identity."""

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.devices import set_default_device
from tests.capture.restore.changing_models import ROWS
from tests.described import described, differences, switches


@pytest.fixture(autouse=True)
def _torch_as_it_was():
    """A row that fails does not make the next ones fail."""
    yield
    set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)


def _batch():
    return torch.rand(2, 4)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("step", ["forward", "with optimizer"])
def test_a_step_puts_back(name, step):
    torch.manual_seed(0)
    model, batch = ROWS[name](), _batch()
    optimizer = torch.optim.Adam([p for p in model.parameters() if not nn.parameter.is_lazy(p)], lr=0.1)
    more = {"loss_fn": lambda out: out.sum(), "optimizer": optimizer} if step == "with optimizer" else {}
    before = described(model, batch, optimizer), switches()
    traced = devwidget.trace(model, batch, **more)
    assert differences(before, (described(model, batch, optimizer), switches())) == []
    assert traced.not_restored == ()
    assert step != "forward" or (traced.error == "") is (name != "failure"), traced.error  # some changes make backward fail
