"""Snapshots of real models: nothing breaks, every registered tensor is listed, and the model stays as it was."""

from __future__ import annotations

import warnings

import pytest
from torch import nn
from torch.nn.parameter import is_lazy

from devwidget.capture.snapshot.take_snapshot import take_snapshot
from tests import zoo


def listed(model: nn.Module) -> set[str]:
    """Full paths of the parameters and buffers in a snapshot."""
    return {
        f"{facts.path}.{each.name}" if facts.path else each.name
        for facts in take_snapshot(model).modules
        for each in facts.tensors
        if each.role in ("parameter", "buffer")
    }


def registered(model: nn.Module) -> set[str]:
    parameters = (name for name, _ in model.named_parameters(remove_duplicate=False))
    buffers = (name for name, _ in model.named_buffers(remove_duplicate=False))
    return {*parameters, *buffers}


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.CORE)
def test_every_registered_tensor_of_a_transformers_model_is_listed(name: str) -> None:
    _, model, _, _ = next(iter(zoo.iter_core(names=[name])))
    assert listed(model) == registered(model)
    snapshot = take_snapshot(model)
    assert sum(t.bytes for facts in snapshot.modules for t in facts.tensors if t.role == "parameter" and not t.tied_to) == sum(
        parameter.nbytes for parameter in model.parameters()
    )


def test_all_modules_of_torch_are_listed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [(name, model) for name, model, _, _ in zoo.iter_torch(one_each=True)]
    assert len(models) > 100
    for name, model in models:
        assert listed(model) == registered(model), name
        snapshot = take_snapshot(model)
        shapes = [t.shape for facts in snapshot.modules for t in facts.tensors if t.role == "parameter"]
        assert shapes.count(None) == sum(is_lazy(parameter) for parameter in model.parameters()), name
