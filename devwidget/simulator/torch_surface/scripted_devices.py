"""What compiled programs ask and change of devices in C++, where all tensors of virtual GPUs are on the CPU."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch

from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message
from devwidget.simulator.devices import labels
from devwidget.simulator.devices.labels import TEMPORARY
from devwidget.simulator.torch_internals import tree_leaves

BY_DEVICE = "aten::cuda aten::cpu aten::xpu aten::type_as aten::get_device aten::pin_memory aten::is_pinned".split()
MOVING = "aten::to aten::_to_copy aten::tensor".split()
"""Where they are told a device, or another tensor."""
PROPERTY = "prim::is_"
"""`x.is_cuda` and its kin."""
_known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def below_python(program: Any) -> str:
    """The first operation of a compiled program that needs the true device; an empty text if there is none."""
    if program not in _known:
        _known[program] = next(_needing(program.inlined_graph), "")
    return _known[program]


def _needing(block: Any) -> Iterator[str]:
    for node in block.nodes():
        for inner in node.blocks():
            yield from _needing(inner)
        if _needs_device(node):
            yield node.kind()


def _needs_device(node: Any) -> bool:
    kind = node.kind()
    if kind == "prim::device":  # factories may have it: what they make goes where its partners are
        return not all(_is_factory(use.user) for use in node.output().uses())
    if kind in MOVING:
        types = [str(each.type()) for each in node.inputs()]
        return "Device" in types or types.count("Tensor") > 1
    return kind in BY_DEVICE or kind.startswith(PROPERTY)


def _is_factory(node: Any) -> bool:
    return "Device? device" in node.schema() and node.kind() not in (*MOVING, *BY_DEVICE)


def refuse(operation: str, given: Any) -> None:
    """Say that a compiled program cannot have a true answer.

    Raises:
        SimulationError: if it was given a tensor on a GPU.
    """
    if _gpus(given):
        raise SimulationError(
            Message("`{operation}` in a compiled module cannot know virtual GPUs", operation=operation),
            why=Message("TorchScript asks C++ where a tensor is, and there it is on the CPU"),
            instead=Message("the module as it was before torch.jit.script or torch.jit.trace"),
        )


def place(results: Any, given: Any) -> None:
    """Tensors that a program has made where one of its own is are on the GPU of what it was given."""
    gpus = _gpus(given)
    for tensor in tree_leaves(results) if len(gpus) == 1 else ():
        if isinstance(tensor, torch.Tensor) and labels.label_of(tensor) == TEMPORARY:
            labels.put_label(tensor, *gpus)


def _gpus(given: Any) -> set[int]:
    found = {labels.label_of(each) for each in tree_leaves(given) if isinstance(each, torch.Tensor)}
    return {label for label in found if label >= 0}
