"""Syncs outside of the model: an optimizer, and loops over parameters and samples, with how often; healthy loops are silent."""

import pytest
import torch
from torch import nn

import devwidget


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def syncs(turn, optimizer_class=torch.optim.Adam, *, steps=3, prepare=None):
    """What is found over some training steps after a first one."""
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)]).to("cuda")
    optimizer = optimizer_class(model.parameters())

    def step():
        out = model(torch.randn(8, 8, device="cuda"))
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        turn(out.detach())

    step()
    if prepare is not None:
        prepare(optimizer)
    with devwidget.record() as recording:
        for _ in range(steps):
            step()
    return [each for each in recording.trace.findings if each.kind == "host-sync"]


def nothing(_):
    pass


def move_counters(optimizer):
    """As a checkpoint that is loaded with map_location="cuda" leaves them."""
    for state in optimizer.state.values():
        state["step"] = state["step"].cuda()


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RAdam])
def test_counters_of_an_optimizer_on_the_gpu_are_named_with_their_count(optimizer):
    (found,) = syncs(nothing, optimizer, prepare=move_counters)
    assert (found.severity, found.fault.text) == ("info", "optimizer.step()")
    assert found.headline.startswith("`optimizer.step()` syncs with cuda:0, ")
    assert found.notes[0] == "the counters in the optimizer's state, such as `step`, are on cuda:0"
    assert 'state["step"].cpu()' in found.fixes[0].code


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.SGD])
def test_an_optimizer_whose_counters_are_on_the_cpu_is_silent(optimizer):
    assert syncs(nothing, optimizer) == []


def test_samples_that_are_copied_one_by_one_are_named():
    kept = []

    def turn(out):
        for row in out:
            kept.append(row.cpu())

    (found,) = syncs(turn)
    assert (found.severity, found.fault.text) == ("info", "kept.append(row.cpu())")
    assert found.headline == "`row.cpu()` syncs with cuda:0, 24 times in 3 steps"
    assert found.fixes[0].code == "out.cpu()"


def test_a_few_results_of_each_step_may_be_copied():
    kept = []
    assert syncs(lambda out: kept.extend(each.cpu() for each in (out, out.sum(), out.argmax(1)))) == []


def test_a_loop_over_samples_in_the_only_step_is_a_hint():
    kept = []
    (found,) = syncs(lambda out: kept.extend(row.sum().item() for row in out), steps=1)
    assert (found.severity, found.headline) == ("info", "`row.sum().item()` syncs with cuda:0, 8 times")


class Halving(torch.optim.Optimizer):
    """Reads the norm of each gradient."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad.norm() > 1:
                    parameter.grad.mul_(0.5)
                parameter.sub_(parameter.grad, alpha=0.1)


@pytest.mark.parametrize("steps", [1, 3])
def test_an_optimizer_of_the_user_that_reads_each_gradient_is_a_warning(steps):
    (found,) = syncs(nothing, Halving, steps=steps)
    assert (found.severity, found.fault.text) == ("warning", "if parameter.grad.norm() > 1:")
