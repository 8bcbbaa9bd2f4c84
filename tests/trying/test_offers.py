"""A fix that was not tried can be tried later, as long as somebody keeps what the step ran on."""

import copy
import dataclasses
import gc
import pickle
import queue
import warnings
import weakref

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.errors import DevwidgetError
from devwidget.records.finding import Fix
from devwidget.records.loading import json_io
from tests.trying.models import Faulty, first_fix, offer_instead

QUEUE = queue.Queue()


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def counting():
    return Faulty(lambda: QUEUE.put(1)).to("cuda:0")


def batch():
    return torch.ones(2, 4, device="cuda:0")


@pytest.mark.parametrize("verify", ["auto", False])
def test_what_was_not_tried_is_tried_when_it_is_asked_for(verify):
    model, given = counting(), batch()
    fix = first_fix(devwidget.trace(model, given, verify=verify))
    assert not fix.verified
    tried = fix.try_it()
    assert (tried.verified, tried.not_tried, tried.runs) == (True, "", 3)
    assert tried.edits == fix.edits


@pytest.mark.parametrize("copied", [copy.deepcopy, dataclasses.replace])
def test_a_copy_of_a_fix_is_tried_as_the_first_is(copied):
    model, given = counting(), batch()
    trace = devwidget.trace(model, given)
    assert first_fix(copied(trace)).try_it().verified
    assert copied(first_fix(trace)).try_it().verified


@pytest.mark.parametrize("passed", [lambda t: json_io.loads(json_io.dumps(t)), lambda t: pickle.loads(pickle.dumps(t))])
def test_a_trace_from_a_file_says_that_it_cannot(passed):
    model, given = counting(), batch()
    trace = devwidget.trace(model, given)
    assert passed(trace) == trace
    with pytest.raises(DevwidgetError, match="it was loaded, created in another process or by hand") as error:
        first_fix(passed(trace)).try_it()
    assert error.value.instead == "devwidget.trace(model, batch, verify=True)"


@pytest.mark.parametrize("gone", ["model", "batch", "loss_fn"])
def test_a_fix_keeps_nothing_alive_and_says_what_is_gone(gone):
    parts = {"model": counting(), "batch": batch(), "loss_fn": nn.MSELoss(), "target": torch.ones(2, 4, device="cuda:0")}
    fix = first_fix(devwidget.trace(**parts))
    last = weakref.ref(parts.pop(gone))
    gc.collect()
    assert last() is None
    with pytest.raises(DevwidgetError, match=f"its {gone} no longer exists"):
        fix.try_it()


def test_a_fix_whose_edit_gives_another_result_fails(monkeypatch):
    offer_instead(monkeypatch, lambda text: text.replace("zeros", "ones"))
    model, given = counting(), batch()
    tried = first_fix(devwidget.trace(model, given)).try_it()
    assert (tried.verified, tried.fails) == (False, True)


def test_a_cure_in_words_cannot_be_tried():
    with pytest.raises(DevwidgetError, match="it is advice in words"):
        Fix("think again").try_it()


def test_a_fault_that_is_gone_says_so():
    model, given = counting(), batch()
    fix = first_fix(devwidget.trace(model, given))
    model.forward = lambda x: x
    with pytest.raises(DevwidgetError, match="the step no longer has this fault"):
        fix.try_it()


def test_what_is_tried_later_prints_and_warns_nothing(capsys, recwarn):
    def act():
        print("step")
        QUEUE.put(1)
        warnings.warn("slow", stacklevel=1)

    warnings.simplefilter("always")
    model, given = Faulty(act).to("cuda:0"), batch()
    fix = first_fix(devwidget.trace(model, given))
    assert fix.try_it().verified
    assert capsys.readouterr().out == "step\n"
    assert len(recwarn) == 1


@pytest.mark.parametrize("ask", [devwidget.trace, devwidget.check])
def test_another_value_than_the_three_is_refused(ask):
    with pytest.raises(DevwidgetError, match="does not say when fixes are verified") as error:
        ask(nn.Linear(2, 2), torch.ones(1, 2), verify="True")
    assert error.value.instead == 'verify="auto", verify=True or verify=False'
