"""Values followed back through lines that still run, and state that a program has put elsewhere."""

import pytest
import torch
from torch import nn

import devwidget
from tests.capture.test_diagnosis import line_of


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def explained(model, *batch):
    with pytest.raises(RuntimeError) as caught:
        model(*batch)
    return devwidget.explain(caught.value).findings


def on_gpu(*shape):
    return torch.ones(*shape, device="cuda:0")


class Offsets(nn.Module):
    def forward(self, x):
        offsets = torch.arange(3) * 2
        return x + offsets


def test_a_factory_inside_of_an_expression_is_told_where_to_make_its_result():
    (found,) = explained(Offsets(), on_gpu(3))
    assert found.fixes[0].code == "offsets = torch.arange(3, device=x.device) * 2"


def test_state_that_a_program_put_elsewhere_goes_back_before_the_step():
    model = nn.Linear(3, 3).to("cuda:0")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(_):
        model(on_gpu(2, 3)).sum().backward()
        optimizer.step()

    step(None)
    for state in optimizer.state.values():
        state["momentum_buffer"] = state["momentum_buffer"].cpu()
    (found,) = explained(step, None)
    (edit,) = found.fixes[0].edits
    assert found.kind == "optimizer-misplaced"
    assert edit.first == line_of(step, "optimizer.step()")
    exec(found.fixes[0].code, {"optimizer": optimizer})
    step(None)


class Spectrum(nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x)


def test_a_transform_of_half_precision_is_computed_in_single_and_stays_complex():
    (found,) = devwidget.trace(Spectrum(), on_gpu(2, 8).bfloat16()).findings
    assert (found.kind, found.fixes[0].verified) == ("unsupported-on-device", True)
    assert found.fixes[0].code == "return torch.fft.rfft(x.float())"


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3))
        self.inner[0].register_forward_hook(lambda module, args, out: out * torch.ones(3))

    def forward(self, x):
        return self.inner(x)


def test_a_fault_in_a_hook_is_in_the_module_that_has_the_hook():
    trace = devwidget.trace(Hooked().to("cuda:0"), on_gpu(2, 3))
    assert [fault.module for fault in trace.faults] == ["inner.0"]
