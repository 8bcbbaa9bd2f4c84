"""Graphs that are older than a step: detach the batch from them, and protect what backward reaches besides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import dict_of
from devwidget.capture.patching.registry import listen
from devwidget.capture.restore import SavedState
from devwidget.capture.restore.tensors import is_wrapper
from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import is_tensor, nodes_behind, read_attribute, replace_tensors, tensors_in
from devwidget.capture.undo import Undo
from devwidget.records.schema.message import Message

CUT = Message(
    "{kind}: {reason}",
    kind=Message("gradients behind the batch"),
    reason=Message("it was detached from its graph, whose gradients were not computed"),
)
KEPT = Message(
    "{kind}: {reason}",
    kind=Message("memory"),
    reason=Message("backward enters a graph older than the step, so both graphs are kept"),
)
"""Note in a trace about kept graphs."""
_LEAVES_BEGIN = 1 << 63
"""Nodes that accumulate the gradient of a leaf have the largest number, so that they run first."""
Cuts = list[tuple[torch.Tensor, torch.Tensor]]


class _Cut(torch.autograd.Function):
    """Gives a tensor's memory to a new non-leaf: a step may write into it, as into the tensor itself."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, held: tuple[torch.Tensor]) -> torch.Tensor:  # in a tuple: not in the graph
        """Share the memory under its own write counter, so that what the graph has saved stays valid."""
        return held[0].data

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """End backward here."""
        return None, None


def cut_from_graphs(inputs: Arguments) -> tuple[Arguments, Cuts]:
    """Return the arguments with tensors that no older operation is behind, and which replaces which.

    Nothing that created the batch is run: its hooks, checkpoints and the reducers of its parameters are not part of this step.
    """
    cuts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        if not _has_graph(tensor):
            return tensor
        if id(tensor) not in cuts:
            cuts[id(tensor)] = _cut_tensor(tensor), tensor
        return cuts[id(tensor)][0]

    parts = inputs.args, inputs.kwargs, inputs.target
    if not any(map(_has_graph, tensors_in(parts))):
        return inputs, []
    args, kwargs, target = replace_tensors(parts, cut)
    return Arguments(args, kwargs, target), list(cuts.values())


def _has_graph(tensor: torch.Tensor) -> bool:
    """Return whether to cut a tensor. Copying a wrapper would call its class, and a nested tensor cannot be copied:
    `keep_graphs` handles them.
    """
    return (
        read_attribute(tensor, "grad_fn") is not None
        and not is_wrapper(type(tensor))
        and not read_attribute(tensor, "is_nested")
    )


def _cut_tensor(tensor: torch.Tensor) -> torch.Tensor:
    with torch_internals.DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():
        made: torch.Tensor = _Cut.apply(torch.empty(0, requires_grad=True), (tensor,))  # type: ignore[no-untyped-call]
    if type(made) is not type(tensor):
        vars(object)["__class__"].__set__(made, type(tensor))
    dict_of(made).update(dict_of(tensor))
    return made


def keep_graphs(kept: SavedState, note: Callable[[str], object], undo: Undo) -> None:
    """Keep backward in this thread from freeing graphs of what is kept, and from changing gradients there permanently.

    Args:
        kept: objects from before the step; the leaves of their graphs are added.
        note: called if the step's own graph had to be kept too.
        undo: ends it.
    """
    nodes, thread = set(nodes_behind(kept.list_histories())), threading.get_ident()
    leaves = {node for node in nodes if node._sequence_nr() >= _LEAVES_BEGIN}
    kept.add_roots(gradients=[node.variable for node in leaves])
    older = nodes - leaves
    if not older:
        return

    def run_backward(
        original: Callable[..., Any], roots: Sequence[Any], grads: Any, keep_graph: bool, *rest: Any, **more: Any
    ) -> Any:
        if not keep_graph and not older.isdisjoint(nodes_behind(map(_node_of, roots))):
            keep_graph = True
            note(KEPT)
        return original(roots, grads, keep_graph, *rest, **more)

    listen(lambda: threading.get_ident() == thread, *torch_internals.find_target("run_backward"), run_backward, undo)


def _node_of(root: Any) -> Any:
    if is_tensor(root):
        return read_attribute(root, "grad_fn")
    return root.node
