"""Fits through plans: at sizes that were run they are the plans, between them close to full plans."""

import itertools

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.plan.questions import answer_at_once
from devwidget.extras.plan.records.answers import AskedSize
from devwidget.extras.plan.records.plan import DevicePlan, Plan
from devwidget.extras.plan.sizes import estimate_at, fit_plans
from devwidget.records.device import DeviceId
from devwidget.records.errors import DevwidgetError
from tests.extras.plan.test_what_if import plan, taken

pytest.importorskip("anywidget")


def fit(need, batch, length):
    def planned(samples, tokens):
        return Plan("Net", "as is", (), (DevicePlan(DeviceId("cuda", 0), 1000, need(samples, tokens)),))

    question = fit_plans(planned(batch, length), AskedSize(batch, length))
    return answer_at_once(question, lambda wanted: planned(wanted.batch, wanted.length))


@pytest.mark.parametrize("need", [lambda b, n: 100 + 7 * b * n + 3 * b * n * n, lambda b, n: 900 + b * n, lambda b, n: 5000])
def test_lines_and_squares_are_told_exactly(need):
    fitted = fit(need, 8, 64)
    for batch, length in itertools.product((1, 3, 8, 20, 32), (32, 50, 64, 100, 128)):
        assert estimate_at(fitted, batch, length) == pytest.approx(need(batch, length), abs=1)
    assert (fitted.batches, fitted.lengths, fitted.asked) == ((1, 8, 16, 32), (32, 64, 128), (8, 64))
    assert fitted.off < 0.001


def test_where_the_need_bends_more_is_run_and_what_is_left_is_told():
    fitted = fit(lambda b, n: max(5000, 40 * b * n), 8, 64)
    assert fitted.batches == (1, 4, 8, 12, 16, 24, 32)
    assert fitted.checked == len(fitted.batches) - 1
    assert 0 < fitted.off < 1


def test_a_model_for_texts_of_one_length_has_that_length():
    def need(batch, length):
        if length != 64:
            raise DevwidgetError("for texts of 64")
        return batch

    assert fit(need, 8, 64).lengths == (64,)
    assert fit(lambda b, n: b, 8, 0).lengths == (0,)


@pytest.mark.slow
def test_sizes_that_were_run_are_full_plans_and_those_between_are_close():
    asked = plan()
    page = asked.sliders()
    (fitted,) = asked.answers
    assert fitted.off <= 0.05
    for batch, off in ((8, 0), (16, 0), (11, 0.05), (27, 0.05)):
        assert estimate_at(fitted, batch, 32) == pytest.approx(taken(plan(batch)), rel=off)
    assert len(page.view.form["figures"]) == 1 + len(fitted.batches) * len(fitted.lengths)
    page.close()


def test_a_batch_without_a_size_has_no_sliders():
    class Constant(nn.Linear):
        def forward(self, x):
            return super().forward(x.expand(2, 4))

    with pytest.raises(DevwidgetError, match="no size to be changed"):
        devwidget.plan(Constant(4, 4), torch.tensor(1.0), gpus=1, memory="1GiB").sliders()
