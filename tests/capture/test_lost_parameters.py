"""An optimizer that lost parameters of its model; programs that only look alike."""

import copy

import pytest
import torch
from torch import nn

import devwidget
from tests.explained_programs import explained_and_cured, line, run_failing, written

BATCH = torch.rand(6, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(torch.relu(self.body(x)))


def train(model, *optimizers, steps=2):
    """The findings on optimizers of some steps."""
    with devwidget.record() as recording:
        for _ in range(steps):
            for each in optimizers:
                each.zero_grad()
            model(BATCH).sum().backward()
            for each in optimizers:
                each.step()
    return [found for found in recording.trace.findings if found.kind == "optimizer-misplaced"]


# -- parameters that took the place of those in the optimizer


@pytest.mark.parametrize("classes", [3, 5])
def test_a_layer_replaced_after_the_optimizer_is_not_trained(classes):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.fc = nn.Linear(8, classes)
    (found,) = train(model, optimizer)
    assert found.headline == "`SGD` has no parameter group with `fc.weight, fc.bias`, which received gradients"
    assert found.birth.text == "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    assert found.fixes[0].summary == "build the optimizer after the last change of the model"


def test_a_parameter_replaced_after_the_optimizer_is_not_trained():
    with devwidget.record() as recording:
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        model.fc.weight = nn.Parameter(model.fc.weight.detach() * 2)
        model(BATCH).sum().backward()
        optimizer.step()
    (found,) = [each for each in recording.trace.findings if each.kind == "optimizer-misplaced"]
    assert "`fc.weight`" in found.headline
    assert found.why.startswith("an optimizer updates only")


def test_parameters_that_a_list_left_out_while_they_were_frozen_are_not_trained():
    model = Net()
    model.body.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model.body.requires_grad_(True)
    with devwidget.record() as recording:
        model(BATCH).sum().backward()
        optimizer.step()
    (found,) = recording.trace.findings
    assert "`body.weight, body.bias`" in found.headline
    assert found.why.startswith("an optimizer updates only")
    assert found.fixes[0].summary == "build the optimizer after the last change of the model"


def test_parameters_that_a_filter_left_out_while_they_were_frozen_are_not_trained():
    model = Net()
    model.body.requires_grad_(False)
    optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1)
    with devwidget.record() as before:
        model(BATCH).sum().backward()
        optimizer.step()
    model.body.requires_grad_(True)
    with devwidget.record() as after:
        model(BATCH).sum().backward()
        optimizer.step()
    assert [len(each.trace.findings) for each in (before, after)] == [0, 1]


def test_parameters_chosen_by_name_are_left_out_on_purpose():
    model = Net()
    optimizer = torch.optim.SGD([p for n, p in model.named_parameters() if n.startswith("fc")], lr=0.1)
    assert train(model, optimizer) == []
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.dim() > 1], lr=0.1)
    assert train(model, optimizer) == []


class Trainer:
    def __init__(self):
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def run(self):
        return train(self.model, self.optimizer)


def test_a_trainer_whose_model_gets_another_head_is_found_with_the_line_of_its_optimizer():
    trainer = Trainer()
    assert trainer.run() == []
    trainer.model.fc = nn.Linear(8, 3)
    (found,) = trainer.run()
    assert found.birth.text == "self.optimizer = torch.optim.AdamW(self.model.parameters())"


def test_data_replaced_and_layers_trained_elsewhere_or_on_purpose_not_at_all_are_silent():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.data = parameter.data * 2
    assert train(model, optimizer) == []
    model.fc = nn.Linear(8, 3)
    second = torch.optim.SGD(model.fc.parameters(), lr=0.1)
    assert train(model, optimizer, second) == []
    optimizer.add_param_group({"params": model.fc.parameters()})
    assert train(model, optimizer) == []
    other = Net()
    both_heads = torch.optim.SGD([*model.fc.parameters(), *other.fc.parameters()], lr=0.1)
    del optimizer, second
    assert train(model, both_heads) == []


# -- snapshots


def test_a_snapshot_says_that_the_optimizer_is_of_another_model():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert devwidget.snapshot(model, optimizer=optimizer).modules[0].note == ""
    again = devwidget.snapshot(Net(), optimizer=optimizer)
    assert again.modules[0].note == "`SGD` has none of its parameters: build the optimizer after the model"
    assert "none of its parameters" in str(again)


def test_a_snapshot_is_silent_on_copies_parts_and_frozen_models():
    model = Net().half()
    masters = [nn.Parameter(each.detach().float()) for each in model.parameters()]
    assert devwidget.snapshot(model, optimizer=torch.optim.SGD(masters, lr=0.1)).modules[0].note == ""
    assert devwidget.snapshot(model, optimizer=torch.optim.SGD(model.fc.parameters(), lr=0.1)).modules[0].note == ""
    frozen = copy.deepcopy(model).float().requires_grad_(False)
    prompt = nn.Parameter(torch.zeros(2, 4))
    assert devwidget.snapshot(frozen, optimizer=torch.optim.SGD([prompt], lr=0.1)).modules[0].note == ""


# -- exceptions

SCALED = """
model = nn.Linear(8, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{again}
scaler = torch.amp.GradScaler("cuda")
with torch.autocast("cuda", dtype=torch.float16):
    loss = model(torch.randn(4, 8).cuda()).float().mean()
{backward}
scaler.step(optimizer)
"""


def test_a_scaler_that_steps_the_optimizer_of_another_model_is_explained_with_both_lines(tmp_path):
    text = written(SCALED.format(again="model = nn.Linear(8, 3).cuda()", backward="scaler.scale(loss).backward()"))
    found = explained_and_cured(tmp_path, text)
    assert found.headline == "`SGD` has none of the parameters of `model`, which received gradients"
    assert found.birth.line == line(text, "optimizer =")
    assert any("the model was created at" in note for note in found.notes)


def test_a_scaler_without_a_backward_pass_is_not_blamed_on_the_optimizer(tmp_path):
    explanation = run_failing(tmp_path, written(SCALED.format(again="", backward="scaler.scale(loss)")))
    assert explanation.findings == ()


# -- tensors that are no leaves


def test_a_recording_that_heals_keeps_every_parameter_of_a_group():
    weight, moved = nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True) * 2
    with devwidget.record(heal=True) as recording:
        optimizer = torch.optim.SGD([weight, moved], 0.1)
    (found,) = recording.trace.findings
    (group,) = optimizer.param_groups
    assert found.kind == "non-leaf-grad"
    assert [each.is_leaf for each in group["params"]] == [True, True]
    assert (group["params"][0] is weight, group["params"][1].tolist()) == (True, [2.0, 2.0, 2.0])
