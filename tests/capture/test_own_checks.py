"""Programs that compare devices themselves and give up: which tensor is where is told, and by no edit is the check silenced."""

import pytest
import torch
from torch import nn

import devwidget


def ended(start, *kinds):
    recording = devwidget.record()
    with devwidget.simulate(gpus=2), pytest.raises(kinds or AssertionError), recording:
        start()
    return tuple(f for f in recording.trace.findings if f.severity == "error")  # pytest shows the values of an assert


def on_gpu(*shape):
    return torch.ones(*shape, device="cuda")


def test_an_assert_names_both_tensors_and_the_line_of_birth():
    def start():
        x, y = on_gpu(3), on_gpu(3)
        mask = torch.ones(3)
        assert x.device == y.device and x.device == mask.device  # noqa: PT018  one of two is not so

    (finding,) = ended(start)
    assert finding.kind == "wrong-device"
    assert finding.fault.text.startswith("assert x.device == y.device")
    assert finding.birth.text == "mask = torch.ones(3)"
    assert finding.fixes[0].edits[0].text.strip() == "mask = torch.ones(3, device=x.device)"
    assert not any(".device).device" in edit.text for fix in finding.fixes for edit in fix.edits)


def test_the_type_of_a_device_is_read():
    def start():
        x, y = on_gpu(3), torch.zeros(3)
        if not x.requires_grad and x.device.type != y.device.type:
            raise ValueError

    (finding,) = ended(start, ValueError)
    assert finding.birth.text == "x, y = on_gpu(3), torch.zeros(3)"


def test_a_check_against_a_device_asks_for_that_one():
    def start():
        device, x = torch.device("cuda:1"), torch.zeros(3)
        if x.device != device:
            raise ValueError(x.device)

    (finding,) = ended(start, ValueError)
    assert "cuda:1" in str(finding.headline)
    assert finding.fixes[0].edits[0].text.strip().startswith("device, x =")


def test_checks_of_something_else_say_nothing():
    def shapes():
        x, y = on_gpu(3), torch.zeros(4)
        assert x.shape == y.shape

    def equal():
        x, y = on_gpu(3), on_gpu(3)
        assert x.device == y.device and x.shape != y.shape  # noqa: PT018

    def apart():
        x, y = on_gpu(3), on_gpu(3)
        assert x.device != y.device

    def elsewhere():
        x, y = on_gpu(3), torch.zeros(3)
        if x.device != y.device:
            y = y.clone()
        else:
            raise AssertionError
        raise AssertionError(y.shape)

    assert [ended(start) for start in (shapes, equal, apart, elsewhere)] == [()] * 4


def test_a_model_that_was_never_moved_is_what_is_to_move():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            assert x.device == self.layer.weight.device
            return self.layer(x)

    def start():
        net = Net()
        net(on_gpu(3))

    (finding,) = ended(start)
    assert finding.fixes[0].edits[0].text.strip() == "net = Net().to('cuda:0')"


def test_an_exception_is_explained_as_it_is_recorded():
    with devwidget.simulate(gpus=1):
        mask, x = torch.zeros(3), on_gpu(3)
        try:
            assert x.device == mask.device
        except AssertionError as error:
            (finding,) = devwidget.explain(error).findings
    assert finding.birth.text.startswith("mask, x =")
