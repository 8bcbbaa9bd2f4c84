"""Edits of `__init__` are tried on the modules that it has made, which are afterwards as they were."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.schema.fields import ProcessLocal
from devwidget.rules.placement import unregistered_tensor
from tests.described import described


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.scale = torch.full((width,), 2.0)

    def forward(self, x):
        return self.layer(x) * self.scale


class Branches(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.branches = [nn.Linear(width, width)]
        for _ in range(2):
            self.branches.append(nn.Linear(width, width))

    def forward(self, x):
        for branch in self.branches:
            x = branch(x)
        return self.norm(x)


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Scaled(3)

    def forward(self, x):
        return self.inner(x)


class Chosen(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.layer = nn.Linear(3, 3, device=device)
        self.scale = torch.full((3,), 2.0)

    def forward(self, x):
        return self.layer(x) * self.scale


class Used(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(3)
        self.branches = [nn.Linear(3, 3)]
        self.names = list(map(str, self.branches))

    def forward(self, x):
        for branch in self.branches:
            x = branch(x)
        return self.norm(x)


def first_fix(model, **step):
    (found,) = devwidget.trace(model, torch.ones(2, 3, device="cuda:0"), **step).findings
    return found.fixes[0]


@pytest.mark.parametrize("make", [lambda: Scaled(3), Counted], ids=["model", "part of it"])
def test_a_tensor_becomes_a_buffer_for_one_step(make):
    model = make().to("cuda:0")
    before, code = described(model), Scaled.__init__.__code__
    fix = first_fix(model)
    assert "register_buffer('scale'" in fix.code
    assert fix.verified
    assert described(model) == before
    assert Scaled.__init__.__code__ is code


def test_a_list_of_modules_is_registered_moved_and_trained_for_one_step():
    model = Branches(3).to("cuda:0")
    optimizer = torch.optim.Adam(model.parameters())
    before = described(model), described(optimizer)
    fix = first_fix(model, loss_fn=torch.sum, optimizer=optimizer)
    assert "nn.ModuleList(" in fix.code
    assert fix.verified
    assert (described(model), described(optimizer)) == before


def test_a_list_is_not_tried_where_the_optimizer_trains_a_part():
    model = Branches(3).to("cuda:0")
    optimizer = torch.optim.SGD([model.norm.weight], lr=0.1)
    found = devwidget.trace(model, torch.ones(2, 3, device="cuda:0"), loss_fn=torch.sum, optimizer=optimizer).findings
    fixes = [fix for finding in found for fix in finding.fixes if "ModuleList" in fix.code]
    assert fixes
    assert not any(fix.verified for fix in fixes)


@pytest.mark.parametrize(
    ("make", "registers"), [(lambda: Chosen("cuda:0"), "register_buffer"), (lambda: Used().to("cuda:0"), "ModuleList")]
)
def test_what_the_new_line_would_do_while_the_module_is_built_is_not_guessed(make, registers):
    model = make()
    found = devwidget.trace(model, torch.ones(2, 3, device="cuda:0")).findings
    fixes = [fix for finding in found for fix in finding.fixes if registers in fix.code]
    assert fixes
    assert not any(fix.verified for fix in fixes)


def test_a_tensor_that_is_created_elsewhere_is_tried_where_the_constructor_chooses_a_device():
    model = Chosen("cuda:0")
    (found,) = devwidget.trace(model, torch.ones(2, 3, device="cuda:0")).findings
    (created,) = [fix for fix in found.fixes if fix.code.startswith("self.scale = torch.full((3,), 2.0, device=")]
    assert created.verified
    assert model.scale.device.type == "cpu"


def test_a_candidate_that_cannot_be_registered_is_not_called_verified(monkeypatch):
    real = unregistered_tensor.register_attribute

    def wrong(held, *others):
        fix = real(held, *others)
        effect = ProcessLocal(replace(fix._effect.value, attributes=("other",)))
        edits = tuple(replace(each, text=each.text.replace("'scale'", "'other'")) for each in fix.edits)
        return replace(fix, edits=edits, _effect=effect)

    monkeypatch.setattr(unregistered_tensor, "register_attribute", wrong)
    model = Scaled(3).to("cuda:0")
    before = described(model)
    (found,) = devwidget.trace(model, torch.ones(2, 3, device="cuda:0")).findings
    assert any("other" in edit.text for fix in found.fixes for edit in fix.edits)
    assert not any(fix.verified for fix in found.fixes for edit in fix.edits if "other" in edit.text)
    assert described(model) == before


def test_an_interrupt_in_a_trial_leaves_everything_as_it_was():
    class Interrupted(Scaled):
        def forward(self, x):
            if "scale" in self._buffers:  # as the edit has it
                raise KeyboardInterrupt
            return self.layer(x) * self.scale

    model = Interrupted(3).to("cuda:0")
    before, code = described(model), Interrupted.forward.__code__
    with pytest.raises(KeyboardInterrupt):
        devwidget.trace(model, torch.ones(2, 3, device="cuda:0"), verify=True)
    assert described(model) == before
    assert Interrupted.forward.__code__ is code


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 4)
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4)))
        self.fill_tables(16)

    def fill_tables(self, length):
        angles = torch.outer(torch.arange(length, dtype=torch.float32), self.inv_freq)
        angles = torch.cat([angles, angles], -1)
        self.cos = angles.cos()

    def forward(self, x):
        return self.project(x) * self.cos[: len(x)]


class OfTheClass(nn.Module):
    frequencies = 2.0 ** torch.arange(4)

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 4)

    def forward(self, x):
        return self.project(x) * self.frequencies


def test_a_buffer_of_a_helper_is_tried():
    model = Rotary().to("cuda:0")
    before = described(model)
    found = devwidget.trace(model, torch.ones(2, 4, device="cuda:0")).findings
    assert found
    assert all("register_buffer(" in finding.fixes[0].code and finding.fixes[0].verified for finding in found)
    assert described(model) == before


def test_an_edit_of_a_class_and_its_constructor_is_likely_and_not_tried():
    model = OfTheClass().to("cuda:0")
    (found,) = devwidget.trace(model, torch.ones(2, 4, device="cuda:0")).findings
    assert "frequencies: torch.Tensor" in found.fixes[0].code
    assert (found.fixes[0].verified, found.fixes[0].confidence) == (False, "likely")


class SetTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(4, 4)
        self.table = 0
        self.fill()

    def fill(self):
        self.table = torch.full((4,), 2.0)

    def forward(self, x):
        return self.project(x) * self.table


def test_an_attribute_that_is_there_before_it_is_registered_is_not_tried():
    model = SetTwice().to("cuda:0")
    (found,) = devwidget.trace(model, torch.ones(2, 4, device="cuda:0")).findings
    assert not any(fix.verified for fix in found.fixes if "register_buffer" in fix.code)


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.scale = torch.full((8,), 2.0)

    def forward(self, x):
        return self.last(self.first(x).to("cuda:1") * self.scale)


def by_parts():
    model = Split()
    model.first.to("cuda:0"), model.last.to("cuda:1")
    return model


def test_a_tensor_of_a_model_that_was_moved_by_parts_is_created_on_its_device_and_tried():
    model, batch = by_parts(), torch.ones(2, 4, device="cuda:0")
    before = described(model)
    (found,) = devwidget.trace(model, batch).findings
    assert found.headline == "`scale` is on cpu; the model has parameters or buffers on cuda:1"
    assert found.fixes[0].code == 'self.scale = torch.full((8,), 2.0, device="cuda:1")'
    assert (found.fixes[0].verified, found.fixes[0].confidence) == (True, "sure")
    assert not any("register_buffer" in fix.code for fix in found.fixes)
    assert described(model) == before
