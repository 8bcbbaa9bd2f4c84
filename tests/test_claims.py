"""Models of transformers with one tensor put where it is wrong, by its name: all that is said of it is borne out."""

from __future__ import annotations

import dataclasses
import random
import warnings
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import devwidget
from devwidget.records.finding import Claim
from devwidget.rules import claims_checker
from devwidget.rules.claim_words import words_of
from tests import zoo

SAMPLE = ("bert", "resnet", "t5")
Given = dict[str, object]


@dataclasses.dataclass
class Held:
    """Claims that were held against their traces, by kind; and what was refused."""

    kinds: list[str] = dataclasses.field(default_factory=list)
    refused: list[str] = dataclasses.field(default_factory=list)

    def is_borne_out(self, evidence: claims_checker.Evidence, claim: Claim) -> bool:
        self.kinds.append(claim.kind)
        problem = evidence.refutes(claim)
        self.refused += [f"{words_of(claim)!r}: {problem}; {claim}"] if problem else []
        return not problem


def on(device: str, value: object) -> object:
    return tree_map(lambda each: each.to(device) if isinstance(each, torch.Tensor) else each, value)


def owner_of(model: nn.Module, path: str) -> tuple[nn.Module, str]:
    parent, _, name = path.rpartition(".")
    return model.get_submodule(parent), name


def move_parameter(model: nn.Module, given: Given, chance: random.Random) -> Given:
    owner, name = owner_of(model, chance.choice([path for path, _ in model.named_parameters()]))
    owner._parameters[name] = nn.Parameter(owner._parameters[name].detach().to(chance.choice(("cpu", "cuda:1"))))
    return given


def widen_parameter(model: nn.Module, given: Given, chance: random.Random) -> Given:
    owner, name = owner_of(model, chance.choice([path for path, _ in model.named_parameters()]))
    owner._parameters[name] = nn.Parameter(owner._parameters[name].detach().double())
    return given


def move_module(model: nn.Module, given: Given, chance: random.Random) -> Given:
    model.get_submodule(chance.choice([path for path, _ in model.named_modules() if path])).to("cuda:1")
    return given


def unregister(model: nn.Module, given: Given, chance: random.Random) -> Given:
    """A buffer, or else a parameter, becomes an attribute that `to` does not see."""
    paths = [path for path, _ in model.named_buffers()] or [path for path, _ in model.named_parameters()]
    owner, name = owner_of(model, chance.choice(paths))
    kept = (owner._buffers if name in owner._buffers else owner._parameters).pop(name)
    setattr(owner, name, kept.detach().cpu())
    return given


def leave_input(model: nn.Module, given: Given, chance: random.Random) -> Given:
    leaves, spec = tree_flatten(given)
    at = chance.choice([place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)])
    leaves[at] = leaves[at].to(chance.choice(("cpu", "cuda:1")))
    return tree_unflatten(leaves, spec)


def empty_parameter(model: nn.Module, given: Given, chance: random.Random) -> Given:
    owner, name = owner_of(model, chance.choice([path for path, _ in model.named_parameters()]))
    owner._parameters[name] = nn.Parameter(owner._parameters[name].detach().to("meta"))
    return given


FAULTS: tuple[Callable[[nn.Module, Given, random.Random], Given], ...] = (
    move_parameter, widen_parameter, move_module, unregister, leave_input, empty_parameter,
)  # fmt: skip


def say_of_mutants(names: tuple[str, ...] | None, seeds: range) -> Iterator[tuple[str, Held, tuple[devwidget.Finding, ...]]]:
    """Each model with each fault: what was held against its trace, and what was found."""
    for seed in seeds:
        for fault in FAULTS:
            for name, model, _, given in zoo.iter_core(names=names):
                held = Held()
                with devwidget.simulate(gpus=2), mock.patch.object(claims_checker, "is_borne_out", held.is_borne_out):
                    given = fault(model.to("cuda:0"), on("cuda:0", given), random.Random(f"{name} {seed}"))
                    trace = devwidget.trace(model, given)
                assert [each for each in trace.not_checked if each.startswith("recorder")] == [], name
                yield f"{name}, {fault.__name__} {seed}", held, trace.findings


def check_mutants(names: tuple[str, ...] | None, seeds: range) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        all_held = list(say_of_mutants(names, seeds))
    refused = {name: held.refused for name, held, _ in all_held if held.refused}
    kinds = {kind for _, held, _ in all_held for kind in held.kinds}
    said = sum(len(held.kinds) for _, held, _ in all_held)
    print(
        f"{len(all_held)} mutants, {sum(bool(found) for *_, found in all_held)} with findings, {said} claims: {sorted(kinds)}"
    )
    assert refused == {}
    assert said > len(all_held) / 2
    assert len(kinds) > 5


def test_what_is_said_of_a_misplaced_tensor_of_a_model_is_borne_out():
    check_mutants(SAMPLE, range(1))


@pytest.mark.fuzz
def test_what_is_said_of_a_misplaced_tensor_of_any_model_is_borne_out():
    check_mutants(None, range(2))
