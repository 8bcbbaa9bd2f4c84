"""Random nestings of containers, objects and tensors, changed at random: all is put back, or named."""

import random
from collections import OrderedDict, defaultdict, deque
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import devwidget
from tests.described import described, differences


class Note:
    """A plain object of the user's."""

    def __init__(self, value):
        self.value = value
        self.other = {"value": value}


class Cell:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def _tensor(size, dtype, grad):
    tensor = torch.zeros(size, dtype=dtype)
    return tensor.requires_grad_() if grad and dtype.is_floating_point else tensor


TENSORS = st.builds(_tensor, st.integers(0, 40), st.sampled_from([torch.float32, torch.int64, torch.bool]), st.booleans())
LEAVES = st.one_of(st.integers(), st.text(max_size=3), st.none(), TENSORS, st.builds(lambda: nn.Linear(2, 2)))


def _members(parts):
    return {each for each in parts if isinstance(each, torch.Tensor | str)}


def _nested(inner):
    several = st.lists(inner, max_size=3)
    entries = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    return st.one_of(
        several, several.map(tuple), several.map(deque), several.map(_members), entries,
        entries.map(OrderedDict), entries.map(lambda found: defaultdict(list, found)), inner.map(Note), inner.map(Cell),
        entries.map(lambda found: SimpleNamespace(**found)), st.binary(max_size=4).map(bytearray),
    )  # fmt: skip


VALUES = st.recursive(LEAVES, _nested, max_leaves=12)
ATTRIBUTES = st.dictionaries(st.sampled_from(["first", "second", "third"]), VALUES, max_size=3)


class Odd(nn.Module):
    """Changes something at random in everything that it holds."""

    def __init__(self, values, seed):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        for name, value in values.items():
            setattr(self, name, value)
        self._seed = seed

    def forward(self, x):
        chance = random.Random(self._seed)
        out = self.lin(x)
        for name, value in list(vars(self).items()):
            if not name.startswith("_"):
                _change(value, chance)
        self.added = x
        return out


def _change(value, chance):
    for part in _parts(value):
        if chance.random() < 0.8:
            _change(part, chance)
    if chance.random() < 0.3:
        return
    if isinstance(value, torch.Tensor):
        _change_tensor(value, chance)
    elif isinstance(value, list | deque):
        chance.choice([lambda: value.append(1), value.clear, value.reverse])()
    elif isinstance(value, dict):
        chance.choice([lambda: value.update(new=1), value.clear, lambda: value.pop(next(iter(value), None), None)])()
    elif isinstance(value, Note | SimpleNamespace):
        chance.choice([lambda: setattr(value, "value", 5), lambda: setattr(value, "new", 1), vars(value).clear])()
    elif isinstance(value, Cell):
        value.value = 7
    elif isinstance(value, bytearray):
        value.append(1)


def _change_tensor(tensor, chance):
    with torch.no_grad():
        choices = [lambda: tensor.fill_(1), lambda: setattr(tensor, "data", torch.ones(3, dtype=tensor.dtype))]
        choices += [lambda: setattr(tensor, "note", 1), lambda: tensor.unsqueeze_(0), lambda: tensor.resize_(5)]
        if tensor.dtype.is_floating_point:
            choices.append(lambda: tensor.requires_grad_(not tensor.requires_grad))
            choices.append(lambda: setattr(tensor, "data", tensor.double()))
        chance.choice(choices)()


def _parts(value):
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | deque):
        return list(value)
    if isinstance(value, Note | SimpleNamespace):
        return list(vars(value).values())
    return [value.value] if isinstance(value, Cell) else []


def assert_undone(values, seed, trains):
    model = Odd(values, seed)
    more = {"loss_fn": torch.sum, "optimizer": torch.optim.SGD(model.lin.parameters(), lr=0.1)} if trains else {}
    before = described(model, *more.values())
    traced = devwidget.trace(model, torch.rand(2, 4), **more)
    assert traced.not_restored == ()
    assert differences(before, described(model, *more.values())) == []


OPTIONS = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
any_model = given(values=ATTRIBUTES, seed=st.integers(0, 1000), trains=st.booleans())


@settings(max_examples=15, derandomize=True, **OPTIONS)
@any_model
def test_a_change_of_an_odd_model_is_undone(values, seed, trains):
    assert_undone(values, seed, trains)


@pytest.fixture(scope="module")
def counted():
    """How many models were changed, for the figures."""
    seen = []
    yield seen
    print(f"{len(seen)} random models changed, {len(seen)} put back")


@pytest.mark.fuzz
@settings(max_examples=300, **OPTIONS)
@any_model
def test_a_random_change_of_a_random_model_is_undone(counted, values, seed, trains):
    assert_undone(values, seed, trains)
    counted.append(seed)
