"""Nothing of the user's is run because we look: not by a snapshot, a recording, an explanation, or a panel."""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import dataclasses
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import devwidget
from tests import hostile
from tests.hostile import calls

BASES = (object, list, tuple, dict, collections.OrderedDict, set, collections.deque, collections.UserDict, str, int)


class Holder(nn.Module):
    """Holds an object, is given it, and returns it, and asks it nothing."""

    def __init__(self, thing: Any, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.__dict__ |= {"thing": thing, "things": {"one": [thing]}}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.__dict__["seen"] = args, kwargs
        self.__dict__["loss"] = self.inner(torch.ones(2, 4)).sum()
        return args or kwargs


@dataclasses.dataclass(eq=False)
class Pair:
    left: Any
    right: Any


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda thing: thing,
    "list": lambda thing: [thing, thing],
    "tuple": lambda thing: (thing, {"inner": thing}),
    "data class": lambda thing: Pair(thing, [thing]),
    "namespace": lambda thing: types.SimpleNamespace(thing=thing),
    "deque": lambda thing: collections.deque([thing]),
    "partial": lambda thing: functools.partial(print, thing),
    "closure": lambda thing: lambda: thing,
    "ordered": lambda thing: collections.OrderedDict(thing=thing),
}
CLAIMS = (None, torch.Tensor, nn.Module, nn.Parameter, dict, list, str, collections.abc.Iterator, nn.DataParallel)
KINDS = st.fixed_dictionaries({
    "only": st.sets(st.sampled_from(hostile.PROTOCOLS), min_size=1, max_size=8),
    "claims": st.sampled_from(CLAIMS), "raises": st.booleans(), "meta": st.booleans(),
})  # fmt: skip


def things(raises: bool, meta: bool) -> Iterator[Any]:
    """One hostile object of each kind."""
    for base in BASES:
        yield made(base, raises=raises, meta=meta)


def made(base: Any, **traits: Any) -> Any:
    """A hostile object with tensors inside."""
    tensor, kind = torch.ones(2), hostile.hostile(base, **traits)
    thing: Any = base.__new__(kind, (tensor,)) if base is tuple else base.__new__(kind)
    if base is list:
        list.append(thing, tensor)
    if issubclass(base, dict):
        dict.__setitem__(thing, "key", tensor)
    if base is collections.UserDict:
        thing.__dict__["data"] = {"key": tensor}
    return thing


ALL = list(itertools.product((False, True), (False, True)))


@pytest.fixture(autouse=True)
def _nothing_noted() -> None:
    calls.clear()


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


class Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0] * 2


def trained(raises: bool, meta: bool) -> None:
    """A step of a hostile model with a hostile optimizer, a hostile loss module and a hostile checkpoint."""
    model: Any = hostile.hostile(nn.Linear, raises=raises, meta=meta)(4, 4)
    loss: Any = hostile.hostile(nn.Linear, raises=raises, meta=meta)(4, 1)
    function: Any = hostile.hostile(Passed, raises=False, meta=meta)
    checkpoint: Any = hostile.hostile(dict, raises=raises, meta=meta)
    saved = nn.Sequential(nn.Linear(4, 4)).state_dict()
    optimizer: Any = hostile.hostile(torch.optim.SGD, raises=raises, meta=meta)([*nn.Linear(4, 4).parameters()], lr=0.1)
    optimizer.add_param_group({"params": model.weight})
    with contextlib.suppress(ZeroDivisionError):
        nn.Sequential(nn.Linear(4, 4)).load_state_dict(checkpoint(saved))
    loss(function.apply(model(torch.ones(2, 4)))).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(("raises", "meta"), ALL)
def test_a_recorded_training_step_runs_no_code_of_its_parts(raises, meta):
    with devwidget.record() as recording:
        trained(raises, meta)
    assert calls == []
    assert not [line for line in recording.trace.not_checked if line.startswith("recorder:")]


def looked_at(thing: Any, inner: type) -> list[str]:
    """What is told of a program that holds and passes an object, by everything that reads programs."""
    model: Any = Holder(thing, inner(4, 4))
    devwidget.snapshot(model)
    with devwidget.record() as recording:
        model(thing)
    traced = devwidget.trace(model, devwidget.Inputs(thing, named=thing), loss_fn=lambda out: model.__dict__["loss"])
    passed = devwidget.trace(model, thing)

    def fails() -> None:
        variable = thing
        torch.ones(2) @ torch.ones(3)
        del variable

    with pytest.raises(RuntimeError) as caught:
        fails()
    devwidget.explain(caught.value)
    traces = (recording.trace, traced, passed)
    troubles = [text for trace in traces for text in trace.not_checked if text.startswith("recorder:")]
    return troubles + [trace.error for trace in traces if trace.error]


@pytest.fixture(scope="module")
def counted() -> Iterator[list[str]]:
    """What was asked of each, for the figures."""
    asked: list[str] = []
    yield asked
    print(f"{len(asked)} hostile objects held, passed and explained: {sum(map(bool, asked))} asked")


def examine(base: type, traits: dict[str, Any], wrapper: str, of_module: bool, virtual: bool) -> None:
    calls.clear()
    inner = hostile.hostile(nn.Linear, **traits) if of_module else nn.Linear
    thing = WRAPPERS[wrapper](made(base, **traits))
    with devwidget.simulate(1) if virtual else contextlib.nullcontext():
        assert looked_at(thing, inner) == []
    assert calls == []


OBJECTS = given(
    base=st.sampled_from(BASES), traits=KINDS, wrapper=st.sampled_from(list(WRAPPERS)), of_module=st.booleans(),
    virtual=st.booleans(),
)  # fmt: skip


@pytest.mark.parametrize(("base", "wrapper"), list(zip(BASES, itertools.cycle(WRAPPERS))))
@pytest.mark.parametrize("raises", [False, True])
def test_a_hostile_object_is_asked_nothing_wherever_it_is_held(base, wrapper, raises):
    examine(base, {"raises": raises, "meta": not raises}, wrapper, of_module=raises, virtual=not raises)


@pytest.mark.fuzz
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@OBJECTS
def test_three_hundred_hostile_objects_are_asked_nothing(counted, base, traits, wrapper, of_module, virtual):
    examine(base, traits, wrapper, of_module, virtual)
    counted.append("".join(calls))
