"""Nothing of the user's is run because we look: not by a snapshot, a recording, an explanation, or a panel."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import devwidget
from tests import hostile
from tests.hostile import calls

BASES = (object, list, tuple, dict, collections.OrderedDict, set, collections.deque, collections.UserDict, str, int)


class Model(nn.Module):
    """Carries objects through its calls, in its attributes, and in the variables of its frames."""

    def __init__(self, *held: Any) -> None:
        super().__init__()
        self.inner = nn.ModuleList([nn.Linear(4, 4), Carrier()])
        self.__dict__ |= {f"held_{at}": each for at, each in enumerate(held)}  # `nn.Module` asks each for its class
        self.all_held, self.named = list(held), {"inside": held}

    def forward(self, x: torch.Tensor, *extra: Any, **named: Any) -> Any:
        variable = extra[0] if extra else None
        out, passed = self.inner[1](self.inner[0](x), variable, *extra, **named)
        return {"out": out * 2, "passed": passed, "same": variable}


class Carrier(nn.Module):
    def forward(self, x: torch.Tensor, *extra: Any, **named: Any) -> Any:
        return x + 1, extra


def things(raises: bool, meta: bool) -> Iterator[Any]:
    """One hostile object of each kind, with tensors inside."""
    tensor = torch.ones(2)
    for base in BASES:
        kind = hostile.hostile(base, raises=raises, meta=meta)
        made: Any = base.__new__(kind, (tensor,)) if base is tuple else base.__new__(kind)
        if base is list:
            list.append(made, tensor)
        if issubclass(base, dict):
            dict.__setitem__(made, "key", tensor)
        if base is collections.UserDict:
            made.__dict__["data"] = {"key": tensor}
        yield made


ALL = list(itertools.product((False, True), (False, True)))


@pytest.fixture(autouse=True)
def _nothing_noted() -> None:
    calls.clear()


@pytest.mark.parametrize(("raises", "meta"), ALL)
def test_a_recording_runs_no_code_of_what_passes_through_it(raises, meta):
    objects = list(things(raises, meta))
    model = Model(*objects)
    state = torch.get_rng_state()
    with devwidget.record() as recording:
        recording.attach(model)
        model(torch.ones(1, 4), *objects, extra=objects[0])
    assert calls == []
    assert torch.equal(torch.get_rng_state(), state)
    assert not [line for line in recording.trace.not_checked if line.startswith("recorder:")]


@pytest.mark.parametrize(("raises", "meta"), ALL)
def test_a_snapshot_runs_no_code_of_what_a_model_holds(raises, meta):
    model = Model(*things(raises, meta))
    found = devwidget.snapshot(model)
    assert calls == []
    assert sum(len(module.tensors) for module in found.modules) > 2


@pytest.mark.parametrize(("raises", "meta"), ALL)
def test_healing_and_naming_run_no_code_of_the_variables_around(raises, meta):
    objects = list(things(raises, meta))
    with devwidget.simulate(2), devwidget.record(heal=True) as recording:
        variable, other = objects[0], objects[1]
        held = {"left": torch.ones(2, device="cuda:0"), "objects": objects}
        held["left"] + torch.ones(2, device="cuda:1")
        del variable, other
    assert calls == []
    assert [finding.kind for finding in recording.trace.findings] == ["wrong-device"]


@pytest.mark.parametrize(("raises", "meta"), ALL)
def test_an_explanation_runs_no_code_of_the_variables_around(raises, meta):
    objects = list(things(raises, meta))

    def fails() -> None:
        variable, other, held = objects[0], objects[3], list(objects)
        left, right = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
        left + right
        del variable, other, held

    with devwidget.simulate(2):
        with pytest.raises(RuntimeError) as caught:
            fails()
        found = devwidget.explain(caught.value)
    assert calls == []
    assert [finding.kind for finding in found.findings] == ["wrong-device"]
