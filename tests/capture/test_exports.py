"""Programs that `torch.export` and dynamo read while they are recorded: as unwatched."""

import warnings
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules
from torch.overrides import _get_current_function_mode_stack

import devwidget
from devwidget.capture.patching.mode_stack import dispatch_modes
from tests.sampling import sample


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.left(x).relu() + self.right(x)


class Branches(Net):
    def forward(self, x):
        return torch.cond(x.sum() > 0, self.left, self.right, (x,))


def strict(model, x):
    return torch.export.export(model, (x,), strict=True).module()


def traced(model, x):
    return torch.export.export(model, (x,), strict=False).module()


def by_dynamo(model, x):
    return torch._dynamo.export(model)(x).graph_module


@pytest.mark.parametrize(
    ("kind", "way"), sample([(kind, way) for kind in (Branches, Net) for way in (strict, traced, by_dynamo)], every=4)
)
def test_an_export_in_a_recording_gives_plains_numbers(kind, way):
    model, x = kind(), torch.ones(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = way(model, x)(x)
        with devwidget.record(heal=True) as recording:
            modes = [*_get_current_function_mode_stack(), *dispatch_modes()]
            hooks = torch_modules._global_forward_hooks
            exported = way(model, x)
            assert [*_get_current_function_mode_stack(), *dispatch_modes()] == modes
            assert torch_modules._global_forward_hooks is hooks
            assert torch.equal(exported(x), plain)
            model(x)
    assert recording.trace.findings == ()
    assert recording.trace.modules


def test_a_failing_export_leaves_the_recording_at_work():
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("the model's own")

    # Before torch 2.11 an export that fails leaves a hook of its own there.
    with mock.patch.dict(torch_modules._global_buffer_registration_hooks), devwidget.record() as recording:
        with pytest.raises(ValueError, match="the model's own"):
            torch.export.export(Failing(), (torch.ones(1),))
        torch.ones(1).sin()
    assert "sin" in {op.name for op in recording.trace.ops}


def test_the_gradient_of_a_branch_that_is_not_taken_is_spoken_of():
    model = Branches()
    with devwidget.record() as recording:
        model(torch.ones(3, 4)).sum().backward()
    assert any("torch.cond" in text for text in recording.trace.not_checked)
    with devwidget.record() as recording, torch.no_grad():
        model(torch.ones(3, 4))
    assert not any("torch.cond" in text for text in recording.trace.not_checked)
