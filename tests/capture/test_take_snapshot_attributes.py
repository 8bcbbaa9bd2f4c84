"""Tensors that are neither parameters nor buffers are found wherever a module keeps them, and nobody's code is run."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from devwidget.capture.snapshot.take_snapshot import take_snapshot
from devwidget.capture.tensors import gradient_of
from devwidget.records.snapshot import TensorFacts


def attributes(model: nn.Module) -> list[TensorFacts]:
    return [each for facts in take_snapshot(model).modules for each in facts.tensors if each.role == "attribute"]


def names(model: nn.Module) -> list[str]:
    return [each.name for each in attributes(model)]


def holding(value: Any) -> nn.Module:
    model = nn.Module()
    model.kept = value
    return model


@dataclasses.dataclass
class Record:
    mask: torch.Tensor
    size: int = 3


@dataclasses.dataclass(slots=True)
class Slotted:
    mask: torch.Tensor
    empty: torch.Tensor = dataclasses.field(init=False)


class Helper:
    def __init__(self) -> None:
        self.cache = {"key": torch.zeros(2)}


Pair = namedtuple("Pair", "left right")
ZERO = torch.zeros(2)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ZERO, ["kept"]),
        ([ZERO], ["kept[0]"]),
        ([1, [ZERO]], ["kept[1][0]"]),
        ((None, ZERO), ["kept[1]"]),
        ({"a": ZERO, 3: 4}, ["kept['a']"]),
        ({(1, 2): ZERO}, ["kept[<tuple>]"]),
        (OrderedDict(a=ZERO), ["kept['a']"]),
        (deque([ZERO]), ["kept[0]"]),
        (Pair(ZERO, 1), ["kept.left"]),
        (Record(ZERO), ["kept.mask"]),
        (Slotted(ZERO), ["kept.mask"]),
        (Helper(), ["kept.cache['key']"]),
        (SimpleNamespace(a=[ZERO]), ["kept.a[0]"]),
        (torch.distributions.Normal(torch.zeros(1), torch.ones(1)), ["kept.loc", "kept.scale"]),
    ],
)
def test_tensors_are_found_in(value: object, expected: list[str]) -> None:
    assert names(holding(value)) == expected


@pytest.mark.parametrize("value", [3, "word", None, torch.float32, print, int, lambda: ZERO, torch.optim, range(3)])
def test_nothing_is_found_in(value: object) -> None:
    assert names(holding(value)) == []


def test_a_plain_attribute_has_its_facts() -> None:
    facts = attributes(holding(torch.ones(4, 4, dtype=torch.bool).tril()))[0]
    assert (facts.name, facts.role, facts.shape, facts.dtype, facts.bytes) == ("kept", "attribute", (4, 4), "bool", 16)


def test_modules_in_a_plain_list_give_their_tensors_with_a_note() -> None:
    model = holding([nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2, affine=False))])
    found = attributes(model)
    assert [each.name for each in found][:2] == ["kept[0].0.weight", "kept[0].1.running_mean"]
    assert found[0].note == "of an unregistered Sequential"


def test_registered_modules_and_parameters_in_a_list_are_not_repeated() -> None:
    model = nn.Module()
    model.layer = nn.Linear(2, 2)
    model.aliases = [model.layer, model.layer.weight, model]
    assert names(model) == []


def test_a_second_reference_to_a_buffer_is_shown_as_tied() -> None:
    """`Module.to` puts a new tensor in `_buffers`, and the list keeps the old one."""
    model = nn.Module()
    model.register_buffer("scale", torch.ones(3))
    model.kept = [model.scale]
    found = attributes(model)
    assert [(each.name, each.tied_to) for each in found] == [("kept[0]", "scale")]


def test_cycles_and_shared_helpers_end_and_count_once() -> None:
    helper, model = Helper(), nn.Module()
    helper.model, helper.self = model, helper
    model.first, model.second = helper, helper
    model.loop = [helper]
    model.loop.append(model.loop)
    assert names(model) == ["first.cache['key']"]


def test_a_tensor_on_the_class_is_listed_for_each_instance_and_counted_once() -> None:
    class Rotary(nn.Module):
        table = torch.zeros(8)

    first, second = attributes(nn.Sequential(Rotary(), Rotary()))
    assert (first.name, first.note, first.tied_to) == ("table", "class attribute", "")
    assert (second.storage, second.tied_to) == (first.storage, "0.table")


def test_a_long_vocabulary_is_not_walked_but_a_long_list_of_tensors_is() -> None:
    assert names(holding({str(n): n for n in range(200_000)})) == []
    assert len(names(holding([torch.zeros(1) for _ in range(300)]))) == 300


def test_an_attribute_with_too_many_objects_is_cut_and_named_and_others_are_still_searched() -> None:
    model = holding([[n] for n in range(20_100)])
    model.mask = ZERO
    facts = take_snapshot(model).modules[0]
    assert facts.note == "too many objects to search all of kept"
    assert [each.name for each in facts.tensors] == ["mask"]


def test_a_result_of_autograd_is_read_without_a_warning() -> None:
    model = nn.Linear(2, 2)
    model.kept = model(torch.ones(1, 2))
    assert [(each.name, each.note) for each in attributes(model)] == [("kept", "computed with autograd")]


def test_flat_weights_of_an_rnn_are_not_repeated() -> None:
    assert names(nn.LSTM(2, 2, num_layers=2, bidirectional=True)) == []


def test_weight_norm_and_pruning_say_what_their_plain_weight_is() -> None:
    with pytest.warns(FutureWarning, match="weight_norm"):
        normed = nn.utils.weight_norm(nn.Linear(2, 2))
    assert [each.note for each in attributes(normed)] == ["computed from weight_g and weight_v before each forward"]
    pruned = nn.Linear(2, 2)
    prune.l1_unstructured(pruned, "weight", 0.5)
    assert [each.note for each in attributes(pruned)] == ["computed from weight_orig before each forward"]


def test_a_tensor_set_before_super_init_is_found() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            object.__setattr__(self, "early", torch.zeros(2))
            super().__init__()

    assert names(Early()) == ["early"]


def test_a_gradient_is_asked_of_a_leaf_alone():
    """torch raises when it is asked whether a view is one whose base was changed in place, as DataParallel's copies are."""
    leaf = torch.ones(2, 2, requires_grad=True)
    base = leaf.clone()
    view = base.unbind(0)[0]
    view.sum().backward()
    base.add_(1)
    with pytest.raises(RuntimeError):
        view.is_leaf
    assert gradient_of(view) is None
    assert gradient_of(leaf) is leaf.grad
