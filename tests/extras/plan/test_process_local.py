"""What a record can only do in its own process: copies share it, files and pickles leave it behind."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import devwidget
from devwidget.extras.plan.records.plan import Plan
from devwidget.records.errors import DevwidgetError
from devwidget.records.loading import json_io

COPIES = (copy.copy, copy.deepcopy, dataclasses.replace)


def plan(model: nn.Module) -> Plan:
    return devwidget.plan(model, torch.ones(4, 64), gpus=1, memory="1GiB")


@pytest.mark.parametrize("copied", COPIES)
def test_a_copied_plan_answers_as_the_first_does(copied: Any) -> None:
    first = plan(nn.Linear(64, 64))
    second = copied(first)
    assert second == first
    assert second.largest_batch() == first.largest_batch()


def test_a_pickled_plan_and_a_saved_one_leave_the_model_behind() -> None:
    first = plan(nn.Linear(64, 64))
    for loaded in (pickle.loads(pickle.dumps(first)), json_io.loads(json_io.dumps(first))):
        assert loaded == first
        with pytest.raises(DevwidgetError, match="its model is not here"):
            loaded.largest_batch()


def test_what_lives_with_the_process_is_neither_shown_nor_compared_nor_saved() -> None:
    first = plan(nn.Linear(64, 64))
    alone = json_io.loads(json_io.dumps(first))
    assert (repr(first), hash(first), json_io.dumps(first)) == (repr(alone), hash(alone), json_io.dumps(alone))
    assert "_questions" not in json_io.dumps(first)


def test_the_model_goes_with_the_last_copy_of_its_plan() -> None:
    model = nn.Linear(64, 64)
    held, first = weakref.ref(model), plan(model)
    second = copy.copy(first)
    del model, first
    assert held() is not None
    del second
    gc.collect()
    assert held() is None
