"""An optimizer that steps the parameters of another model is found; one that leaves parameters alone on purpose is not."""

import copy

import pytest
import torch
from torch import nn

import devwidget


def kinds(trace):
    return [found.kind for found in trace.findings if found.kind == "optimizer-misplaced"]


def recorded(*optimizers, loss, steps=1, zero=None):
    """The trace of some steps of a loop."""
    with devwidget.record() as recording:
        for _ in range(steps):
            for each in zero or optimizers:
                each.zero_grad()
            loss().backward()
            for each in optimizers:
                each.step()
    return recording.trace


def test_a_model_made_again_is_not_in_its_old_optimizer():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model = nn.Linear(4, 2)
    trace = recorded(optimizer, loss=lambda: model(torch.rand(3, 4)).sum())
    (found,) = trace.findings
    assert (found.kind, found.severity) == ("optimizer-misplaced", "error")
    assert found.headline == "`SGD` has none of the parameters of `model`, which received gradients"
    assert "optimizer-misplaced" not in " ".join(trace.not_checked)
    above, moved = found.fixes[0].edits
    assert (above.text.strip(), moved.text) == ("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", "")


def test_trace_says_so_of_the_optimizer_that_it_is_given():
    old, model = nn.Linear(4, 2), nn.Linear(4, 2)
    optimizer = torch.optim.SGD(old.parameters(), lr=0.1)
    trace = devwidget.trace(model, torch.rand(3, 4), loss_fn=lambda out: out.sum(), optimizer=optimizer)
    assert kinds(trace) == ["optimizer-misplaced"]


def test_an_optimizer_built_while_the_recording_runs_is_looked_at_too():
    with devwidget.record() as recording:
        model = nn.Linear(4, 2)
        optimizer = torch.optim.Adam(model.parameters())
        model = nn.Linear(4, 2)
        model(torch.rand(3, 4)).sum().backward()
        optimizer.step()
    assert kinds(recording.trace) == ["optimizer-misplaced"]


def test_a_copy_made_by_a_wrapper_is_not_in_the_optimizer_of_the_original():
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrapped = nn.Sequential(copy.deepcopy(model))
    assert kinds(recorded(optimizer, loss=lambda: wrapped(torch.rand(3, 4)).sum())) == ["optimizer-misplaced"]


# -- what is meant


def test_a_head_is_trained_and_the_backbone_frozen():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    assert kinds(recorded(optimizer, loss=lambda: model(torch.rand(3, 4)).sum())) == []


def test_a_part_is_trained_on_purpose():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    assert kinds(recorded(optimizer, loss=lambda: model(torch.rand(3, 4)).sum())) == []
    chosen = torch.optim.SGD([each for name, each in model.named_parameters() if "bias" not in name], lr=0.1)
    assert kinds(recorded(chosen, loss=lambda: model(torch.rand(3, 4)).sum())) == []


def test_two_optimizers_have_all_together():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.Adam(model[1].parameters())
    assert kinds(recorded(first, second, loss=lambda: model(torch.rand(3, 4)).sum())) == []


def test_the_discriminator_steps_with_the_gradients_of_both():
    generator, discriminator = nn.Linear(2, 4), nn.Linear(4, 1)
    of_generator = torch.optim.Adam(generator.parameters())
    of_discriminator = torch.optim.Adam(discriminator.parameters())
    both = [of_generator, of_discriminator]
    assert kinds(recorded(of_discriminator, loss=lambda: discriminator(generator(torch.rand(3, 2))).sum(), zero=both)) == []
    trace = devwidget.trace(generator, torch.rand(3, 2), loss_fn=lambda out: discriminator(out).sum(),
                            optimizer=of_discriminator)  # fmt: skip
    assert kinds(trace) == []


def test_an_optimizer_that_waits_for_gradients_stands_beside_one_that_has_them():
    model, later = nn.Linear(4, 2), nn.Linear(4, 2)
    main, waiting = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, later))
    assert kinds(recorded(main, waiting, loss=lambda: model(torch.rand(3, 4)).sum())) == []
    assert kinds(recorded(waiting, loss=lambda: model(torch.rand(3, 4)).sum(), zero=[main])) == []


def test_a_picture_is_trained_through_a_network():
    picture, network = torch.rand(1, 4, requires_grad=True), nn.Linear(4, 2)
    assert kinds(recorded(torch.optim.Adam([picture]), loss=lambda: network(picture).sum(), steps=2)) == []
    optimizer = torch.optim.LBFGS([picture], max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = network(picture).square().sum()
        loss.backward()
        return loss

    with devwidget.record() as recording:
        optimizer.step(closure)
    assert kinds(recording.trace) == []


def test_a_frozen_model_carries_old_gradients():
    features, head = nn.Linear(4, 4), nn.Linear(4, 2)
    features(torch.rand(3, 4)).sum().backward()
    features.requires_grad_(False)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    assert kinds(recorded(optimizer, loss=lambda: head(features(torch.rand(3, 4))).sum())) == []


def test_an_average_of_the_weights_gets_no_gradients():
    model = nn.Linear(4, 2)
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert kinds(recorded(optimizer, loss=lambda: model(torch.rand(3, 4)).sum() + average(torch.rand(3, 4)).sum())) == []


def test_master_copies_are_stepped_with_copied_gradients():
    model = nn.Linear(4, 2, dtype=torch.bfloat16)
    masters = [each.detach().float().requires_grad_() for each in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1)
    with devwidget.record() as recording:
        model(torch.rand(3, 4, dtype=torch.bfloat16)).sum().backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad = parameter.grad.float()
        optimizer.step()
    assert kinds(recording.trace) == []


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(self.table(x))


@pytest.mark.parametrize("replicated", [False, True])
def test_tied_weights_and_replicas_are_in_the_optimizer(replicated):
    with devwidget.simulate(gpus=2):
        model = Tied().cuda()
        optimizer = torch.optim.Adam(model.parameters())
        called = nn.DataParallel(model) if replicated else model
        batch = torch.tensor([1, 2, 3, 4], device="cuda")
        assert kinds(recorded(optimizer, loss=lambda: called(batch).sum())) == []
        assert kinds(devwidget.trace(called, batch, loss_fn=lambda out: out.sum(), optimizer=optimizer)) == []


def test_a_layer_replaced_before_the_recording_is_not_in_the_optimizer():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1] = nn.Linear(4, 3)
    trace = recorded(optimizer, loss=lambda: model(torch.rand(3, 4)).sum())
    (found,) = trace.findings
    assert found.headline == "`SGD` has no parameter group with `1.weight, 1.bias`, which received gradients"
    assert found.why.startswith("an optimizer updates only")
