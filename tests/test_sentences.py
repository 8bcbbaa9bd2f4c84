"""Models of transformers with one tensor put where it is wrong, by its name: all that is said of it is borne out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import devwidget
from tests import zoo
from tests.strict_sentences import sentences_of, templates

SAMPLE = ("bert", "resnet", "t5")
Given = dict[str, object]


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


def findings_of_mutants(names: tuple[str, ...] | None, seed: int) -> Iterator[tuple[devwidget.Finding, ...]]:
    """What is found in each model with each fault; a sentence that its trace does not bear out fails the test."""
    for fault in FAULTS:
        for name, model, _, given in zoo.iter_core(names=names):
            with devwidget.simulate(gpus=2):
                given = fault(model.to("cuda:0"), on("cuda:0", given), random.Random(f"{name} {seed}"))
                trace = devwidget.trace(model, given)
            assert [each for each in trace.not_checked if each.startswith("recorder")] == [], name
            yield trace.findings


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("names", "seed"), [(SAMPLE, 0), *(pytest.param(None, seed, marks=pytest.mark.fuzz) for seed in range(2))]
)
def test_what_is_said_of_a_misplaced_tensor_of_a_model_is_borne_out(names: tuple[str, ...] | None, seed: int) -> None:
    found = list(findings_of_mutants(names, seed))
    words = [each for findings in found for finding in findings for each in (finding.headline, *finding.notes)]
    held = [template for each in words for template, _ in sentences_of(each, {}) if template in templates()]
    print(f"{len(found)} mutants, {sum(map(bool, found))} with findings, {len(held)} sentences: {sorted(set(held))}")
    assert len(held) > len(found) / 2
    assert len(set(held)) > 3
