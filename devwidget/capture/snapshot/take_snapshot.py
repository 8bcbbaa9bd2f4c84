"""Read an nn.Module as a Snapshot: every module once, with every tensor that it owns, without running user code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.devices import read_memory
from devwidget.capture.object_fields import class_name, module_name
from devwidget.capture.other_threads import running_thread
from devwidget.capture.snapshot.module_reader import ModuleReader
from devwidget.capture.snapshot.optimizer_state import read_optimizer, tensors_of
from devwidget.capture.snapshot.tensor_reader import join_notes
from devwidget.capture.tensors import ModuleTree, is_parameter, named_tensors
from devwidget.capture.undo import paused_gc
from devwidget.capture.validation import refuse_model, refuse_optimizer
from devwidget.records.schema.message import Message
from devwidget.records.snapshot import Snapshot, TensorFacts


def take_snapshot(model: nn.Module, *, optimizer: torch.optim.Optimizer | None = None, virtual_gpus: int = 0) -> Snapshot:
    """Return where everything of a model is now.

    Nothing is changed, moved, loaded, allocated or synced, and CUDA is not initialised.

    Args:
        model: root of the tree.
        optimizer: its state is listed too.
        virtual_gpus: number of active virtual GPUs.

    Returns:
        A snapshot that holds no tensor. In its memory all live tensors of a device are one figure (`activations`);
        `memory.accounting.account` separates the model's tensors.

    Raises:
        DevwidgetError: if `model` is not a module or `optimizer` not an optimizer.
    """
    refuse_model(model)
    refuse_optimizer(optimizer)
    torch_internals.check_names("reading tensors")
    # A mode or a tensor subclass of the user must not see our reading.
    with paused_gc(), torch_internals.DisableTorchFunction():
        return _read_snapshot(model, optimizer, virtual_gpus)


def _read_snapshot(model: nn.Module, optimizer: Any, virtual_gpus: int) -> Snapshot:
    tree, busy = ModuleTree(model), running_thread()
    modules = ModuleReader(tree, gradients=not busy)
    facts = tuple(modules.read_module(place, visit) for place, visit in enumerate(tree.visits))
    notes, states = [facts[0].note], tuple[TensorFacts, ...]()
    if busy:
        notes.append(Message("gradients were not read, because thread `{thread}` may be using them", thread=busy))
    if optimizer is not None:
        states = tuple(read_optimizer(optimizer, tree.parameter_paths, modules.tensors))
        if _is_of_another_model(optimizer, model):
            notes.append(
                Message(
                    "`{optimizer}` has none of its parameters: build the optimizer after the model",
                    optimizer=class_name(type(optimizer)),
                )
            )
    if len(notes) > 1:
        facts = (replace(facts[0], note=join_notes(*notes)), *facts[1:])
    return Snapshot(facts, states, read_memory(virtual_gpus), virtual_gpus)


def _is_of_another_model(optimizer: torch.optim.Optimizer, model: nn.Module) -> bool:
    """Return whether an optimizer of torch has no parameter of a model that is not frozen.

    An optimizer may keep float32 copies of half precision parameters, so the dtypes must be the same.
    """
    own = [parameter for _, parameter in named_tensors(model, "_parameters") if parameter.requires_grad]
    given = tensors_of(optimizer)
    if not given or not all(map(is_parameter, given)) or not module_name(type(optimizer)).startswith("torch.optim."):
        return False
    has_same_dtypes = {each.dtype for each in given} == {each.dtype for each in own}
    return has_same_dtypes and {*map(id, own)}.isdisjoint(map(id, given))
