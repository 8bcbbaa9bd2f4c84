"""Values followed back through lines that still run: comprehensions, and what was moved to where another tensor is."""

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


class Zipped(nn.Module):
    def forward(self, x):
        moved, stayed = on_gpu(3), torch.ones(3)
        scale, shift = [a + b for a, b in zip((moved, stayed), (moved * 2, stayed * 2), strict=True)]
        return x * scale + shift


def test_variables_of_a_zip_are_told_apart():
    (found,) = explained(Zipped(), on_gpu(2, 3))
    assert found.birth.line == line_of(Zipped, "moved, stayed =")


class Shadowed(nn.Module):
    def forward(self, x):
        pairs = [torch.ones(3), torch.ones(3)]
        (first, _) = [x.exp() for x in pairs]
        return x + first


def test_a_variable_of_a_comprehension_is_not_the_argument_of_its_name():
    (found,) = explained(Shadowed(), on_gpu(2, 3))
    assert found.birth.line == line_of(Shadowed, "pairs =")


def cast_back(out, wanted):
    first_dtype = wanted.dtype
    out = torch.zeros(out.shape) + 1
    return out.transpose(0, 1).to(first_dtype, memory_format=torch.contiguous_format)


def test_a_cast_to_a_variable_is_no_move():
    def act(x):
        return cast_back(x, x) * x

    (found,) = explained(act, on_gpu(3, 3))
    assert found.birth.line == line_of(cast_back, "torch.zeros")


class Sign(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["mean"] = torch.zeros(p.shape)
            mean = state["mean"]
            mean.mul_(0.9).add_(p.grad)


def test_an_item_is_born_where_the_same_function_put_it():
    model = nn.Linear(3, 3).to("cuda:0")
    optimizer = Sign(model.parameters(), {})
    model(on_gpu(2, 3)).sum().backward()
    (found,) = explained(lambda _: optimizer.step(), None)
    assert (found.kind, found.birth.line) == ("wrong-device", line_of(Sign, "torch.zeros"))
    assert "device=p.device" in found.fixes[0].code


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


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x, mask=None):
        if mask is None:
            mask = torch.ones(x.shape).bool()
        else:
            rows = len(mask)
            mask = mask.view(rows, -1)
        return mask * self.lin(x)


def test_an_argument_that_a_batch_in_stars_lacks_was_missing():
    model = Masked().to("cuda:0")
    (found,) = explained(lambda batch: model(**dict(batch)), {"x": on_gpu(2, 3)})
    assert found.birth.line == line_of(Masked, "torch.ones")
