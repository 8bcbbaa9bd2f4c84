"""Whose birth a tensor has that was made out of sight: that of the tensor whose storage it shares."""

from __future__ import annotations

import contextlib
import sys

import torch
from torch import nn

import devwidget
from devwidget.capture.recording.births import Birth, Births
from devwidget.capture.source_code.call_sites import RawSite


def born(births: Births, tensor: torch.Tensor, *, computed: bool) -> Birth:
    birth = Birth.make_birth(tensor, 7, call="linear", site=RawSite(sys._getframe().f_code, 0))
    if computed:
        birth.weights = births.birth_of(torch.nn.Parameter(torch.ones(3)))
    births.put_birth(tensor, birth)
    return birth


def test_what_shares_the_storage_of_a_layers_result_has_its_birth_while_that_lives() -> None:
    births, result = Births(), torch.ones(3)
    view = result.detach()
    birth = born(births, result, computed=True)
    assert births.find_birth(view) is birth
    del result
    assert births.find_birth(view) is None


def test_a_result_that_got_other_data_says_nothing_of_its_old_storage() -> None:
    births, result = Births(), torch.ones(3)
    view = result.detach()
    birth = born(births, result, computed=True)
    result.data = torch.zeros(3)
    assert births.find_birth(view) is None
    assert births.find_birth(result) is birth


def test_what_shares_the_storage_of_a_new_tensor_has_its_birth_when_that_is_gone() -> None:
    births, made = Births(), torch.ones(3)
    birth = born(births, made, computed=False)
    kept = torch.nn.Parameter(made.detach())
    del made
    assert births.find_birth(kept) is birth


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


def resumed():
    model = Outer()
    model.eval()
    return model


def test_the_line_that_built_a_model_is_recorded_where_its_function_has_returned():
    with devwidget.simulate(1), devwidget.record() as recording, contextlib.suppress(RuntimeError):
        resumed()(torch.ones(2, 4).cuda())
    (fault,) = recording.trace.faults
    strays = [operand.held for operand in fault.operands if operand.stray]
    assert strays
    assert {(held.left_class, held.built.text) for held in strays} == {("Outer", "model = Outer()")}
