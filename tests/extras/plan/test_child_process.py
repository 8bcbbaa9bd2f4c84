"""Plans while virtual GPUs are running, and where real ones were used: in a child process that sees no GPU."""

import os
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import devwidget
from devwidget.capture.restore.settings import switches_now
from devwidget.extras.plan import child_process
from devwidget.extras.plan.child_process import ask_child
from devwidget.records.errors import DevwidgetError
from tests.extras.plan.measured import total


class Net(nn.Module):
    """Two layers that may be apart, one of them of a class made up, and a mask by which it decides."""

    def __init__(self, width=256):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), parametrizations.weight_norm(nn.Linear(width, width))
        self.register_buffer("mask", torch.arange(4))
        self.tied = self.first.weight

    def forward(self, x):
        assert self.mask.tolist() == [0, 1, 2, 3]
        return self.second(self.first(x).to(self.second.bias.device))


pytestmark = pytest.mark.process
ASKED = {"memory": "1GiB", "loss_fn": total, "optimizer": torch.optim.AdamW}
X = torch.randn(32, 256)


@pytest.mark.parametrize("compute", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_inside_a_simulation_a_plan_is_what_it_is_outside(compute):
    outside = devwidget.plan(Net(), X, gpus=1, **ASKED)
    with devwidget.simulate(2, compute=compute):
        model = Net().cuda()
        before = [torch.cuda.memory_allocated(index) for index in (0, 1)]
        inside = devwidget.plan(model, X, gpus=1, **ASKED)
        assert [torch.cuda.memory_allocated(index) for index in (0, 1)] == before
        assert model(X.cuda()).device == torch.device("cuda:0")
    assert inside == outside


@pytest.mark.slow
def test_a_model_that_is_split_over_virtual_gpus_is_planned_as_it_is():
    with devwidget.simulate(2):
        model = Net().cuda()
        model.second.to("cuda:1")
        optimizer = torch.optim.AdamW(model.parameters())
        found = devwidget.plan(model, X.cuda(), gpus=2, **{**ASKED, "optimizer": optimizer})
        values = model.first.weight.clone()
        largest = found.largest_batch()
        assert torch.equal(values, model.first.weight)
    weights = 256 * 256 * 4
    assert found.devices[0].weights == pytest.approx(weights, rel=0.02)
    assert found.devices[1].weights == pytest.approx(weights, rel=0.02)
    assert largest.size > len(X)


@pytest.mark.slow
def test_what_this_process_has_switched_counts_in_the_child():
    with devwidget.simulate(1), torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        here = switches_now()
        assert ask_child(switches_now) == here
    assert here["autocast on cuda"] == (True, torch.bfloat16)


@pytest.fixture
def a_started_gpu(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)


class Tells(Net):
    def forward(self, x):
        print("visible:", os.environ["CUDA_VISIBLE_DEVICES"] or "none")
        return super().forward(x)


@pytest.mark.slow
def test_where_real_gpus_were_used_a_child_plans_that_sees_none(a_started_gpu, capsys):
    found = devwidget.plan(Tells(), X, gpus=1, loop="step", **ASKED)
    assert capsys.readouterr().out == "visible: none\n" * 2
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert (found.fits, found.devices[0].weights) == (True, 2 * 256 * 256 * 4 + 3 * 1024 + 512)


class Fails(Net):
    def forward(self, x):
        raise KeyError(x.shape)


def test_what_the_model_raises_is_raised_with_its_place_as_a_note(a_started_gpu):
    with pytest.raises(KeyError, match="256") as raised:
        devwidget.plan(Fails(), X, gpus=1, **ASKED)
    assert "raise KeyError(x.shape)" in raised.value.__notes__[0]


def test_a_model_that_cannot_be_sent_is_refused_with_what_to_do(a_started_gpu):
    model = Net()
    model.lock = threading.Lock()
    with pytest.raises(DevwidgetError, match="cannot be sent to another process"):
        devwidget.plan(model, X, gpus=1, **ASKED)


def test_a_child_that_dies_is_told(a_started_gpu, monkeypatch):
    monkeypatch.setattr(child_process, "write_question", lambda *about: b"")
    with pytest.raises(DevwidgetError, match=r"ended with 1: .*EOFError"):
        devwidget.plan(Net(), X, gpus=1, **ASKED)


class Printing(nn.Linear):
    """Writes bytes that are no text in any encoding, from C as a library would."""

    def forward(self, x):
        os.write(1, b"caf\xe9 \xff\n")
        print("h\u00e9llo")
        return super().forward(x)


@pytest.mark.slow
def test_what_a_model_prints_that_is_no_text_is_shown_by_its_bytes(capsys):
    with devwidget.simulate(1):
        found = devwidget.plan(Printing(4, 4), torch.ones(2, 4), gpus=1, memory="1GiB")
    assert found.fits
    assert r"caf\xe9 \xff" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference_is_planned_under_either_mode(mode):
    with mode():
        found = devwidget.plan(Net(), X, gpus=1, memory="1GiB")
        with devwidget.simulate(1):
            assert devwidget.plan(Net(), X, gpus=1, memory="1GiB") == found
    assert found.phases == ("forward", "loss")
