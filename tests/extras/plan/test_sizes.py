"""The sizes around a step that a page of a plan has planned."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.plan.questions import answer_at_once
from devwidget.extras.plan.records.answers import AskedSize, Fitted
from devwidget.extras.plan.records.plan import DevicePlan, Plan
from devwidget.extras.plan.sizes import plan_sizes
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError


def sizes_of(need: Callable[[int, int], int], batch: int, length: int) -> Fitted:
    def planned(samples: int, tokens: int) -> Plan:
        return Plan("Net", "as is", (), (DevicePlan(DeviceId("cuda", 0), 1000, need(samples, tokens)),))

    question = plan_sizes(planned(batch, length), AskedSize(batch, length))
    return answer_at_once(question, lambda wanted: planned(wanted.batch, wanted.length))


def test_smaller_and_larger_sizes_are_planned_batch_after_batch():
    found = sizes_of(lambda batch, length: batch * length, 8, 64)
    assert (found.batches, found.lengths, found.asked) == ((1, 8, 16, 32), (32, 64, 128), (8, 64))
    assert [each.on_card for each in found.tried[:3]] == [32, 64, 128]


def test_a_model_for_texts_of_one_length_has_that_length():
    def need(batch: int, length: int) -> int:
        if length != 64:
            raise DevwidgetError("for texts of 64")
        return batch

    assert sizes_of(need, 8, 64).lengths == (64,)
    assert sizes_of(lambda batch, length: batch, 8, 0).lengths == (0,)


def test_a_batch_without_a_size_has_no_sliders():
    class Constant(nn.Linear):
        def forward(self, x):
            return super().forward(x.expand(2, 4))

    with pytest.raises(DevwidgetError, match="size of the batch cannot be changed"):
        devwidget.plan(Constant(4, 4), torch.tensor(1.0), gpus=1, memory="1GiB").sliders()
